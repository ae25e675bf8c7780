"""Progress bars show where work stands, and warnings point at the line that led to them."""

import inspect

import numpy as np
import pytest
from sklearn.model_selection import cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer

from skcalib import Whitening
from skcalib.metrics import spearman

X = np.random.default_rng(0).normal(size=(20, 30))


@pytest.mark.parametrize(
    ("message", "work"),
    [
        ("fewer than 5 samples", lambda: Whitening().fit(X)),
        ("fewer than 5 samples", lambda: Whitening().partial_fit(X).transform(X)),
        (
            "There are fewer than 5 samples",
            lambda: make_pipeline(FunctionTransformer(), Whitening()).fit(X),
        ),
        (
            "There are fewer than 5 samples",
            lambda: cross_val_score(Whitening(), X, scoring=lambda *_: 0.0),
        ),
        ("constant", lambda: spearman([1, 1], [1, 2])),
    ],
)
def test_warnings_point_at_the_users_line(message, work):
    with pytest.warns(match=message) as seen:
        work()
    line = inspect.getsourcelines(work)[1]
    assert {(w.filename, w.lineno) for w in seen} == {(__file__, line)}
