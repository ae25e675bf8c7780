"""Claims on pieces of work: one worker at a time, across threads and processes.

A claim is a lock on one byte of a file that stays empty. The system gives it back when a
process ends, however it ends, so that nothing has to be cleaned up and no clock is asked.
Where there are no such locks (Windows, some network file systems) every claim of another
process is granted: work may then be done twice, which costs time and nothing else.
"""

from __future__ import annotations

import contextlib
import errno
import os
import time
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Any

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]

__all__ = ["Claims"]

TAKEN = (errno.EACCES, errno.EAGAIN)
WHOLE_FILE = 2**62  # the byte that stands for the file that the claims belong to


class Claims:
    """Claims of this process on numbers below 2**62, under one file name.

    The caller sees to it that one thread at a time is in here.

    Parameters
    ----------
    path : Path
        Of the lock file. There may be one object for it in a process and no other use of
        the file: closing any handle of a file gives back all locks of the process.
    """

    def __init__(self, path: Path):
        self._held: dict[int, Any] = {}
        self._file: Any = None
        if fcntl is not None:
            with contextlib.suppress(OSError):  # a read-only folder
                flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
                self._file = os.open(path, flags, 0o666)

    def take(self, owner: object, numbers: Collection[int]) -> list[bool]:
        """Claim each number for ``owner``, where nobody else has."""
        return [self._take(owner, number) for number in numbers]

    def _take(self, owner, number) -> bool:
        if number in self._held:
            return self._held[number] is owner
        self._held[number] = owner  # first, so that an interrupt leaves nothing ownerless
        if self._file is not None and not self._lock(fcntl.LOCK_EX | fcntl.LOCK_NB, number):
            del self._held[number]
            return False
        return True

    def _lock(self, operation, number) -> bool:
        try:
            fcntl.lockf(self._file, operation, 1, number)
        except OSError as error:
            return error.errno not in TAKEN
        return True

    def release(self, owner: object) -> None:
        """Give back all that ``owner`` has claimed."""
        for number in [n for n, holder in self._held.items() if holder is owner]:
            if self._file is not None:
                self._lock(fcntl.LOCK_UN, number)
            del self._held[number]

    @contextlib.contextmanager
    def exclusive(self, patience: float) -> Iterator[None]:
        """Context that one process at a time is in; a TimeoutError after so many seconds."""
        deadline = time.monotonic() + patience
        while self._file is not None and not self._lock(
            fcntl.LOCK_EX | fcntl.LOCK_NB, WHOLE_FILE
        ):
            if time.monotonic() > deadline:
                raise TimeoutError("its lock file is locked")
            time.sleep(0.01)
        try:
            yield
        finally:
            if self._file is not None:
                self._lock(fcntl.LOCK_UN, WHOLE_FILE)

    def close(self) -> None:
        """Give back everything."""
        if self._file is not None:
            os.close(self._file)
        self._file, self._held = None, {}
