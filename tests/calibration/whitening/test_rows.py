"""Rows of NumPy arrays: threads, and Ctrl-C in the midst of a fit."""

import os
import signal

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.covariance import ledoit_wolf_shrinkage, shrunk_covariance
from sklearn.exceptions import NotFittedError
from threadpoolctl import threadpool_limits

from skcalib import Whitening, clear_caches
from skcalib.calibration.moments import Moments
from skcalib.process import threads


@pytest.fixture(params=[1, 2], ids=["one thread", "two threads"])
def n_threads(request, monkeypatch):
    """Threads of a pass, whatever the machine has."""
    monkeypatch.setattr(threads, "ROWS_PER_THREAD", 2048)
    with threadpool_limits(request.param, user_api="blas"):
        yield request.param


@pytest.fixture
def X(tmp_path, monkeypatch):
    """A memory map of 10,000 rows in chunks of 64."""
    monkeypatch.setattr("skcalib.calibration.moments.CHUNK_BYTES", 1)
    monkeypatch.setattr("skcalib.calibration.map.CHUNK_BYTES", 1)
    X = np.random.default_rng(0).normal(size=(10_000, 6)) + np.linspace(0, 30, 10_000)[:, None]
    np.save(tmp_path / "X.npy", X.astype(np.float32))
    return np.load(tmp_path / "X.npy", mmap_mode="r")


def test_threads_give_the_moments_and_the_map_of_one_pass(X, n_threads):
    counts = np.arange(10_000) % 3
    counts[:300] = 0  # whole chunks that do not count
    for weight in (None, counts):
        whitening = Whitening(shrinkage="auto").fit(X, sample_weight=weight)
        kept = X if weight is None else np.repeat(X, weight, axis=0)
        s, covariance = ledoit_wolf_shrinkage(kept.astype(float)), np.cov(kept, rowvar=False)
        assert_allclose(whitening.shrinkage_, s, rtol=1e-9)
        expected = shrunk_covariance(covariance, s)
        assert_allclose(whitening.get_covariance(), expected, rtol=1e-9, atol=1e-9)
    Z = np.concatenate([whitening.transform(X[i : i + 1000]) for i in range(0, 10_000, 1000)])
    assert_allclose(whitening.transform(X), Z, atol=1e-6)


@pytest.mark.skipif(os.name == "nt", reason="no signals to a process")
def test_ctrl_c_leaves_an_unfitted_estimator_that_can_be_fitted(X, n_threads, monkeypatch):
    def interrupting(*args, **kwargs):
        os.kill(os.getpid(), signal.SIGINT)
        return from_chunks(*args, **kwargs)

    clear_caches()
    whitening, from_chunks = Whitening().fit(X[:1000]), Moments.from_chunks
    # A process that was started in the background may ignore Ctrl-C.
    handler = signal.signal(signal.SIGINT, signal.default_int_handler)
    with monkeypatch.context() as patch:
        patch.setattr(Moments, "from_chunks", interrupting)
        with pytest.raises(KeyboardInterrupt):
            whitening.fit(X)
    signal.signal(signal.SIGINT, handler)
    with pytest.raises(NotFittedError):
        whitening.transform(X)
    assert_array_equal(whitening.fit(X).transform(X), Whitening().fit_transform(X))
