"""Work on ranges of rows in threads, each with single-threaded BLAS.

Passes over a tall array alternate matrix products with element-wise work that NumPy runs on
one core, so BLAS's own threads idle through much of it, and on a machine that shares its
cores they wait for each other. One thread for each range of rows keeps every core at both.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import cache, partial
from typing import Any, TypeVar

from threadpoolctl import ThreadpoolController

from skcalib._forks import fork_lock
from skcalib._interrupts import Call, unbroken

__all__ = [
    "blas_threads",
    "chunk_rows",
    "in_threads",
    "map_row_ranges",
    "row_chunks",
    "with_blas_threads",
]

# A working copy of one chunk: long enough for BLAS to run at full speed, short enough to
# stay within the last-level cache and never to matter in memory.
CHUNK_BYTES = 8 * 2**20
# What the threads of one call may take together. With fewer threads than cores for that
# reason, each leaves its BLAS a share of them.
WORKING_BYTES = 56 * 2**20
# With fewer rows each, threads cost more than they bring beside those of BLAS.
ROWS_PER_THREAD = 16384

Result = TypeVar("Result")

_lock = fork_lock()
_limit: Any = None
_n_limited = 0


@cache
def _controller() -> ThreadpoolController:
    return ThreadpoolController().select(user_api="blas")


def blas_threads() -> int:
    """Threads that BLAS would use for one product now."""
    return max((lib.num_threads for lib in _controller().lib_controllers), default=1)


def with_blas_threads(
    n_threads: int, function: Callable[..., Result], *arguments: Any
) -> Result:
    """Return ``function(*arguments)``, for which BLAS is limited to ``n_threads``.

    The last of several concurrent calls lifts the limit. An interrupt waits for the end. Where
    another thread has limited BLAS, that limit stays.
    """
    with _lock:  # which a fork waits for
        _give_up_control()  # of the calling thread, as inside `threadpool_limits`
    return unbroken(_limited, n_threads, function, *arguments)


def _limited(n_threads, function, *arguments):
    # The limit is the process's. Were each call to restore what it found, two that overlap
    # would leave the other's limit behind for good.
    global _limit, _n_limited
    with _lock:
        if _n_limited == 0:
            _limit = _set_limit(n_threads)
        _n_limited += 1
    try:
        return function(*arguments)
    finally:
        with _lock:
            _n_limited -= 1
            if _n_limited == 0 and _limit is not None:
                # Of the thread that set it, which may be another one of ours.
                _give_up_control(force=True)
                _limit.restore_original_limits()
                _give_up_control()


def _set_limit(n_threads: int) -> Any:
    """Limit BLAS; return None if that changed nothing."""
    before = [lib.num_threads for lib in _controller().lib_controllers]
    limit = _controller().limit(limits=n_threads)
    if [lib.num_threads for lib in _controller().lib_controllers] != before:
        return limit
    _give_up_control()
    return None


def _give_up_control(*, force: bool = False) -> None:
    """Let any thread limit BLAS again.

    From threadpoolctl 3.8 on that is up to the first thread that does, for as long as it is
    alive, and what others ask for is passed over in silence.
    """
    for lib in _controller().lib_controllers:
        if hasattr(lib, "clear_controlling_thread"):
            lib.clear_controlling_thread(force=force)


def in_threads(jobs: Sequence[Callable[[], Result]]) -> list[Result]:
    """Results of the jobs, each run in a thread of its own. An interrupt waits for the end."""
    return unbroken(_in_threads, jobs)


def _in_threads(jobs):
    calls = []
    try:
        for job in jobs:
            calls.append(Call(job).start())
    finally:
        for call in calls:
            call.wait()
    return [call.result() for call in calls]


def chunk_rows(n_features: int, itemsize: int = 8, n_bytes: int = CHUNK_BYTES) -> int:
    """Rows of a working buffer of about ``n_bytes``."""
    return max(64, n_bytes // (itemsize * n_features))


def row_chunks(rows: slice, step: int) -> Iterator[slice]:
    """Slices of at most ``step`` rows that cover ``rows``."""
    for start in range(rows.start, rows.stop, step):
        yield slice(start, min(start + step, rows.stop))


def map_row_ranges(
    job: Callable[[slice], Result], n_rows: int, *, working_bytes: int
) -> list[Result]:
    """Results of ``job`` on consecutive ranges that cover ``n_rows``, one per thread.

    Parameters
    ----------
    job : callable
        Called with a slice of rows, in several threads at once.
    n_rows : int
    working_bytes : int
        Memory that one call of `job` needs.

    Returns
    -------
    results : list
        In the order of the rows. The split depends on the number of threads that BLAS
        would use, and on nothing else, so the same call gives the same bits.
    """
    threads = blas_threads()
    workers = min(threads, n_rows // ROWS_PER_THREAD, WORKING_BYTES // working_bytes)
    if workers <= 1:
        return [job(slice(0, n_rows))]
    step = -(-n_rows // workers)
    jobs = [partial(job, rows) for rows in row_chunks(slice(0, n_rows), step)]
    return with_blas_threads(threads // workers, in_threads, jobs)
