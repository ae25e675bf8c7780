"""What all estimators share: versioned pickles, progress bars, scikit-learn's callbacks."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from types import ModuleType
from typing import Any, NoReturn

try:
    from sklearn.callback import CallbackSupportMixin
except ImportError:  # scikit-learn < 1.9

    class CallbackSupportMixin:  # type: ignore[no-redef]
        """Stands in where scikit-learn has no callbacks."""


__all__ = [
    "PARTS",
    "CallbackSupportMixin",
    "VersionedState",
    "fit_inside",
    "fit_task",
    "progress",
    "refuse_former_classes",
]

REMEDY = "Load it with the skcalib release that wrote it, or fit again and pickle anew."
PARTS = 100  # subtasks that callbacks are told of, whatever the number of texts


class VersionedState:
    """Mixin that stamps an estimator's pickled state with the version of its layout.

    A class raises ``_state_version`` when the meaning of its fitted attributes changes.
    Older layouts are refused rather than guessed at: silently wrong vectors cost more
    than a refit.
    """

    _state_version = 1

    def __getstate__(self) -> dict[str, Any]:
        state: Any = super().__getstate__()
        return {**state, "_state_version": self._state_version}

    def __setstate__(self, state: dict[str, Any]) -> None:
        state = dict(state)
        version = state.pop("_state_version", None)
        if version != self._state_version:
            raise ValueError(
                f"This pickled {type(self).__name__} has state version {version!r}; the "
                f"installed skcalib reads version {self._state_version}. {REMEDY}"
            )
        self.__dict__.update(state)


def refuse_former_classes(classes: dict[str, str]) -> None:
    """Refuse pickles that name a class in its former module: parts of its state moved too."""
    for name, path in classes.items():
        module: Any = sys.modules.setdefault(path, ModuleType(path))
        module.__getattr__ = partial(_refuse, name)


def _refuse(former: str, name: str) -> type:
    """Return a class that stands in for a former one and cannot be instantiated.

    Looking the name up raises no error, since tools may do so without unpickling anything.
    """
    if name != former:
        raise AttributeError(name)

    def refuse(cls: type, *args: Any, **kwargs: Any) -> NoReturn:
        raise ValueError(
            f"This pickled {name} has a state version older than the installed skcalib reads. "
            f"{REMEDY}"
        )

    return type(name, (), {"__new__": refuse})


@contextmanager
def fit_task(estimator: Any, X: Any = None, max_subtasks: int | None = 0) -> Iterator[Any]:
    """Tell the callbacks of an estimator that its fit begins, and that it ended.

    ``max_subtasks`` is None where the number is unknown. Yields the ``CallbackContext`` of the
    fit, or None if the estimator has no callbacks.
    """
    if not getattr(estimator, "_skl_callbacks", None):  # of set_callbacks
        yield None
        return
    task = estimator._init_callback_context(max_subtasks=max_subtasks)
    task.call_on_fit_task_begin(estimator=estimator, X=X)
    yield task
    task.call_on_fit_task_end(estimator=estimator, X=X, reconstruction_attributes=dict)


@contextmanager
def fit_inside(task: Any, name: str, estimator: Any, inner: Any) -> Iterator[None]:
    """Tell the callbacks of a `fit_task` that ``estimator`` fits ``inner``; hand them on."""
    if task is None:
        yield
        return
    subtask = task.subcontext(task_name=name)
    with subtask.propagate_callback_context(inner):
        subtask.call_on_fit_task_begin(estimator=estimator)
        yield
        subtask.call_on_fit_task_end(estimator=estimator)


@contextmanager
def progress(
    total: int | None,
    *,
    unit: str,
    desc: str,
    verbose: bool,
    estimator: Any = None,
    task: Any = None,
) -> Iterator[Callable[..., None]]:
    """Follow work in a progress bar if ``verbose``, and in subtasks of ``task`` if any.

    The total counts units of work; it is None where nobody knows it yet. ``task`` is what
    `fit_task` gave for the fit of ``estimator``; its subtasks are the `PARTS` of a known total.
    Yields a function to be called after n units as ``advance(n)``, or as ``advance(n, note)``
    to show a word on what was done.
    """
    report = (lambda n: None) if task is None or not total else _parts(total, estimator, task)
    if not verbose:
        yield lambda n, note="": report(n)
        return
    from tqdm.auto import tqdm

    with tqdm(total=total, unit=unit, desc=desc) as bar:

        def advance(n: int, note: str = "") -> None:
            bar.set_postfix_str(note, refresh=False)
            bar.update(n)
            report(n)

        yield advance


def _parts(total: int, estimator: Any, task: Any) -> Callable[[int], None]:
    """Return a function that turns units done into subtasks done."""
    done = reported = 0

    def report(n: int) -> None:
        nonlocal done, reported
        done += n
        while reported < done * PARTS // total:
            reported += 1
            part = task.subcontext(task_name=f"{reported} of {PARTS}")
            part.call_on_fit_task_begin(estimator=estimator)
            part.call_on_fit_task_end(estimator=estimator)

    return report
