"""Jobs in threads of their own, and limits on BLAS's threads.

Passes over a tall array alternate matrix products with element-wise work that NumPy runs on
one core, so BLAS's own threads idle through much of it, and on a machine that shares its
cores they wait for each other. One thread for each range of rows keeps every core busy.

Python raises Ctrl-C in the main thread, between any two steps of it, and a limit on BLAS's
threads must not be left halfway. So jobs run in other threads, and the main thread only waits
for them on a lock. It does not use `concurrent.futures` either: the conditions in it are
written in Python, and an interrupt inside one leaves a lock taken for good (a main thread that
polled its futures hung within 1,000 interrupts). A lock is written in C, and an interrupt finds
it either taken or free.
"""

from __future__ import annotations

import _thread
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import cache, partial
from typing import Any, TypeVar

import numpy as np
from threadpoolctl import ThreadpoolController

from skcalib._machine.forks import fork_lock

__all__ = ["in_threads", "map_row_ranges", "uninterrupted"]

# Memory that the threads of one call may take together. If it allows fewer threads than
# cores, each thread's BLAS uses a share of the cores.
WORKING_BYTES = 56 * 2**20
# With fewer rows each, our threads cost more than they bring beside those of BLAS.
ROWS_PER_THREAD = 16384
# Seconds after which a waiting thread looks for interrupts.
POLL = 0.1

Result = TypeVar("Result")

_lock = fork_lock()
_n_limited = 0  # blocks inside `_blas_limit` now
_to_restore: list[int] | None = None  # None if the limit in force changed nothing


@cache
def _libraries() -> list[Any]:
    return ThreadpoolController().select(user_api="blas").lib_controllers


def _blas_threads() -> list[int]:
    """Threads that each BLAS would use for one product now."""
    return [library.num_threads for library in _libraries()]


def _set_blas_threads(numbers: Sequence[int]) -> None:
    for library, number in zip(_libraries(), numbers, strict=True):
        library.set_num_threads(number)
    _give_up_control()


def _give_up_control() -> None:
    """Let any thread limit BLAS again if this one controls it.

    From threadpoolctl 3.8 on, the first thread that sets a limit controls OpenBLAS for as
    long as it is alive, and limits that other threads set are silently ignored.
    """
    for library in _libraries():
        if hasattr(library, "clear_controlling_thread"):
            library.clear_controlling_thread()


@contextmanager
def _blas_limit(n_threads: int) -> Iterator[None]:
    """Limit the threads of BLAS. Not for the main thread, where an interrupt could break in.

    The limit is the process's. Of several blocks that overlap, the first sets the limit and
    the last lifts it: if each restored what it found, one would restore another's limit. A
    limit that another thread has set through threadpoolctl stays.
    """
    global _n_limited, _to_restore
    with _lock:
        if _n_limited == 0:
            found = _blas_threads()
            _set_blas_threads([n_threads] * len(found))
            _to_restore = None if _blas_threads() == found else found
        _n_limited += 1
    try:
        yield
    finally:
        with _lock:
            _n_limited -= 1
            if _n_limited == 0 and _to_restore is not None:
                _set_blas_threads(_to_restore)


def in_threads(
    jobs: Sequence[Callable[[], Result]],
    n_threads: int = 1,
    stop: threading.Event | None = None,
) -> list[Result]:
    """Results of the jobs, run at the same time with BLAS limited to ``n_threads`` in each.

    Each job has a thread of its own; a single one may run in the calling thread, unless that
    is the main thread. An interrupt sets ``stop``. It is raised when all jobs have ended, as is
    a job's error.
    """
    _give_up_control()  # the calling thread has it inside `threadpool_limits`
    errors = np.geterr()

    def run(job: Callable[[], Result]) -> Result:
        with np.errstate(**errors):
            return job()

    def run_all() -> list[Result]:
        with _blas_limit(n_threads):
            if len(jobs) == 1:  # a second thread would take longer than a small job
                return [run(jobs[0])]
            with ThreadPoolExecutor(len(jobs)) as executor:
                return list(executor.map(run, jobs))

    return uninterrupted(run_all, stop)


def uninterrupted(job: Callable[[], Result], stop: threading.Event | None = None) -> Result:
    """Run a job where no interrupt is raised, and return its result.

    An interrupt sets ``stop`` and is raised when the job has ended, or keeps it from beginning.
    """
    if threading.current_thread() is not threading.main_thread():
        return job()
    right_to_run, running = threading.Lock(), threading.Lock()
    running.acquire()
    outcome: list[tuple[Any, BaseException | None]] = []

    def run() -> None:
        if right_to_run.acquire(blocking=False):
            try:
                outcome.append((job(), None))
            except BaseException as error:
                outcome.append((None, error))
            finally:
                running.release()

    def wait() -> None:
        # A wait without a timeout would miss an interrupt that comes just before it, and on
        # Windows every interrupt.
        while not outcome:
            running.acquire(timeout=POLL)

    try:
        _thread.start_new_thread(run, ())
        wait()
    finally:
        if stop is not None:
            stop.set()
        # An interrupt may have come before the thread began to run: then it must not begin.
        if not right_to_run.acquire(blocking=False):
            wait()
    value, error = outcome[0]
    if error is not None:
        raise error
    return value


def map_row_ranges(
    job: Callable[[Iterator[slice]], Result],
    n_rows: int,
    step: int,
    *,
    working_bytes: int,
    rows_per_thread: int = ROWS_PER_THREAD,
) -> list[Result]:
    """Results of ``job`` on consecutive ranges that cover ``n_rows``, one per thread.

    Each call of ``job`` gets the chunks of one range, slices of at most ``step`` rows, and
    needs ``working_bytes`` of memory. It asks for a chunk when it has finished the one before;
    after an interrupt it gets no more. The split depends on the number of threads that BLAS
    would use, and on nothing else, so the same call gives the same bits.
    """
    threads = max(_blas_threads(), default=1)
    workers = min(threads, n_rows // rows_per_thread, WORKING_BYTES // working_bytes)
    stop = threading.Event()

    def chunks(begin: int, end: int) -> Iterator[slice]:
        for start in range(begin, end, step):
            if stop.is_set():
                return  # nobody wants the result any more
            yield slice(start, min(start + step, end))

    if workers <= 1:
        return [job(chunks(0, n_rows))]
    size = -(-n_rows // workers)
    begins = range(0, n_rows, size)
    jobs = [partial(job, chunks(begin, min(begin + size, n_rows))) for begin in begins]
    return in_threads(jobs, threads // workers, stop)
