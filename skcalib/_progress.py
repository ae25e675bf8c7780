"""How far long work is: progress bars, and scikit-learn's callbacks (1.9 and later)."""

from __future__ import annotations

from contextlib import contextmanager

try:
    from sklearn.callback import CallbackSupportMixin
except ImportError:  # scikit-learn < 1.9

    class CallbackSupportMixin:  # type: ignore[no-redef]
        """Stands in where scikit-learn has no callbacks."""


__all__ = ["PARTS", "CallbackSupportMixin", "fit_inside", "fit_task", "progress"]

PARTS = 100  # subtasks that callbacks are told of, whatever the number of texts


@contextmanager
def fit_task(estimator, X=None, max_subtasks=0):
    """Tell the callbacks of an estimator that its fit begins, and that it ended.

    Parameters
    ----------
    estimator : CallbackSupportMixin
    X : array-like or None
        What it is fitted on.
    max_subtasks : int or None
        How many subtasks there may be; 0 for none, None for unknown.

    Yields
    ------
    task : sklearn.callback.CallbackContext or None
        None where nobody listens.
    """
    if not getattr(estimator, "_skl_callbacks", None):  # of set_callbacks
        yield None
        return
    task = estimator._init_callback_context(max_subtasks=max_subtasks)
    task.call_on_fit_task_begin(estimator=estimator, X=X)
    yield task
    task.call_on_fit_task_end(estimator=estimator, X=X, reconstruction_attributes=dict)


@contextmanager
def fit_inside(task, name, estimator, inner):
    """Tell callbacks that ``estimator`` fits ``inner``, and let them follow it.

    Parameters
    ----------
    task : sklearn.callback.CallbackContext or None
        What `fit_task` gave for the fit of ``estimator``.
    name : str
    estimator, inner : estimator
    """
    if task is None:
        yield
        return
    subtask = task.subcontext(task_name=name)
    with subtask.propagate_callback_context(inner):
        subtask.call_on_fit_task_begin(estimator=estimator)
        yield
        subtask.call_on_fit_task_end(estimator=estimator)


@contextmanager
def progress(total, *, unit, desc, verbose, estimator=None, task=None):
    """Follow work in a progress bar if ``verbose``, and in subtasks of ``task`` if any.

    Parameters
    ----------
    total : int or None
        Units of work; None where nobody knows yet.
    unit, desc : str
        What the bar calls a unit, and the work.
    verbose : bool
    estimator, task
        Whose fit it is, and what `fit_task` gave for it. Its subtasks are the `PARTS` of a
        known total.

    Yields
    ------
    advance : callable
        Called as ``advance(n)``, or ``advance(n, note)`` to show a word on what was done.
    """
    report = (lambda n: None) if task is None or not total else _parts(total, estimator, task)
    if not verbose:
        yield lambda n, note="": report(n)
        return
    from tqdm.auto import tqdm

    with tqdm(total=total, unit=unit, desc=desc) as bar:

        def advance(n, note=""):
            bar.set_postfix_str(note, refresh=False)
            bar.update(n)
            report(n)

        yield advance


def _parts(total, estimator, task):
    """Return a function that turns units done into subtasks done."""
    done = reported = 0

    def report(n):
        nonlocal done, reported
        done += n
        while reported < done * PARTS // total:
            reported += 1
            part = task.subcontext(task_name=f"{reported} of {PARTS}")
            part.call_on_fit_task_begin(estimator=estimator)
            part.call_on_fit_task_end(estimator=estimator)

    return report
