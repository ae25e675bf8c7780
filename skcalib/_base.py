"""What all estimators share: versioned pickles, progress bars and warnings."""

from __future__ import annotations

import inspect
import os
import warnings
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import joblib
import numpy as np
import sklearn
from sklearn.exceptions import NotFittedError
from sklearn.utils.validation import check_is_fitted

__all__ = ["VersionedState", "check_mergeable", "is_fitted", "progress", "warn"]

# Folders of files whose lines are not the user's.
INNER = tuple(
    str(Path(file).parent) + os.sep
    for file in (__file__, sklearn.__file__, joblib.__file__, np.__file__)
)


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
                f"installed skcalib reads version {self._state_version}. Load it with the "
                "skcalib release that wrote it, or fit again and pickle anew."
            )
        self.__dict__.update(state)


def check_mergeable(estimator: Any, kind: type[Any], others: Iterable[Any]) -> None:
    """Refuse to merge with what is of another class, not fitted, or of another width."""
    name = kind.__name__
    check_is_fitted(estimator)
    for other in others:
        if not isinstance(other, kind):
            raise TypeError(
                f"merge got a {type(other).__name__}; it takes fitted {name} objects."
            )
        check_is_fitted(other)
        if other.n_features_in_ != estimator.n_features_in_:
            raise ValueError(
                f"merge got a {name} fitted on {other.n_features_in_} features; this one has "
                f"{estimator.n_features_in_}. Fit both on vectors of one width."
            )


def is_fitted(estimator: Any) -> bool:
    """Whether an estimator is fitted, as scikit-learn sees it."""
    try:
        check_is_fitted(estimator)
    except NotFittedError:
        return False
    return True


@contextmanager
def progress(
    total: int | None, *, unit: str, desc: str, verbose: bool
) -> Iterator[Callable[..., None]]:
    """Follow work in a progress bar if ``verbose``.

    The total counts units of work; it is None where nobody knows it yet. Yields a function to
    be called after n units as ``advance(n)``, or as ``advance(n, note)`` to show a word on what
    was done.
    """
    if not verbose:
        yield lambda n, note="": None
        return
    from tqdm.auto import tqdm

    with tqdm(total=total, unit=unit, desc=desc) as bar:

        def advance(n: int, note: str = "") -> None:
            bar.set_postfix_str(note, refresh=False)
            bar.update(n)

        yield advance


def warn(message: str, category: type[Warning] = UserWarning) -> None:
    """Warn at the line of the user that led here."""
    frame, level = inspect.currentframe(), 1
    while frame and frame.f_code.co_filename.startswith(INNER):
        frame, level = frame.f_back, level + 1
    warnings.warn(message, category, stacklevel=level)
