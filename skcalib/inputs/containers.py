"""Containers of vectors: frames, columns of vectors, tensors, masked and dask arrays."""

import re
from typing import Any

import numpy as np

from skcalib.inputs.labels import plain

# Types of columns of polars and pyarrow with at most the precision of float32.
NARROW = re.compile("(?i)float(32|16)|halffloat|: float>")


def checkable(X: Any) -> Any:
    """Return rows for scikit-learn's checks; refuse texts and dask arrays.

    Columns of vectors are stacked. Numbers of 16 bits become float32, and tensors of torch
    arrays of NumPy.
    """
    if is_dask(X):
        raise TypeError(
            f"Got a dask {type(X).__name__}; expected rows in memory. Pass X.compute(), or map "
            "blocks of rows, as in X.map_blocks(whitening.transform, dtype=X.dtype, "
            "chunks=(X.chunks[0], whitening.n_components_))."
        )
    X = stacked(X)
    if hasattr(X, "dense") and hasattr(X, "sparse"):
        raise TypeError(
            f"Got {type(X).__name__}, the dense and sparse vectors of a SearchEncoder; "
            "expected one array. Pass the dense ones, as in search.encode_query(texts).dense."
        )
    if (text := first_text(X)) is not None:
        raise TypeError(
            f"Got texts, such as {text[:40]!r}; expected vectors. Put an encoder before this "
            "step, as in make_pipeline(BertEncoder(model), ...)."
        )
    if hasattr(X, "detach"):
        X = X.detach()
        X = X.float() if X.dtype.itemsize < 4 and X.dtype.is_floating_point else X
        return X.cpu().numpy()
    dtypes = [X.dtype] if hasattr(X, "dtype") else [*getattr(X, "dtypes", [])]
    if dtypes and all(str(dtype).lower() in ("float16", "bfloat16") for dtype in dtypes):
        X = X.astype(np.float32)
    return unmasked(X)


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
    text, shape = first_text(y), getattr(y, "shape", None)
    if isinstance(y, list | tuple):
        shape = np.shape(np.array(y[:1], dtype=object))
    if text is not None or (shape is not None and len(shape) > 1):
        came = "vectors" if text is None else f"texts such as {text[:40]!r}"
        raise TypeError(
            f"{type(estimator).__name__}.fit got {came} as y, which it ignores. {advice}"
        )


def stacked(X: Any) -> Any:
    """Return the vectors of a column of vectors as rows; return anything else unchanged.

    Such a column is a Series of pandas or polars, or a column of pyarrow, whose entries are
    lists or arrays; an object array of arrays; or a frame of one such column.
    """
    column = X
    if getattr(X, "shape", (0,))[1:] == (1,):  # of a frame or an object array
        column = X.iloc[:, 0] if hasattr(X, "iloc") else X
        column = X.to_series(0) if hasattr(X, "to_series") else column
        column = X.column(0) if hasattr(X, "column") else column
        column = X[:, 0] if isinstance(X, np.ndarray) and X.dtype == object else column
    is_series = hasattr(column, "to_pylist") or hasattr(column, "to_list")
    is_objects = isinstance(column, np.ndarray) and column.dtype == object
    if not (is_series or is_objects) or len(getattr(column, "shape", (0,))) != 1:
        return X
    entries = plain(column)
    if not (len(entries) and isinstance(entries[0], list | tuple | np.ndarray)):
        return X
    shapes = {np.shape(entry) for entry in entries}
    if len(shapes) > 1:
        raise ValueError(
            f"Got a column of vectors of several shapes, {sorted(shapes)[:3]}; expected "
            "vectors of one length. Drop the rows whose vector is missing or has another "
            "length."
        )
    rows = np.stack([np.asarray(entry) for entry in entries])
    kind = str(getattr(column, "type", getattr(column, "dtype", "")))
    return rows.astype(np.float32) if NARROW.search(kind) else rows


def is_dask(X: Any) -> bool:
    """Whether ``X`` is a dask collection, without importing dask."""
    return callable(getattr(X, "__dask_graph__", None))


def check_dask(X: Any) -> None:
    """Raise a ValueError for a dask collection that is not a two-dimensional array."""
    import dask.array as da

    if not isinstance(X, da.Array) or X.ndim != 2:
        shape = f" of shape {X.shape}" if isinstance(X, da.Array) else ""
        raise ValueError(
            f"Got a dask {type(X).__name__}{shape}; expected a dask array of shape (n_samples, "
            "n_features). Convert a frame with to_dask_array()."
        )


def unmasked(values: Any) -> Any:
    """Return values with NaN where a masked array is masked, so that checks find them."""
    if isinstance(values, np.ma.MaskedArray):
        return np.ma.filled(values.astype(np.float64), np.nan)
    return values
