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


@pytest.mark.parametrize("kind", ["floats", "integers", "unknown blocks"])
def test_training_equals_that_on_the_array_itself(X, lazy, kind):
    if kind == "integers":
        X = (X * 10).astype(int)
        lazy = da.from_array(X, chunks=100)
    elif kind == "unknown blocks":
        X, lazy = X[X[:, 0] > 3], lazy.rechunk({1: -1})[lazy[:, 0].rechunk(45) > 3]
    settings = {"max_epochs": 2, "validation_fraction": 0.1, "random_state": 0}
    ours, expected = NormalizingFlow(**settings).fit(lazy), NormalizingFlow(**settings).fit(X)
    assert ours.loss_curve_ == expected.loss_curve_
    assert_array_equal(ours.transform(X), expected.transform(X))
    transformed = ours.partial_fit(lazy).transform(X)
    assert_array_equal(transformed, expected.partial_fit(X).transform(X))


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


@pytest.mark.parametrize("method", ["transform", "inverse_transform", "score_samples"])
def test_a_block_may_turn_out_empty_and_the_flow_be_fitted_again(X, method):
    flow = NormalizingFlow(device="cpu", random_state=0).fit(X)
    lazy = da.from_array(X, chunks=(100, 6))
    kept = lazy[da.arange(500, chunks=100) >= 250]  # two blocks are empty, which no one knows
    expected, result = getattr(flow, method)(X[250:]), getattr(flow, method)(kept)
    assert result.dtype == np.float32
    flow.set_params(depth=1).fit(3 * X + 1)
    assert_allclose(result.compute(), expected, rtol=1e-4, atol=1e-5)


def test_bad_input_is_refused_and_nothing_is_lost(X, lazy):
    flow = NormalizingFlow(device="cpu", random_state=0).fit(X)
    before = flow.transform(X)
    with pytest.raises(ValueError, match="contains NaN"):
        flow.partial_fit(da.from_array(np.full((50, 6), np.nan), chunks=(20, 6)))
    with pytest.raises(ValueError, match=r"0 sample\(s\)"):
        flow.partial_fit(lazy[:0])
    with pytest.raises(ValueError, match="Convert a frame with to_dask_array"):
        flow.partial_fit(lazy[0])
    with pytest.raises(ValueError, match="expecting 6 features"):
        flow.transform(lazy[:, :5])
    assert_array_equal(flow.transform(X), before)
