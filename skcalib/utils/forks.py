"""Forks: a child has one thread, the one that forks, and a copy of everything else.

A lock that another thread held would stay locked in the child forever, and what it guards would
stay half-changed, such as the hooks of a forward pass. So a fork waits until all locks of this
package are free. OpenMP, by which torch computes, would wait for threads that are not there.
"""

import os
import threading
from typing import Any

_locks: list[Any] = []  # all that were ever made: one for each model loaded, and a few more
_held: list[Any] = []
_process = os.getpid()


def fork_safe_lock() -> Any:
    """Return a lock for which a fork waits, and which its own thread may acquire again.

    A thread that holds such locks may wait only for those that were made later.
    """
    lock = threading.RLock()
    _locks.append(lock)
    return lock


def limit_torch_after_fork() -> None:
    """Let torch use one thread in a process that was forked since the last call.

    To be called before torch computes. In a pool of processes, one thread per process is also
    the best choice.
    """
    global _process
    if _process != os.getpid():
        import torch

        _process = os.getpid()
        torch.set_num_threads(1)


def _acquire() -> None:
    for lock in _locks:  # also those that are made meanwhile
        lock.acquire()
        _held.append(lock)


def _release() -> None:
    held = [*_held]
    _held.clear()  # before another thread that forks may acquire the first
    for lock in reversed(held):
        lock.release()


if hasattr(os, "register_at_fork"):  # not on Windows
    os.register_at_fork(
        before=_acquire, after_in_parent=_release, after_in_child=_release
    )
