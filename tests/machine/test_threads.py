"""Limits on BLAS's threads: in force while they should be, nobody else's business after."""

import threading

import numpy as np
import pytest
from threadpoolctl import ThreadpoolController, threadpool_limits

from skcalib import Whitening
from skcalib._machine.threads import in_threads

BLAS = ThreadpoolController().select(user_api="blas")
pytestmark = pytest.mark.skipif(
    not BLAS.lib_controllers, reason="no BLAS here that threadpoolctl can limit"
)


def n_threads():
    return {lib.num_threads for lib in BLAS.lib_controllers}


@pytest.fixture(autouse=True)
def two_threads():
    """Two threads, on a machine with one core as well, and nobody in control of them."""
    with threadpool_limits(2, user_api="blas"):
        pass_on_control()
        yield
        assert n_threads() == {2}


def pass_on_control():
    for lib in BLAS.lib_controllers:
        if hasattr(lib, "clear_controlling_thread"):
            lib.clear_controlling_thread(force=True)


def in_another_thread(function):
    """Call in a thread that lives on; return what ends it."""
    called, ended = threading.Event(), threading.Event()

    def run():
        function()
        called.set()
        ended.wait(60)

    thread = threading.Thread(target=run)
    thread.start()
    assert called.wait(60)

    def end():
        ended.set()
        thread.join()

    return end


def test_a_limit_holds_meanwhile_and_is_lifted():
    assert in_threads([n_threads]) == [{1}]
    assert n_threads() == {2}
    with pytest.raises(ZeroDivisionError):
        in_threads([lambda: 1 / 0])
    assert n_threads() == {2}


def test_a_limit_holds_whichever_threads_there_were_before():
    ends = []
    for _ in range(3):
        ends.append(in_another_thread(lambda: in_threads([n_threads])))
        assert in_threads([lambda: in_threads([n_threads])] * 3) == [[{1}]] * 3
        assert in_threads([n_threads]) == [{1}]
        assert n_threads() == {2}
    for end in ends:
        end()


@pytest.mark.parametrize("first_ends_first", [True, False])
def test_the_last_of_two_calls_lifts_the_limit(first_ends_first):
    ends = [threading.Event(), threading.Event()]
    begun = [threading.Event(), threading.Event()]
    over = [threading.Event(), threading.Event()]
    gone = threading.Event()

    def work(i):
        def limited():
            begun[i].set()
            assert ends[i].wait(60)

        in_threads([limited])
        over[i].set()
        assert gone.wait(60)  # a thread that is alive might keep control

    threads = [threading.Thread(target=work, args=(i,)) for i in range(2)]
    for i, thread in enumerate(threads):
        thread.start()
        assert begun[i].wait(60)
    order = (0, 1) if first_ends_first else (1, 0)
    ends[order[0]].set()
    assert over[order[0]].wait(60)
    assert n_threads() == {1}
    ends[order[1]].set()
    assert over[order[1]].wait(60)
    assert n_threads() == {2}
    gone.set()
    for thread in threads:
        thread.join()


def test_the_users_own_limits_work_before_around_and_after():
    X = np.random.default_rng(0).normal(size=(100, 8))
    Whitening().fit(X)
    with threadpool_limits(1, user_api="blas"):
        assert n_threads() == {1}
        Whitening().fit(X)
        assert n_threads() == {1}
    assert n_threads() == {2}
    with threadpool_limits(3, user_api="blas"):
        assert n_threads() == {3}
        assert in_threads([n_threads]) == [{1}]
        assert n_threads() == {3}
    assert n_threads() == {2}


def test_a_limit_of_another_thread_is_not_lifted():
    end = in_another_thread(lambda: threadpool_limits(1, user_api="blas"))
    try:
        in_threads([n_threads], 2)
        assert n_threads() == {1}
    finally:
        end()
        pass_on_control()
        threadpool_limits(2, user_api="blas")
        pass_on_control()


def test_a_limit_of_another_thread_that_ends_meanwhile_does_not_come_back():
    limited, enough = threading.Event(), threading.Event()

    def limit_for_a_while():
        with threadpool_limits(1, user_api="blas"):
            limited.set()
            assert enough.wait(60)

    thread = threading.Thread(target=limit_for_a_while)
    thread.start()
    assert limited.wait(60)

    def end():
        enough.set()
        thread.join()

    in_threads([end])
    assert n_threads() == {2}
