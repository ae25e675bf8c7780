"""Forks: a child has one thread, the one that forks, and a copy of everything else.

If another thread has a lock during a fork, the lock stays locked in the child forever, and what
it guards stays half-changed, such as the hooks of a forward pass. So a fork waits until all
locks of this package are free.
"""

import os
import sys
import threading
from typing import TYPE_CHECKING, Any

_locks: list[Any] = []  # all that were ever made: one for each model loaded, and a few more
_held: list[Any] = []


if TYPE_CHECKING or sys.version_info >= (3, 12):
    from functools import cached_property
else:

    class cached_property:
        """That of Python 3.12; before, one lock serves the property of all instances."""

        def __init__(self, compute: Any):
            self._compute, self.__doc__ = compute, compute.__doc__

        def __get__(self, instance: Any, owner: Any = None) -> Any:
            if instance is None:
                return self
            value = vars(instance)[self._compute.__name__] = self._compute(instance)
            return value


def fork_safe_lock() -> Any:
    """Return a lock for which a fork waits, and which its own thread may acquire again.

    A thread that needs several acquires them in the order of their creation.
    """
    lock = threading.RLock()
    _locks.append(lock)
    return lock


def _acquire() -> None:
    for lock in _locks:  # another thread may append to it
        lock.acquire()
        _held.append(lock)


def _release() -> None:
    held = [*_held]
    _held.clear()  # before another thread that forks may acquire the first
    for lock in reversed(held):
        lock.release()


if hasattr(os, "register_at_fork"):  # not on Windows
    os.register_at_fork(before=_acquire, after_in_parent=_release, after_in_child=_release)
