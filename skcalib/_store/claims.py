"""Texts shared out among the threads and processes that encode for one store.

Each text belongs to one of a few lock files, by its hash. Who encodes a text holds the lock
on that file, so that nobody else encodes it meanwhile. The system frees the lock when a
process ends, however it ends.
"""

from __future__ import annotations

import contextlib
import gc
import time
from collections.abc import Iterator, Sequence
from functools import partial
from itertools import count
from pathlib import Path
from typing import NamedTuple

import numpy as np
from filelock import BaseFileLock, FileLock, Timeout

from skcalib._machine.threads import uninterrupted

__all__ = ["Share", "claim_one", "hold", "share_out"]

N_FILES = 16  # as many workers can encode for one store at once
TEXTS = 512  # of a share at least, where there are as many, so that its batches are full
PAUSE = 0.02  # seconds between looks at a lock that somebody holds
PATIENCE = 600.0  # seconds that a share is waited for; then its texts are encoded twice


class Share(NamedTuple):
    """Texts that are claimed together."""

    positions: np.ndarray  # of the texts, rising
    lock_files: list[Path]


def share_out(folder: Path, hashes: Sequence[int]) -> list[Share]:
    """Divide texts, given by hashes that are the same in every process, into shares."""
    files = np.array(hashes, dtype=np.int64) % N_FILES
    counts = np.bincount(files, minlength=N_FILES)
    share_of_file = (counts.cumsum() - counts) // TEXTS
    shares = []
    for share in np.unique(share_of_file[files]):
        used = np.flatnonzero((share_of_file == share) & (counts > 0))
        paths = [folder / f"skcalib-vectors-{number:02}.lock" for number in used]
        shares.append(Share(np.flatnonzero(share_of_file[files] == share), paths))
    return shares


@contextlib.contextmanager
def claim_one(shares: list[Share]) -> Iterator[Share]:
    """Take a share out of the list that nobody else has claimed; claimed within the context.

    Waits for the first where all are claimed. Who had claimed it may have encoded its texts.
    """
    with contextlib.ExitStack() as stack:
        for share in shares:
            with contextlib.suppress(Timeout):
                stack.enter_context(hold(share.lock_files, timeout=0))
                break
        else:
            share = shares[0]
            with contextlib.suppress(Timeout):
                stack.enter_context(hold(share.lock_files, timeout=PATIENCE))
        shares[:] = [other for other in shares if other is not share]
        yield share


@contextlib.contextmanager
def hold(paths: Sequence[Path], *, timeout: float) -> Iterator[None]:
    """Hold the locks on some files, which are made where they are missing.

    Locks that cannot be made, as in a read-only folder, are left out. Everybody gives paths
    in the same order, so that no two wait for each other.

    Raises
    ------
    filelock.Timeout
        If another thread or process does not free one within so many seconds.
    """
    locks = [FileLock(path, thread_local=False) for path in paths]

    def release() -> None:
        for lock in locks:
            lock.release(force=True)

    try:
        for lock in locks:
            try:
                _acquire(lock, timeout)
            except Timeout:
                raise
            except (OSError, NotImplementedError):
                continue
        yield
    finally:
        try:
            uninterrupted(release)
        finally:
            uninterrupted(release)  # where an interrupt kept the first from beginning


def _acquire(lock: BaseFileLock, timeout: float) -> None:
    """Take a lock; interrupts come between tries, not while filelock notes what it took."""
    deadline = time.monotonic() + timeout
    for attempt in count():
        try:
            uninterrupted(partial(lock.acquire, timeout=0))
            return
        except Timeout:
            if time.monotonic() >= deadline:
                raise
        if attempt == 0:
            gc.collect()  # the traceback of an interrupted call may hold a lock of this process
        time.sleep(PAUSE)
