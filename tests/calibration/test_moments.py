"""Moments behind `Whitening`: a two-pass reference, the exactness of merging, Ledoit-Wolf."""

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.covariance import ledoit_wolf_shrinkage

from skcalib import Whitening

pytestmark = pytest.mark.filterwarnings("ignore:There are fewer than 5 samples:UserWarning")


def assert_same(whitening, X, rtol):
    """Equal to two passes in extended precision, relative to the spread, not to the mean."""
    X = X.astype(np.longdouble)
    centred = X - X.mean(axis=0)
    covariance = (centred.T @ centred / (len(X) - 1)).astype(float)
    trace = np.trace(covariance)
    mean, atol = X.mean(axis=0).astype(float), rtol * np.sqrt(trace)
    assert whitening.n_samples_seen_ == len(X)
    assert_allclose(whitening.mean_, mean, rtol=1e-15, atol=atol)
    centred = centred.astype(float)
    shrinkage = ledoit_wolf_shrinkage(centred, assume_centered=True)
    assert_allclose(whitening.shrinkage_, shrinkage, rtol=1e3 * rtol)
    found = whitening.moments_.covariance()
    assert_allclose(found, covariance, rtol=0, atol=1e3 * rtol * trace)


@pytest.fixture
def X():
    rng = np.random.default_rng(0)
    return rng.standard_t(df=5, size=(400, 7)) @ rng.normal(size=(7, 7))


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("mean", [0.0, 1e3, 1e6])
def test_moments_equal_two_pass_reference(X, mean, dtype):
    X = (X + mean).astype(dtype)
    assert_same(Whitening(shrinkage="auto").fit(X), X, rtol=1e-12)


def test_moments_of_several_chunks_equal_reference():
    d = 300
    n = 3 * 2**20 * 6 // (8 * d) // 2 + 17  # chunks are of 6 MB, the last is cut off
    # A trend: every chunk has a mean of its own, far from the others'.
    X = np.random.default_rng(0).normal(size=(n, d)) + np.linspace(0, 1e4, n)[:, None]
    whitening = Whitening().fit(X)
    assert_allclose(whitening.mean_, X.mean(axis=0), rtol=1e-13)
    assert_allclose(whitening.moments_.covariance(), np.cov(X, rowvar=False), rtol=1e-11)


@pytest.mark.parametrize("cuts", [[1], [200], [1, 2, 3], [399], [50, 150, 300]])
def test_merge_of_parts_equals_whole(X, cuts):
    X = X + 1e3
    first, *others = [
        Whitening(shrinkage="auto").partial_fit(part) for part in np.split(X, cuts)
    ]
    means = [other.mean_ for other in others]
    assert_same(first.merge(*others), X, rtol=1e-12)
    assert_array_equal([other.mean_ for other in others], means)


@pytest.mark.parametrize("value", [0.1, 1e8 / 3, -7.7e-5])
def test_constant_columns_have_no_variance_at_all(value):
    X = np.full((10_001, 3), value)
    X[:, 0] = np.arange(10_001)
    for whitening in (Whitening().fit(X), Whitening().partial_fit(X[:1]).partial_fit(X[1:])):
        assert not whitening.moments_.covariance()[1:].any()


@pytest.mark.parametrize(("n", "d"), [(20, 50), (200, 50), (50, 1), (3000, 8)])
@pytest.mark.parametrize("scale", [1e-3, 1.0, 1e3])
def test_ledoit_wolf_equals_scikit_learn_in_any_unit(n, d, scale):
    X = np.random.default_rng(n).normal(size=(n, d)) * np.linspace(1, 3, d) + 5
    ours = Whitening(shrinkage="auto").fit(scale * X).shrinkage_
    assert_allclose(ours, ledoit_wolf_shrinkage(X), rtol=1e-9, atol=1e-12)


def test_ledoit_wolf_stays_between_nothing_and_all():
    noise = [np.random.default_rng(seed).normal(size=(200, 30)) for seed in range(20)]
    shrinkages = [Whitening(shrinkage="auto").fit(X).shrinkage_ for X in noise]
    assert max(shrinkages) == 1.0  # of the true covariance, the target itself
    assert min(shrinkages) > 0.9
    column = np.arange(9.0)[:, None]  # the target already
    assert Whitening(shrinkage="auto").fit(column).shrinkage_ == 0.0
