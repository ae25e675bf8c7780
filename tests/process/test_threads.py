"""Passes in threads, and limits on BLAS's: in force meanwhile, nobody else's business after."""

import os
import signal
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import numpy as np
import pytest
from threadpoolctl import ThreadpoolController, threadpool_limits

from skcalib.process import threads

BLAS = ThreadpoolController().select(user_api="blas").lib_controllers
pytestmark = pytest.mark.skipif(not BLAS, reason="no BLAS that threadpoolctl can limit")
pass_over = partial(threads.map_row_ranges, n_rows=10**6, step=10, working_bytes=1)


def n_threads(*_):
    return {library.num_threads for library in BLAS}


def limited(n, function, limit=threadpool_limits):
    with limit(n):
        return function(), n_threads()


@pytest.mark.parametrize("n", [1, 2, 3])
def test_ranges_run_at_the_same_time_and_cover_all_rows(n):
    def job(chunks):
        together.wait(60)
        assert n_threads() == {1}
        return np.concatenate([np.r_[chunk] for chunk in chunks])

    together = threading.Barrier(n)
    found, after = limited(n, lambda: pass_over(job, n_rows=50_003))
    np.testing.assert_array_equal(np.concatenate(found), range(50_003))
    assert (len(found), after) == (n, {n})


def test_limits_of_users_and_of_other_threads_hold_and_are_lifted():
    before = n_threads()
    with ThreadPoolExecutor(4) as executor:
        for n in (3, 4, 5):
            assert limited(n, lambda: pass_over(n_threads)) == ([{1}] * n, {n})
            assert executor.submit(limited, n, n_threads).result() == ({n}, {n})
        jobs = [executor.submit(limited, 1, n_threads, threads.limit_blas) for _ in range(20)]
        assert all(job.result() == ({1}, {1}) for job in jobs)
    assert n_threads() == before


@pytest.mark.skipif(os.name == "nt", reason="no signals to a process")
def test_ctrl_c_ends_a_pass_after_its_running_chunks():
    def job(chunks):
        for chunk in chunks:
            done.append(chunk)
            if chunk.start == 50:
                os.kill(os.getpid(), signal.SIGINT)
                time.sleep(1)

    done = []
    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # may be ignored
    with pytest.raises(KeyboardInterrupt):
        limited(2, lambda: pass_over(job))
    signal.signal(signal.SIGINT, before)
    assert len(done) < 10**5


def test_limits_of_torch_that_overlap_end_with_the_number_of_before():
    torch = pytest.importorskip("torch")
    before, first_in, second_in = torch.get_num_threads(), threading.Event(), threading.Event()

    def first():
        with threads.one_torch_thread():
            first_in.set()
            assert second_in.wait(60)

    def second(other):
        assert first_in.wait(60)
        with threads.one_torch_thread():
            second_in.set()
            other.result()  # ends first
            assert torch.get_num_threads() == 1
        return torch.get_num_threads()

    torch.set_num_threads(3)
    try:
        with ThreadPoolExecutor(2) as executor:
            assert executor.submit(second, executor.submit(first)).result() == 3
            again = [executor.submit(torch.get_num_threads) for _ in range(2)]
            assert [number.result() for number in again] == [3, 3]
    finally:
        torch.set_num_threads(before)
