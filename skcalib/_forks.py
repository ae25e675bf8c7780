"""Locks that a fork waits for.

A forked process has the forking thread alone. A lock that another thread held at that moment
stays locked in it for good: ours, which could be made anew, and those inside oneDNN, SQLite
and the tokenizers, which cannot be reached. All that calls into these libraries runs under a
lock of this module, so a fork that takes every one of them finds the libraries idle. It waits
for a batch or a query at most.
"""

from __future__ import annotations

import os
import threading
import time
import weakref

__all__ = ["fork_lock"]

PATIENCE = 30.0  # seconds that a fork waits, for all locks together

_locks: weakref.WeakSet = weakref.WeakSet()
_forking = threading.RLock()
_taken: list = []


def fork_lock():
    """Return a new `threading.RLock` that the child of a fork finds free."""
    lock = threading.RLock()
    _locks.add(lock)
    return lock


def _before() -> None:
    _forking.acquire()
    deadline = time.monotonic() + PATIENCE
    for lock in list(_locks):
        if lock.acquire(timeout=max(0.0, deadline - time.monotonic())):
            _taken.append(lock)


def _after() -> None:
    while _taken:
        _taken.pop().release()
    _forking.release()


def _after_in_child() -> None:
    for lock in _locks:
        if lock not in _taken:
            lock._at_fork_reinit()
    _after()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_before, after_in_parent=_after, after_in_child=_after_in_child)
