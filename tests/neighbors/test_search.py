"""Neighborhood similarity, by the same exact search as that of `NeighborSmoothing`."""

import numpy as np
import pytest
from numpy.testing import assert_allclose
from sklearn.preprocessing import normalize

from skcalib import SimilarityScale


@pytest.mark.parametrize("k", [1, 5, 50, 599])
@pytest.mark.parametrize("kind", ["normal", "signs"])
def test_neighbor_similarity_leaves_the_text_itself_out_and_counts_new_texts_alike(k, kind):
    """Of signs all squares round alike, so that products in float32 miss 1."""
    X = np.random.default_rng(0).normal(size=(1000, 384))
    X = X if kind == "normal" else np.sign(X) * (abs(X) > 1)
    unit = normalize(X)
    cosines = unit @ unit[:600].T
    cosines[np.arange(600), np.arange(600)] = -np.inf
    expected = -np.sort(-cosines, axis=1)[:, :k].mean(axis=1)
    found = SimilarityScale(n_neighbors=k).fit(X[:600]).neighbor_similarity(X)
    assert_allclose(found, expected, atol=2e-6)
