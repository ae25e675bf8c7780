"""What an estimator would ignore as ``y`` is refused, or it warns."""

import numpy as np
import pandas as pd
import polars as pl
import pytest
from scipy.sparse import csr_array

from skcalib import SearchEncoder, SimilarityScale

X = np.random.default_rng(0).normal(size=(200, 16))
OTHER = X[:60] + 0.01
TEXTS = [f"text {n}" for n in range(200)]


@pytest.mark.parametrize(
    "given",
    [
        OTHER,
        OTHER.tolist(),
        pd.DataFrame(OTHER),
        csr_array(OTHER),
        TEXTS,
        np.array(TEXTS),
        pl.Series(TEXTS),
        pd.DataFrame({"text": TEXTS}),
    ],
    ids=lambda given: f"{type(given).__name__}-{getattr(given, 'ndim', '')}",
)
@pytest.mark.parametrize(
    ("estimator", "advice"),
    [
        (SearchEncoder(), "queries=past_queries"),
        (SimilarityScale(), "unanswerable=queries"),
    ],
)
def test_texts_and_vectors_as_y_are_refused(estimator, advice, given):
    with pytest.raises(
        TypeError, match=f"fit got texts or vectors as y, which it ignores.*{advice}"
    ):
        estimator.fit(X, given)
    assert not [name for name in vars(estimator) if name.endswith("_")]


def test_numbers_as_y_are_ignored():
    labels = np.arange(200) % 3
    expected = SimilarityScale().fit(X).threshold(0.01)
    for given in (labels, labels.tolist(), pd.Series(labels), labels + 0.5):
        assert SimilarityScale().fit(X, given).threshold(0.01) == expected
