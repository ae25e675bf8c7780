"""Fits as tasks of scikit-learn's callbacks, such as its progress bar; before 1.9 as no tasks.

A fit is a task, and what takes long in it are its subtasks: the fit of a part, a share of the
texts, an epoch.
"""

import functools
import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any

from skcalib.base import forget
from skcalib.compat import _fit_context


@dataclass
class Task:
    """The fit that runs. Without a context of scikit-learn no callbacks are called."""

    estimator: Any = None
    context: Any = None
    count: Callable[[int], Any] = bool  # counts texts that are encoded


_task: ContextVar[Task] = ContextVar("task")


def fit_task(*, prefer_skip_nested_validation: bool, n_subtasks: int | None = 0) -> Any:
    """Decorate ``fit``: validate parameters, call callbacks, and leave nothing half-fitted.

    Fitted attributes are dropped before it runs, and again after an error. ``n_subtasks`` is
    None if the fit calls `begin` itself, when it knows their number.
    """

    def decorate(fit: Callable[..., Any]) -> Callable[..., Any]:
        @_fit_context(prefer_skip_nested_validation=prefer_skip_nested_validation)
        @functools.wraps(fit)
        def as_task(self: Any, *args: Any, **kwargs: Any) -> Any:
            token = _task.set(task := Task(self))
            try:
                if n_subtasks is not None:
                    begin(n_subtasks)
                result = fit(self, *args, **kwargs)
                if task.context is not None:
                    task.context.call_on_fit_task_end(estimator=self)
                return result
            finally:
                _task.reset(token)

        @functools.wraps(fit)
        def from_scratch(self: Any, *args: Any, **kwargs: Any) -> Any:
            if _task.get(Task()).estimator is self:  # `fit` in `fit_transform`
                return fit(self, *args, **kwargs)
            forget(self)
            try:
                return as_task(self, *args, **kwargs)
            except BaseException:
                forget(self)
                raise

        return from_scratch

    return decorate


def begin(n_subtasks: int) -> None:
    """Begin the task of the fit that runs."""
    task = _task.get()
    if hasattr(task.estimator, "_init_callback_context"):  # scikit-learn 1.9 or later
        task.context = task.estimator._init_callback_context(max_subtasks=n_subtasks)
        task.context.call_on_fit_task_begin(estimator=task.estimator)


def subtask(name: str) -> Callable[..., Any]:
    """Begin a subtask; return what ends it, and tells whether a callback wants to stop."""
    task = _task.get(Task())
    if task.context is None or not hasattr(task.estimator, "_skl_callbacks"):
        return lambda **_: False
    context = task.context.subcontext(name).call_on_fit_task_begin(estimator=task.estimator)
    return functools.partial(context.call_on_fit_task_end, estimator=task.estimator)


@contextmanager
def part_task(name: str, part: Any = None, n_subtasks: int = 0) -> Iterator[None]:
    """Run the fit of a part with the callbacks of the fit that runs, or ``n_subtasks``."""
    task = _task.get(Task())
    if (outer := task.context) is None:
        yield
        return
    task.context = context = outer.subcontext(name, max_subtasks=n_subtasks)
    try:
        with nullcontext() if part is None else context.propagate_callback_context(part):
            context.call_on_fit_task_begin(estimator=task.estimator)
            yield
            context.call_on_fit_task_end(estimator=task.estimator)
    finally:
        task.context = outer


def begin_texts(n_texts: int) -> None:
    """Begin a fit that encodes texts, of which each hundredth is a subtask."""
    n_encoded, size = 0, math.ceil(n_texts / 100)
    stops = [*range(size, n_texts, size), n_texts]
    begin(len(stops))
    end = subtask("encode")

    def count(n: int) -> None:
        nonlocal n_encoded, end
        n_encoded += n
        while stops and n_encoded >= stops[0]:
            end()
            stops.pop(0)
            end = subtask("encode") if stops else end

    _task.get().count = count


def count_texts(n: int) -> None:
    """Count texts as encoded, if the fit that runs began with `begin_texts`."""
    _task.get(Task()).count(n)
