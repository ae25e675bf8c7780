"""Rows of NumPy arrays: threads, and Ctrl-C in the midst of a fit."""

import os
import signal

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy import linalg
from sklearn.covariance import ledoit_wolf_shrinkage
from sklearn.exceptions import NotFittedError
from threadpoolctl import threadpool_limits

from skcalib import Whitening, clear_caches

N = 40_000  # rows, enough for two threads


@pytest.fixture(params=[1, 2], ids=["one thread", "two threads"])
def n_threads(request):
    """Threads of a pass, whatever the machine has."""
    with threadpool_limits(request.param, user_api="blas"):
        yield request.param


@pytest.fixture
def X(tmp_path):
    """A memory map of several chunks, each with a mean of its own."""
    X = np.random.default_rng(0).normal(size=(N, 64)) + np.linspace(0, 30, N)[:, None]
    np.save(tmp_path / "X.npy", X.astype(np.float32))
    return np.load(tmp_path / "X.npy", mmap_mode="r")


def test_threads_give_the_moments_and_the_map_of_one_pass(X, n_threads):
    clear_caches()
    whitening = Whitening(shrinkage="auto").fit(X)
    exact = np.asarray(X, np.float64)
    assert_allclose(whitening.shrinkage_, ledoit_wolf_shrinkage(exact), rtol=1e-9)
    covariance = whitening.moments_.covariance()
    assert_allclose(covariance, np.cov(exact, rowvar=False), rtol=1e-9, atol=1e-9)
    Z = np.concatenate([whitening.transform(rows) for rows in np.array_split(X, 40)])
    assert_allclose(whitening.transform(X), Z, atol=1e-6)


@pytest.mark.skipif(os.name == "nt", reason="no signals to a process")
def test_ctrl_c_leaves_an_unfitted_estimator_that_can_be_fitted(X, n_threads, monkeypatch):
    def interrupting(*args, **kwargs):
        os.kill(os.getpid(), signal.SIGINT)
        return eigh(*args, **kwargs)

    clear_caches()
    whitening, eigh = Whitening().fit(X[:1000]), linalg.eigh
    # A process that was started in the background may ignore Ctrl-C.
    handler = signal.signal(signal.SIGINT, signal.default_int_handler)
    with monkeypatch.context() as patch:
        patch.setattr(linalg, "eigh", interrupting)
        with pytest.raises(KeyboardInterrupt):
            whitening.fit(X)
    signal.signal(signal.SIGINT, handler)
    with pytest.raises(NotFittedError):
        whitening.transform(X)
    assert_array_equal(whitening.fit(X).transform(X), Whitening().fit_transform(X))
