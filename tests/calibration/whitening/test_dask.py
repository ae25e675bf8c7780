"""Whitening of dask arrays; tests/process/test_dask.py has one on a worker that dies."""

import numpy as np
import pytest
from numpy.testing import assert_allclose

from skcalib import Whitening
from skcalib.monitoring import mahalanobis, shift

dask = pytest.importorskip("dask")
da = pytest.importorskip("dask.array")


@pytest.fixture
def X():
    rng = np.random.default_rng(0)
    return (rng.normal(size=(1000, 8)) @ rng.normal(size=(8, 8)) + 30).astype(np.float32)


@pytest.fixture
def lazy(X):
    return da.from_array(X, chunks=(90, 3))


@pytest.mark.parametrize(("noise", "k"), [(0.0, None), ("auto", None), ("auto", 4)])
def test_fit_and_transform_equal_those_of_numpy(X, lazy, noise, k):
    ours, reference = (Whitening(5, noise=noise, n_groups=k).fit(data) for data in (lazy, X))
    assert ours.n_samples_seen_ == 1000
    assert_allclose(ours.get_covariance(), reference.get_covariance(), rtol=1e-10)
    Z = ours.transform(lazy)
    assert isinstance(Z, da.Array)
    assert (Z.shape, Z.dtype) == ((1000, 5), np.float32)
    assert_allclose(Z.compute(), reference.transform(X), atol=1e-5)
    assert_allclose(mahalanobis(ours, lazy).compute(), mahalanobis(reference, X), rtol=1e-4)
    assert shift(ours, lazy + 0.1, lazy).p_value == shift(reference, X + 0.1, X).p_value
    back = ours.inverse_transform(Z)
    assert isinstance(back, da.Array)
    assert_allclose(back.compute(), reference.inverse_transform(reference.transform(X)), 1e-5)


def test_no_task_holds_more_than_a_block(lazy):
    seen = []

    def look(block):
        seen.append(len(block))
        return block

    Whitening().fit(lazy.rechunk({1: -1}).map_blocks(look, dtype=lazy.dtype, meta=lazy._meta))
    assert max(seen) <= 90
    assert len(seen) == 12  # and each is computed once


def test_unknown_and_empty_blocks(X, lazy):
    some = lazy.rechunk({1: -1})[lazy[:, 0].rechunk(90) > 31]
    assert np.isnan(some.shape[0])
    kept = X[X[:, 0] > 31]
    whitening = Whitening().fit(some)
    assert whitening.n_samples_seen_ == len(kept)
    assert_allclose(whitening.transform(some).compute(), Whitening().fit_transform(kept), 1e-3)
    sparse = lazy.rechunk((100, -1))[da.from_array(np.arange(1000) < 150, chunks=100)]
    assert Whitening().fit(sparse).n_samples_seen_ == 150


def test_weights(X, lazy):
    weight = np.random.default_rng(0).integers(0, 3, size=1000).astype(float)
    expected = Whitening().fit(X, sample_weight=weight).get_covariance()
    for w in (weight, da.from_array(weight, chunks=77)):
        ours = Whitening().fit(lazy, sample_weight=w).get_covariance()
        assert_allclose(ours, expected, rtol=1e-10)
    with pytest.raises(ValueError, match="Negative values in data passed to `sample_weight`"):
        Whitening().fit(lazy, sample_weight=weight - 1)


def test_partial_fit_and_integers(X):
    whole = (X * 10).astype(int)
    whitening = Whitening()
    for part in np.split(whole, 4):
        whitening.partial_fit(da.from_array(part, chunks=(50, 8)))
    assert_allclose(
        whitening.transform(da.from_array(whole, chunks=(300, 8))).compute(),
        Whitening().fit_transform(whole),
        atol=1e-10,
    )


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (lambda X: X[:, 0], r"dask Array of shape \(1000,\); expected a dask array"),
        (lambda X: da.where(X == X[3, 3], np.nan, X), "X contains NaN"),
        (lambda X: X[:1], "n_samples=1; a covariance needs at least 2"),
        (lambda X: X[:, :4], "n_components=5 exceeds n_features=4"),
        (lambda X: dask.delayed(1), "Got a dask Delayed.*; expected a dask array"),
    ],
)
def test_bad_input_is_named(lazy, spoil, message):
    with pytest.raises(ValueError, match=message):
        Whitening(5).fit(spoil(lazy))


def test_transform_names_what_is_not_finite_and_another_width(X, lazy):
    whitening = Whitening().fit(lazy)
    with pytest.raises(ValueError, match="expecting 8 features"):
        whitening.transform(lazy[:, :5])
    with pytest.raises(ValueError, match=r"X has 5 columns.*n_components_=8"):
        whitening.inverse_transform(lazy[:, :5])
    with pytest.raises(ValueError, match="NaN"):
        whitening.transform(da.where(lazy > 30, np.nan, lazy)).compute()


def test_dask_ml_wrappers(X, lazy):
    wrappers = pytest.importorskip("dask_ml.wrappers", exc_type=ImportError)
    whole = Whitening().fit(X)
    lazy = lazy.rechunk((100, -1))
    y = da.zeros(1000, chunks=100)
    incremental = wrappers.Incremental(Whitening(), scoring="r2").fit(lazy, y)
    assert_allclose(incremental.estimator_.get_covariance(), whole.get_covariance(), rtol=1e-10)
    parallel = wrappers.ParallelPostFit(whole).transform(lazy)
    assert isinstance(parallel, da.Array)
    assert_allclose(parallel.compute(), whole.transform(X), atol=1e-5)
