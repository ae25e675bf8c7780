"""Work that Ctrl-C cannot leave half done.

Python gives an interrupt to the main thread alone, between any two of its steps. What must
not be broken into, a limit on BLAS's threads or the start of a thread, is done in another.
`threading` and `concurrent.futures` cannot wait for it: they wait on conditions written in
Python, and an interrupt inside one leaves its lock taken for good (one in some 2,000
interrupts of a fit hung it so). Locks written in C are either taken or not.
"""

from __future__ import annotations

import _thread
import sys
import threading
from collections.abc import Callable
from contextvars import copy_context
from typing import Any, Generic, TypeVar

import numpy as np

__all__ = ["Call", "unbroken"]

Result = TypeVar("Result")


class Call(Generic[Result]):
    """A call that runs in a thread of its own, in the caller's context.

    Parameters
    ----------
    function : callable
    *arguments
    """

    def __init__(self, function: Callable[..., Result], *arguments: Any):
        self._function, self._arguments = function, arguments
        # NumPy's errstate is in the context from NumPy 2 on, before that each thread's own.
        self._context, self._errors = copy_context(), np.geterr()
        self._right_to_run, self._running = threading.Lock(), threading.Lock()
        self._running.acquire()
        self._outcome: tuple[Any, BaseException | None] | None = None

    def start(self) -> Call[Result]:
        """Start the thread."""
        _thread.start_new_thread(self._run, ())
        return self

    def _run(self) -> None:
        # What debuggers and coverage ask of every thread; `threading` does it for its own.
        sys.settrace(threading.gettrace())
        if self._right_to_run.acquire(blocking=False):
            try:
                with np.errstate(**self._errors):
                    value = self._context.run(self._function, *self._arguments)
                self._outcome = value, None
            except BaseException as error:
                self._outcome = None, error
            finally:
                self._running.release()

    def settle(self) -> None:
        """Wait for the end, or see to it that the call never begins."""
        if not self._right_to_run.acquire(blocking=False):
            self.wait()

    def wait(self) -> None:
        """Wait for the end of a call that was started."""
        if self._outcome is None:  # or an interrupt came between the lock and here
            self._running.acquire()

    def result(self) -> Result:
        """Wait for the end; return what the call returned, or raise what it raised."""
        self.wait()
        assert self._outcome is not None
        value, error = self._outcome
        if error is not None:
            try:
                raise error
            finally:
                del error, self  # whose frame the traceback holds
        return value


def unbroken(function: Callable[..., Result], *arguments: Any) -> Result:
    """Return ``function(*arguments)``; an interrupt is raised when it has ended."""
    if threading.current_thread() is not threading.main_thread():
        return function(*arguments)
    call = Call(function, *arguments)
    try:
        return call.start().result()
    finally:
        call.settle()
