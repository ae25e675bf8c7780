"""Containers of vectors, and texts where vectors belong."""

from typing import Any

import numpy as np


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
    if len(getattr(X, "shape", ())) == 1 and np.ndim(next(iter(X), 0)) == 1:
        X = np.stack([*X])
    return X.astype(np.float32) if getattr(X, "dtype", None) == np.float16 else X


def first_text(X: Any) -> str | None:
    """Return the first entry of a container if it is a text, not a number or a vector."""
    if isinstance(X, str):
        return X
    is_array = isinstance(X, np.ndarray) and X.ndim
    if not (isinstance(X, list | tuple) or hasattr(X, "to_numpy") or is_array):
        return None
    entry = next(iter(np.array(X[:1], dtype=object).ravel()), None)
    return str(entry) if isinstance(entry, str) else None


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
