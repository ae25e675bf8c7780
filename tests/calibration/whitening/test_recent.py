"""The last few fits in memory: one decomposition for a grid, and never another sample's."""

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy import linalg
from sklearn.model_selection import GridSearchCV

from skcalib import Whitening, clear_caches


@pytest.fixture
def X():
    return np.random.default_rng(0).normal(size=(80, 6)).astype(np.float32) + 3


@pytest.fixture(autouse=True)
def decompositions(monkeypatch):
    """Start with nothing in memory, and count decompositions."""
    calls = []

    def counted(covariance, **options):
        calls.append(len(covariance))
        return original(covariance, **options)

    original = linalg.eigh
    monkeypatch.setattr(linalg, "eigh", counted)
    clear_caches()
    return calls


def test_grid_costs_one_decomposition_per_training_set(X, decompositions):
    grid = {"n_components": [2, 3, None], "power": [0.5, 1.0], "noise": [0.0, 0.5, "auto"]}
    score = lambda whitening, X, y=None: -np.abs(whitening.transform(X)).max()  # noqa: E731
    GridSearchCV(Whitening(), grid, cv=3, scoring=score, refit=False).fit(X)
    assert len(decompositions) == 3


def test_a_recalled_fit_is_the_computed_one_and_goes_on_from_there(X, decompositions):
    first, second = (Whitening(3, noise="auto").fit(X) for _ in range(2))
    assert len(decompositions) == 1
    expected = first.transform(X)
    assert_array_equal(second.transform(X), expected)
    fresh = Whitening(3, noise="auto").partial_fit(X).partial_fit(X + 1)
    assert_allclose(second.partial_fit(X + 1).transform(X), fresh.transform(X), rtol=1e-5)
    assert_array_equal(first.transform(X), expected)


def test_other_data_dtype_and_shape_are_other_samples(X, decompositions):
    for sample in (X, X.astype(float), X[::-1], X.reshape(160, 3), X[:-1]):
        Whitening().fit(sample)
    assert len(decompositions) == 5
    Whitening().fit(np.asfortranarray(X))
    assert len(decompositions) == 5


@pytest.mark.filterwarnings("ignore:There are fewer than 5 samples:UserWarning")
def test_the_oldest_fits_go_first_and_bytes_are_bounded(monkeypatch):
    calls = []

    def diagonal(covariance, **options):
        calls.append(len(covariance))
        return np.arange(1.0, 1.0 + len(covariance)), np.eye(len(covariance))

    monkeypatch.setattr(linalg, "eigh", diagonal)
    X = np.random.default_rng(0).normal(size=(4, 2048))  # two fits of this width are kept
    for scale in (1, 2, 1, 3, 1, 2):
        Whitening(2).fit(X * scale)
    assert len(calls) == 4  # 1, 2, 3, and 2 again


def test_what_fails_is_not_kept(X):
    for bad, message in ((X * np.nan, "NaN"), (X * 0, "All 80 samples are equal")):
        for _ in range(2):
            with pytest.raises(ValueError, match=message):
                Whitening().fit(bad)
