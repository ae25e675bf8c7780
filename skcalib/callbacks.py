"""Fits as tasks of scikit-learn's callbacks, such as its progress bar; below 1.9 as no tasks.

A fit is a task, and what takes long in it are its subtasks: the fit of a part, a share of the
texts, an epoch.
"""

import functools
import inspect
import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from typing import Any

from skcalib.base import forget
from skcalib.compat import _fit_context


def fit_task(
    *, prefer_skip_nested_validation: bool, n_subtasks: int | None = 0
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Decorate ``fit``: validate parameters, call callbacks, and leave nothing half-fitted.

    Fitted attributes are dropped before it runs, and again after an error. ``n_subtasks`` is
    None if the fit calls `begin` itself, when it knows their number.
    """

    def decorate(fit: Callable[..., Any]) -> Callable[..., Any]:
        signature = inspect.signature(fit)

        @_fit_context(prefer_skip_nested_validation=prefer_skip_nested_validation)
        @functools.wraps(fit)
        def task_of_fit(self: Any, *args: Any, **kwargs: Any) -> Any:
            if n_subtasks is not None:
                begin(self, n_subtasks)
            result = fit(self, *args, **kwargs)
            if (context := _context(self)) is not None:
                given = signature.bind(self, *args, **kwargs).arguments
                data = {name: given.get(name) for name in ("X", "y")}
                context.call_on_fit_task_end(
                    estimator=self, **data, reconstruction_attributes={}
                )
            return result

        @functools.wraps(fit)
        def from_scratch(self: Any, *args: Any, **kwargs: Any) -> Any:
            forget(self)
            try:
                return task_of_fit(self, *args, **kwargs)
            except BaseException:
                forget(self)
                raise

        return from_scratch

    return decorate


def begin(estimator: Any, n_subtasks: int) -> None:
    """Begin the task of a fit."""
    if hasattr(estimator, "_init_callback_context"):  # of scikit-learn 1.9 and later
        context = estimator._init_callback_context(max_subtasks=n_subtasks)
        context.call_on_fit_task_begin(estimator=estimator)


def subtask(estimator: Any, name: str) -> Any:
    """Begin a subtask without parts of its own; None if there are no callbacks."""
    context = _context(estimator)
    if context is None or not hasattr(estimator, "_skl_callbacks"):
        return None
    return context.subcontext(name).call_on_fit_task_begin(estimator=estimator)


@contextmanager
def fit_of(
    estimator: Any, part: Any, name: str, *, n_subtasks: int = 0, parent: Any = None
) -> Iterator[Any]:
    """Pass callbacks to the fit of a part of an estimator; yield the context of its task.

    If ``part`` is None, the task has ``n_subtasks`` with this context as their ``parent``.
    """
    context = parent or _context(estimator)
    is_leaf = part is None and not n_subtasks
    if context is None or (is_leaf and not hasattr(estimator, "_skl_callbacks")):
        yield None
        return
    context = context.subcontext(name, max_subtasks=n_subtasks)
    with nullcontext() if part is None else context.propagate_callback_context(part):
        context.call_on_fit_task_begin(estimator=estimator)
        yield context
        context.call_on_fit_task_end(estimator=estimator)


def begin_texts(estimator: Any, total: int) -> Callable[[int], None]:
    """Begin a fit that encodes texts; return ``advance(n)``, which counts them as encoded.

    Each hundredth of the texts is a subtask.
    """
    size = math.ceil(total / 100)
    begin(estimator, math.ceil(total / size))
    done, current = 0, subtask(estimator, "encode")

    def advance(n: int) -> None:
        nonlocal done, current
        done += n
        while current is not None and done >= min(total, (current.task_id + 1) * size):
            is_last = (current.task_id + 1) * size >= total
            current.call_on_fit_task_end(estimator=estimator)
            current = None if is_last else subtask(estimator, "encode")

    return advance


def _context(estimator: Any) -> Any:
    """Return the context of a fit that runs; None outside of a fit, or without callbacks."""
    return getattr(estimator, "_callback_fit_ctx", None)
