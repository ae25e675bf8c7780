"""Progress bars show where work stands, and warnings point at the line that led to them."""

import inspect

import numpy as np
import pytest
from sklearn.model_selection import cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer

from skcalib import BiEncoder, SimilarityScale, Whitening
from skcalib._base import progress
from skcalib.metrics import spearman


def _work(total, verbose):
    with progress(total, unit="text", desc="encode", verbose=verbose) as advance:
        advance(2)
        advance(1, "nearly done")


@pytest.mark.parametrize(("total", "shown"), [(3, "3/3"), (None, "3text")])
def test_a_bar_counts_units_and_shows_notes(total, shown, capsys):
    _work(total, verbose=True)
    error = capsys.readouterr().err
    assert error.startswith("\rencode: ")
    assert shown in error
    assert "nearly done" in error


def test_nothing_is_shown_unless_asked(capsys):
    _work(3, verbose=False)
    assert capsys.readouterr() == ("", "")


X = np.random.default_rng(0).normal(size=(20, 30))
CONE = X + 9
PAIRS = [(str(i), str(i + 1)) for i in range(19)]
corrected = BiEncoder(lambda texts: CONE[[int(i) for i in texts]], similarity="corrected")


@pytest.mark.parametrize(
    ("message", "work"),
    [
        ("n_samples=", lambda: Whitening().fit(X)),
        ("n_samples=", lambda: Whitening().partial_fit(X).transform(X)),
        ("n_samples=", lambda: make_pipeline(FunctionTransformer(), Whitening()).fit(X)),
        ("n_samples=", lambda: cross_val_score(Whitening(), X, scoring=lambda *_: 0.0)),
        ("narrow cone", lambda: SimilarityScale().fit(CONE).neighbor_similarity(CONE)),
        ("narrow cone", lambda: corrected.fit(PAIRS).predict(PAIRS)),
        ("constant", lambda: spearman([1, 1], [1, 2])),
    ],
)
def test_warnings_point_at_the_users_line(message, work):
    with pytest.warns(match=message) as seen:
        work()
    line = inspect.getsourcelines(work)[1]
    assert {(w.filename, w.lineno) for w in seen} == {(__file__, line)}
