"""Containers of vectors, and texts where vectors belong."""

from collections.abc import Mapping
from numbers import Real
from typing import Any

import numpy as np

# Names of columns that number rows, as tables are read from files.
ROW_NAMES = "id", "index", "unnamed: 0"
# Integers in order may be so by chance if they are fewer.
IN_ORDER = 10


def checkable(X: Any) -> Any:
    """Return rows for scikit-learn's checks; refuse texts, and what may not fit in memory.

    The vectors of a column, such as a Series of lists, are stacked; float16 becomes float32.
    """
    if is_dask(X):
        raise TypeError(
            f"Got a dask {type(X).__name__}; expected rows in memory. Pass X.compute(), or map "
            "blocks of rows, as in X.map_blocks(whitening.transform, dtype=X.dtype, "
            "chunks=(X.chunks[0], whitening.n_components_))."
        )
    if (text := first_text(X)) is not None:
        raise TypeError(
            f"Got texts, such as {text[:40]!r}; expected vectors. Put an encoder before this "
            "step, as in make_pipeline(BertEncoder(model), ...)."
        )
    if len(getattr(X, "shape", ())) == 1:
        first = next(iter(X), 0)
        if isinstance(first, Real):
            raise ValueError(
                f"Expected 2D array, got 1D array of shape {X.shape}. Reshape your data with "
                "X.reshape(1, -1) if it is one vector."
            )
        X = np.stack([*X]) if np.ndim(first) == 1 else X
    is_matrix = isinstance(X, np.ndarray) and X.ndim > 1
    for entry in [X] if isinstance(X, Mapping) else () if is_matrix else _first_row(X):
        if isinstance(entry, Mapping | bytes) or np.ndim(entry):
            raise TypeError(
                f"X has a {type(entry).__name__}, such as {entry!r:.40}; expected rows of "
                "numbers, (n_samples, n_features). Pass the vectors alone, such as "
                "np.stack(frame['vector']) or [row['embedding'] for row in rows]."
            )
    if (name := _row_number(X)) is not None:
        raise ValueError(
            f"The column {name!r} of X numbers the rows; expected vectors alone. Drop it, or "
            "pass X.to_numpy() if it is part of the vectors."
        )
    return X.astype(np.float32) if getattr(X, "dtype", None) == np.float16 else X


def first_text(X: Any) -> str | None:
    """Return the first entry of a container if it is a text, not a number or a vector."""
    entry = X if isinstance(X, str) else next(iter(_first_row(X)), None)
    return str(entry) if isinstance(entry, str) else None


def _first_row(X: Any) -> np.ndarray:
    """Return the entries of the first row of a container as objects."""
    is_array = isinstance(X, np.ndarray) and X.ndim
    if not (isinstance(X, list | tuple) or hasattr(X, "to_numpy") or is_array):
        return np.empty(0, object)
    return np.array(X[:1], dtype=object).ravel()


def _row_number(X: Any) -> Any:
    """Return the name of a frame's column that numbers its rows, or None."""
    for name in getattr(X, "columns", ()):
        if str(name).lower() in ROW_NAMES:
            return name
        values = np.asarray(X[name])
        if values.dtype.kind in "iu" and len(values) > IN_ORDER:
            steps = np.diff(values.astype(np.int64))
            if (steps > 0).all() or (steps < 0).all():
                return name
    return None


def refuse_rows(estimator: Any, y: Any, advice: str) -> None:
    """Refuse texts or vectors as the ``y`` that an estimator ignores.

    Numbers pass, since pipelines and searches give labels and grades to each estimator.
    """
    if first_text(y) is not None or len(np.shape(y)) > 1:
        raise TypeError(
            f"{type(estimator).__name__}.fit got texts or vectors as y, which it ignores. "
            f"{advice}"
        )


def is_dask(X: Any) -> bool:
    """Whether ``X`` is a dask collection, without importing dask."""
    return callable(getattr(X, "__dask_graph__", None))


def check_dask(X: Any) -> None:
    """Raise a ValueError for a dask collection that is not a two-dimensional array."""
    import dask.array as da

    if not isinstance(X, da.Array) or X.ndim != 2:
        raise ValueError(
            f"Got a dask {type(X).__name__}; expected a dask array of shape (n_samples, "
            "n_features). Convert a frame with to_dask_array()."
        )
