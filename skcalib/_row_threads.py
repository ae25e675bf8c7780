"""Work on ranges of rows in threads, each with single-threaded BLAS.

Passes over a tall array alternate matrix products with element-wise work that NumPy runs on
one core, so BLAS's own threads idle through much of it, and on a machine that shares its
cores they wait for each other. One thread for each range of rows keeps every core at both.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from contextvars import copy_context
from functools import cache
from typing import Any, TypeVar

import numpy as np
from threadpoolctl import ThreadpoolController

from skcalib._forks import fork_lock

__all__ = [
    "blas_threads",
    "chunk_rows",
    "map_row_ranges",
    "row_chunks",
    "single_threaded_blas",
]

# A working copy of one chunk: long enough for BLAS to run at full speed, short enough to
# stay within the last-level cache and never to matter in memory.
CHUNK_BYTES = 8 * 2**20
# What the threads of one call may take together. With fewer threads than cores for that
# reason, each leaves its BLAS a share of them.
WORKING_BYTES = 56 * 2**20
# Below this many rows a thread costs more than it brings.
ROWS_PER_THREAD = 2048

Result = TypeVar("Result")

_lock = fork_lock()
_holders: set[object] = set()
_limit: Any = None


@cache
def _controller() -> ThreadpoolController:
    return ThreadpoolController().select(user_api="blas")


def blas_threads() -> int:
    """Threads that BLAS would use for one product now."""
    return max((lib.num_threads for lib in _controller().lib_controllers), default=1)


@contextmanager
def _blas_limited_to(n_threads: int) -> Iterator[None]:
    """Limit BLAS's threads; the last of several concurrent holders lifts the limit."""
    # The limit is the process's. Were each holder to restore what it found, two that overlap
    # would leave the other's limit behind for good.
    global _limit
    holder = object()
    try:
        with _lock:
            _holders.add(holder)  # before the limit, lest an interrupt between leave it behind
            if len(_holders) == 1:
                _limit = _controller().limit(limits=n_threads)
        yield
    finally:
        with _lock:
            _holders.discard(holder)
            if not _holders and _limit is not None:
                _limit.restore_original_limits()


def single_threaded_blas():
    """Context in which BLAS runs in the calling thread only."""
    return _blas_limited_to(1)


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
    ranges = list(row_chunks(slice(0, n_rows), step))
    # NumPy's errstate: in the context from NumPy 2 on, before that each thread's own.
    contexts, errors = [copy_context() for _ in ranges], np.geterr()

    def in_context(context, rows):
        with np.errstate(**errors):
            return context.run(job, rows)

    with (
        _blas_limited_to(threads // workers),
        ThreadPoolExecutor(workers, thread_name_prefix="skcalib-rows") as pool,
    ):
        return list(pool.map(in_context, contexts, ranges))
