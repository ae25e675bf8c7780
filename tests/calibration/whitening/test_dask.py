"""Fits of dask arrays; tests/process/test_dask.py has one on a cluster whose worker dies."""

import numpy as np
import pytest
from numpy.testing import assert_allclose

from skcalib import Whitening

dask = pytest.importorskip("dask")
da = pytest.importorskip("dask.array")


@pytest.fixture
def X():
    rng = np.random.default_rng(0)
    return (rng.normal(size=(1000, 8)) @ rng.normal(size=(8, 8)) + 30).astype(np.float32)


@pytest.fixture
def lazy(X):
    return da.from_array(X, chunks=(90, 3))


@pytest.mark.parametrize(("power", "k"), [(1.0, None), ("auto", None), ("auto", 4)])
def test_a_fit_equals_that_of_numpy(X, lazy, power, k):
    ours, reference = (Whitening(5, power=power, n_groups=k).fit(data) for data in (lazy, X))
    assert ours.n_samples_seen_ == 1000
    covariances = (fitted.moments_.covariance() for fitted in (ours, reference))
    assert_allclose(*covariances, rtol=1e-10)
    assert_allclose(ours.transform(X), reference.transform(X), atol=1e-5)


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
    assert_allclose(whitening.transform(kept), Whitening().fit_transform(kept), 1e-3)
    sparse = lazy.rechunk((100, -1))[da.from_array(np.arange(1000) < 150, chunks=100)]
    assert Whitening().fit(sparse).n_samples_seen_ == 150


def test_partial_fit_and_integers(X):
    whole = (X * 10).astype(int)
    whitening = Whitening()
    for part in np.split(whole, 4):
        whitening.partial_fit(da.from_array(part, chunks=(50, 8)))
    assert_allclose(whitening.transform(whole), Whitening().fit_transform(whole), atol=1e-10)


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (lambda X: X[:, 0], r"dask Array; expected a dask array of shape \(n_samples"),
        (lambda X: da.where(X == X[3, 3], np.nan, X), "X contains NaN"),
        (lambda X: X[:1], "n_samples=1; a covariance needs at least 2"),
        (lambda X: X[:, :4], "n_components=5 exceeds n_features=4"),
        (lambda X: dask.delayed(1), "Got a dask Delayed.*; expected a dask array"),
    ],
)
def test_bad_input_is_named(lazy, spoil, message):
    with pytest.raises(ValueError, match=message):
        Whitening(5).fit(spoil(lazy))


def test_blocks_are_mapped(X, lazy):
    whitening, blocks = Whitening(5).fit(lazy), lazy.rechunk({1: -1})
    chunks = blocks.chunks[0], whitening.n_components_
    mapped = blocks.map_blocks(whitening.transform, dtype=X.dtype, chunks=chunks)
    assert mapped.shape == (1000, 5)
    assert_allclose(mapped.compute(), whitening.transform(X), atol=1e-5)
