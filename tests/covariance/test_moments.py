"""Moments against a float64 two-pass reference, and the exactness of merging."""

import numpy as np
import pytest
from numpy.testing import assert_allclose
from sklearn.covariance import ledoit_wolf_shrinkage as sklearn_ledoit_wolf

from skcalib._covariance.moments import GROUP, Moments, chunk_rows, ledoit_wolf_shrinkage


def reference(X):
    """Two passes in extended precision."""
    X = X.astype(np.longdouble)
    mean = X.mean(axis=0)
    centred = X - mean
    q = (centred**2).sum(axis=1)
    return Moments(len(X), mean, centred.T @ centred, q @ centred, float((q**2).sum()))


def assert_same(a, b, rtol):
    """Equal relative to the spread, not to the mean."""
    spread = np.sqrt(np.trace(b.scatter).astype(float) / b.n)
    trace = float(np.trace(b.scatter))
    assert a.n == b.n
    assert_allclose(a.mean.astype(float), b.mean.astype(float), rtol=1e-15, atol=rtol * spread)
    assert_allclose(a.scatter, b.scatter.astype(float), rtol=0, atol=rtol * trace)
    assert_allclose(a.cubic, b.cubic.astype(float), rtol=0, atol=rtol * trace * spread * 10)
    assert_allclose(a.quartic, b.quartic, rtol=rtol * 10)


@pytest.fixture
def X():
    rng = np.random.default_rng(0)
    return rng.standard_t(df=5, size=(400, 7)) @ rng.normal(size=(7, 7))


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("mean", [0.0, 1e3, 1e6])
def test_moments_equal_two_pass_reference(X, mean, dtype):
    X = (X + mean).astype(dtype)
    assert_same(Moments.from_array(X), reference(X), rtol=1e-12)


@pytest.mark.parametrize("n_chunks", [2, 2 * GROUP + 1])
def test_moments_of_several_chunks_equal_reference(monkeypatch, n_chunks):
    monkeypatch.setattr("skcalib._covariance.moments.CHUNK_BYTES", 2**18)
    d = 300
    n = n_chunks * chunk_rows(d) + 17
    # A trend: every chunk has a mean of its own, far from the others'.
    X = np.random.default_rng(0).normal(size=(n, d)) + np.linspace(0, 1e4, n)[:, None]
    moments = Moments.from_array(X)
    assert_allclose(moments.mean, X.mean(axis=0), rtol=1e-13)
    assert_allclose(moments.covariance(), np.cov(X, rowvar=False), rtol=1e-11)


@pytest.mark.parametrize("cuts", [[1], [200], [1, 2, 3], [399], [50, 150, 300]])
def test_merge_of_parts_equals_whole(X, cuts):
    X = X + 1e3
    first, *others = [Moments.from_array(part) for part in np.split(X, cuts)]
    for other in others:
        first = first.merge(other)
    assert_same(first, Moments.from_array(X), rtol=1e-12)


def test_merge_leaves_its_parts_as_they_were(X):
    a, b = Moments.from_array(X[:100]), Moments.from_array(X[100:])
    before = [array.copy() for array in (a.scatter, b.scatter, a.mean)]
    a.merge(b)
    for after, array in zip((a.scatter, b.scatter, a.mean), before, strict=True):
        assert_allclose(after, array, rtol=0)


@pytest.mark.parametrize("value", [0.1, 1e8 / 3, -7.7e-5])
def test_constant_columns_have_no_variance_at_all(value):
    X = np.full((10_001, 3), value)
    assert not Moments.from_array(X).scatter.any()
    assert not Moments.from_array(X[:1]).merge(Moments.from_array(X[1:])).scatter.any()


@pytest.mark.parametrize(("n", "d"), [(20, 50), (200, 50), (50, 1), (3000, 8)])
def test_ledoit_wolf_equals_scikit_learn(n, d):
    X = np.random.default_rng(n).normal(size=(n, d)) * np.linspace(1, 3, d) + 5
    ours = ledoit_wolf_shrinkage(Moments.from_array(X))
    assert_allclose(ours, sklearn_ledoit_wolf(X), rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("scale", [1e-3, 1e3])
def test_ledoit_wolf_does_not_depend_on_the_unit(X, scale):
    assert_allclose(
        ledoit_wolf_shrinkage(Moments.from_array(scale * X)), sklearn_ledoit_wolf(X), rtol=1e-9
    )


def test_ledoit_wolf_stays_between_nothing_and_all():
    noise = [np.random.default_rng(seed).normal(size=(200, 30)) for seed in range(20)]
    shrinkages = [ledoit_wolf_shrinkage(Moments.from_array(X)) for X in noise]
    assert max(shrinkages) == 1.0  # of the true covariance, the target itself
    assert min(shrinkages) > 0.9
    for X in (np.arange(9.0)[:, None], np.ones((5, 3))):  # the target already
        assert ledoit_wolf_shrinkage(Moments.from_array(X)) == 0.0


def test_input_is_neither_copied_nor_changed():
    X = np.random.default_rng(0).normal(size=(50, 4)).astype(np.float32)
    X.flags.writeable = False
    before = X.copy()
    Moments.from_array(X)
    assert (X == before).all()
