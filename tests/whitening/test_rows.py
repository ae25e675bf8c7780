"""Rows of NumPy arrays: threads, and Ctrl-C in the midst of a pass."""

import os
import signal
import threading

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.exceptions import NotFittedError
from threadpoolctl import threadpool_info, threadpool_limits

from skcalib import Whitening
from skcalib._covariance.moments import Moments
from skcalib._machine import threads
from skcalib._whitening.rows import NumPyRows, rows_of


@pytest.fixture(params=[1, 2], ids=["one thread", "two threads"])
def n_threads(request, monkeypatch):
    """Threads of a pass, whatever the machine has."""
    monkeypatch.setattr(threads, "ROWS_PER_THREAD", 2048)
    with threadpool_limits(request.param, user_api="blas"):
        yield request.param


@pytest.fixture
def X(tmp_path, monkeypatch):
    """A memory map of 10,000 rows in chunks of 64."""
    monkeypatch.setattr("skcalib._covariance.moments.CHUNK_BYTES", 1)
    monkeypatch.setattr("skcalib._whitening.rows.MAP_BYTES", 1)
    rng = np.random.default_rng(0)
    np.save(tmp_path / "X.npy", (rng.normal(size=(10_000, 6)) + 3).astype(np.float32))
    return np.load(tmp_path / "X.npy", mmap_mode="r")


def test_threads_give_the_moments_and_the_map_of_one_pass(X, n_threads):
    weight = np.arange(10_000.0)
    for w in (None, weight):
        ours, expected = NumPyRows(X).moments(w), Moments.from_array(np.array(X), w)
        assert_allclose(ours.scatter, expected.scatter, rtol=1e-11, atol=1e-6)
        assert_allclose(ours.quartic, expected.quartic, rtol=1e-11)
    whitening = Whitening().fit(X)
    Z = np.concatenate([whitening.transform(X[i : i + 1000]) for i in range(0, 10_000, 1000)])
    assert_allclose(whitening.transform(X), Z, atol=1e-6)
    together = threading.Barrier(n_threads)

    def job(chunks):
        together.wait(60)
        return [chunk.stop - chunk.start for chunk in chunks]

    sizes = threads.map_row_ranges(job, 10_000, 64, working_bytes=1)
    assert len(sizes) == n_threads
    assert max(map(max, sizes)) == 64


def test_rows_are_neither_copied_nor_changed(X):
    assert np.shares_memory(rows_of(X).X, X)


@pytest.mark.skipif(os.name == "nt", reason="no signals to a thread")
@pytest.mark.parametrize("method", ["fit", "transform"])
def test_ctrl_c_ends_a_pass_over_a_memory_map_within_a_chunk(X, n_threads, method, monkeypatch):
    whitening = Whitening().fit(X[:1000])
    before = [library["num_threads"] for library in threadpool_info()]
    begun, stops, counting = [], [], threading.Lock()
    in_threads = threads.in_threads

    def noted(jobs, n_threads, stop):
        stops.append(stop)
        return in_threads(jobs, n_threads, stop)

    monkeypatch.setattr(threads, "in_threads", noted)
    name = "einsum" if method == "fit" else "matmul"
    original = getattr(np, name)

    def interrupting(*args, **kwargs):
        with counting:
            begun.append(args)
            twentieth = len(begun) == 20
        if twentieth:
            signal.pthread_kill(threading.main_thread().ident, signal.SIGINT)
        if len(begun) >= 20:  # here in a thread; in the main one it has been raised
            assert stops[0].wait(300)
        return original(*args, **kwargs)

    # A process that was started in the background may ignore Ctrl-C.
    handler = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        monkeypatch.setattr(np, name, interrupting)
        with pytest.raises(KeyboardInterrupt):
            getattr(whitening, method)(X)
    finally:
        signal.signal(signal.SIGINT, handler)
        monkeypatch.setattr(np, name, original)
    # The rest of a chunk in each thread.
    assert 20 <= len(begun) < 40 < 10_000 / 64
    assert [library["num_threads"] for library in threadpool_info()] == before
    if method == "fit":
        with pytest.raises(NotFittedError):
            whitening.transform(X)
        whitening.fit(X)
        assert_array_equal(whitening.transform(X), Whitening().fit_transform(X))
