"""Passes over ranges of rows, in chunks and in threads.

They alternate matrix products with element-wise work that NumPy runs on one core. One thread
per range of rows keeps every core busy, where the threads of BLAS would wait for each other.
"""

import threading
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import cache
from itertools import takewhile
from typing import Any

import numpy as np
from threadpoolctl import ThreadpoolController

from skcalib.process.forks import fork_safe_lock

# With fewer rows per thread, our threads cost more than they gain over those of BLAS.
ROWS_PER_THREAD = 16384

_lock = fork_safe_lock()


def rows_within(n_bytes: int, n_features: int, itemsize: int = 8) -> int:
    """Rows of a working buffer of about ``n_bytes``, at least 64."""
    return max(64, n_bytes // (itemsize * n_features))


@cache
def _blas() -> ThreadpoolController:
    return ThreadpoolController().select(user_api="blas")


@contextmanager
def limit_blas(n_threads: int) -> Iterator[None]:
    """Limit the threads of BLAS in the whole process.

    Other Python threads that want to limit them wait, since one limit would undo the other.
    """
    with _lock, _blas().limit(limits=n_threads):
        yield


_torch_lock = fork_safe_lock()
_torch_threads: list[int] = []  # before the contexts that overlap, once for each of them


@contextmanager
def one_torch_thread() -> Iterator[None]:
    """Let torch use one thread. Contexts may overlap: each restores the first number."""
    import torch

    with _torch_lock:
        # A Python thread takes its number from that of the process when it first reads it.
        n_threads = torch.get_num_threads()
        _torch_threads.append(_torch_threads[0] if _torch_threads else n_threads)
        torch.set_num_threads(1)
    try:
        yield
    finally:
        with _torch_lock:
            torch.set_num_threads(_torch_threads.pop())


def map_row_ranges(
    job: Callable[[Iterable[slice]], Any],
    n_rows: int,
    step: int,
    *,
    working_bytes: int,
    rows_per_thread: int = ROWS_PER_THREAD,
) -> list[Any]:
    """Results of ``job`` on consecutive ranges that cover ``n_rows``, one per thread.

    Each call of ``job`` gets the chunks of one range, slices of at most ``step`` rows, and
    needs ``working_bytes`` of memory. After an interrupt it gets no more chunks. The split
    depends only on the number of BLAS's threads: a repeated call gives equal bits.
    """
    n_threads = max((library.num_threads for library in _blas().lib_controllers), default=1)
    # If 56 MB of memory allow fewer threads than cores, BLAS uses several cores per thread.
    workers = min(n_threads, n_rows // rows_per_thread, 56 * 2**20 // working_bytes)
    if workers <= 1:
        return [job(_chunks(0, n_rows, step))]
    size = -(-n_rows // workers)
    over = threading.Event()
    errors = np.geterr()  # NumPy keeps these settings per thread

    def run(begin: int) -> Any:
        chunks = _chunks(begin, min(begin + size, n_rows), step)
        with np.errstate(**errors):
            return job(takewhile(lambda _: not over.is_set(), chunks))

    with limit_blas(n_threads // workers), ThreadPoolExecutor(workers) as executor:
        try:
            return list(executor.map(run, range(0, n_rows, size)))
        finally:
            over.set()


def _chunks(begin: int, end: int, step: int) -> list[slice]:
    """Slices of at most ``step`` rows from one row to another."""
    return [slice(start, min(start + step, end)) for start in range(begin, end, step)]
