"""Locks that the child of a fork finds free.

A forked process has the forking thread alone: a lock that another thread held at that moment
would stay locked in the child for good.
"""

from __future__ import annotations

import os
import threading
import weakref
from typing import Any

__all__ = ["fork_lock"]

_locks: weakref.WeakSet[Any] = weakref.WeakSet()


def fork_lock() -> Any:
    """Return a new `threading.RLock` that is made anew in the child of a fork."""
    lock = threading.RLock()
    _locks.add(lock)
    return lock


def _remake_locks() -> None:
    for lock in _locks:
        lock._at_fork_reinit()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_remake_locks)
