"""NormalizingFlow on dask arrays: trained from disk, applied block by block."""

import glob
import tempfile

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from skcalib import NormalizingFlow

dask = pytest.importorskip("dask")
da = pytest.importorskip("dask.array")


@pytest.fixture
def X():
    rng = np.random.default_rng(0)
    return (rng.normal(size=(500, 6)) @ rng.normal(size=(6, 6)) + 3).astype(np.float32)


@pytest.fixture
def lazy(X):
    return da.from_array(X, chunks=(45, 4))


def test_training_equals_that_on_the_array_itself(X, lazy):
    settings = {"max_epochs": 2, "validation_fraction": 0.1, "random_state": 0}
    ours, expected = NormalizingFlow(**settings).fit(lazy), NormalizingFlow(**settings).fit(X)
    assert ours.loss_curve_ == expected.loss_curve_
    assert_array_equal(ours.transform(X), expected.transform(X))
    ours.partial_fit(lazy[:100])
    assert_array_equal(ours.transform(X), expected.partial_fit(X[:100]).transform(X))


def test_each_block_is_computed_once_whatever_the_epochs(lazy, monkeypatch, tmp_path):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    seen = []

    def look(block):
        seen.append(len(block))
        return block

    rows = lazy.rechunk({1: -1}).map_blocks(look, dtype=lazy.dtype, meta=lazy._meta)
    NormalizingFlow(device="cpu", max_epochs=3).fit(rows)
    assert sorted(seen) == [5, *[45] * 11]
    assert glob.glob(f"{tmp_path}/*") == []  # nothing stays behind


def test_results_are_lazy_and_right(X, lazy):
    flow = NormalizingFlow(device="cpu", random_state=0).fit(X)
    Z, density = flow.transform(lazy), flow.score_samples(lazy)
    assert (type(Z), Z.shape, Z.dtype) == (da.Array, X.shape, np.float32)
    assert (type(density), density.shape) == (da.Array, (500,))
    assert_allclose(Z.compute(), flow.transform(X), atol=1e-5)
    assert_allclose(flow.inverse_transform(Z).compute(), X, atol=1e-4)
    assert_allclose(density.compute(), flow.score_samples(X), rtol=1e-4)
    assert_allclose(flow.score(lazy), flow.score(X), rtol=1e-5)


def test_unknown_and_empty_blocks_and_integers(X, lazy):
    some = lazy.rechunk({1: -1})[lazy[:, 0].rechunk(45) > 3]
    kept = X[X[:, 0] > 3]
    ours = NormalizingFlow(device="cpu", random_state=0).fit(some)
    expected = NormalizingFlow(device="cpu", random_state=0).fit(kept)
    assert_array_equal(ours.transform(kept), expected.transform(kept))
    assert_allclose(ours.transform(some).compute(), ours.transform(kept), atol=1e-5)
    whole = (X * 10).astype(int)
    ours = NormalizingFlow(device="cpu", random_state=0).fit(da.from_array(whole, chunks=100))
    expected = NormalizingFlow(device="cpu", random_state=0).fit(whole)
    assert_array_equal(ours.transform(whole), expected.transform(whole))


@pytest.mark.parametrize("method", ["transform", "inverse_transform", "score_samples"])
def test_a_block_may_turn_out_empty(X, method):
    apply = getattr(NormalizingFlow(device="cpu", random_state=0).fit(X), method)
    lazy = da.from_array(X, chunks=(100, 6))
    kept = lazy[da.arange(500, chunks=100) >= 250]  # two blocks are empty, which no one knows
    result = apply(kept)
    assert result.dtype == np.float32
    assert_allclose(result.compute(), apply(X[250:]), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("method", ["transform", "inverse_transform", "score_samples"])
def test_a_lazy_result_is_that_of_the_flow_it_was_asked_of(X, lazy, method):
    flow = NormalizingFlow(device="cpu", random_state=0).fit(X)
    expected, result = getattr(flow, method)(X), getattr(flow, method)(lazy)
    flow.set_params(depth=1).fit(3 * X + 1)
    assert_allclose(result.compute(), expected, rtol=1e-4, atol=1e-5)


def test_bad_input_is_refused_and_nothing_is_lost(X, lazy):
    flow = NormalizingFlow(device="cpu", random_state=0).fit(X)
    before = flow.transform(X)
    with pytest.raises(ValueError, match="contains NaN"):
        flow.fit(da.from_array(np.full((50, 6), np.nan), chunks=(20, 6)))
    with pytest.raises(ValueError, match=r"0 sample\(s\)"):
        flow.fit(lazy[:0])
    with pytest.raises(ValueError, match="Convert a frame by to_dask_array"):
        flow.fit(lazy[0])
    with pytest.raises(ValueError, match="expecting 6 features"):
        flow.transform(lazy[:, :5])
    assert_array_equal(flow.transform(X), before)
