"""Turns of the threads and processes that encode for one store."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from filelock import FileLock

__all__ = ["turn"]

PATIENCE = 600.0  # seconds that a worker waits for its turn


@contextmanager
def turn(folder: Path) -> Iterator[None]:
    """Context in which nobody else encodes for the store in a folder; one thread may nest it.

    It ends with the process, however that ends. Where no lock can be had, in a read-only folder
    or beside a worker that hangs, work goes on without, and some texts may be encoded twice.
    """
    lock = FileLock(folder / "skcalib-vectors.lock", is_singleton=True)
    with suppress(OSError, NotImplementedError):  # the former also when time is up
        lock.acquire(timeout=PATIENCE)
    try:
        yield
    finally:
        lock.release()
