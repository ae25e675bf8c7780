"""Rows as vectors: their lengths and directions, and missing entries."""

import re
from collections.abc import Sequence
from typing import Any

import numpy as np
from sklearn import get_config
from sklearn.utils.validation import validate_data

from skcalib._base import warn
from skcalib._labels import plain

LAST_BIT = 2.0**-24  # of float32 below 1
# Columns of polars and of pyarrow whose entries have no more digits than float32.
NARROW = re.compile("(?i)float(32|16)|halffloat|: float>")


@np.errstate(over="ignore", invalid="ignore")
def unit_rows(vectors: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Scale rows of any magnitude to unit length; return them and their lengths, in float64.

    A zero row stays zero. A row that is not finite becomes NaN.
    """
    largest = np.maximum(vectors.max(axis=1), -vectors.min(axis=1)).astype(np.float64)
    # Where the largest entry is 1, no square overflows, and their sum does not underflow.
    unit = vectors / np.where(largest > 0, largest, 1.0)[:, None]
    lengths = np.sqrt(np.maximum(np.einsum("ij,ij->i", unit, unit), 1.0))
    unit /= lengths[:, None]
    return unit, largest * lengths


def warn_of_silent(silent: Any, caller: str, texts: Sequence[str] = ()) -> None:
    """Warn of ``texts`` without content, or of zero vectors if there are none."""
    if not silent.any():
        return
    row, found = int(silent.argmax()), f"{silent.sum():,} of {len(silent):,}"
    if len(texts):
        found += (
            f" texts say nothing to the encoder, such as {texts[row]!r:.40}: they are blank, "
        )
        found += "have unknown tokens alone, or zero vectors"
    else:
        found += f" vectors are zero, such as that of row {row}"
    warn(f"{found}. For {caller} they are similar to no other.")


def comparable(cosines: np.ndarray) -> np.ndarray:
    """Round cosines of float64 to multiples of 2**-24, so that equal ones compare as equal.

    Their last bits depend on the machine and on what else is in the block, also next to 0.
    """
    return (np.rint(cosines / LAST_BIT) * LAST_BIT).astype(np.float32)


def unmasked(values: Any) -> Any:
    """Return values with NaN where a masked array is masked, so that checks find it."""
    if isinstance(values, np.ma.MaskedArray):
        return np.ma.filled(values.astype(np.float64), np.nan)
    return values


def checked_rows(estimator: Any, X: Any, *, reset: bool, **limits: int) -> np.ndarray:
    """Rows of an estimator's input in float64 or float32, checked as scikit-learn does."""
    X, dtypes = checkable(X, type(estimator).__name__), [np.float64, np.float32]
    return validate_data(estimator, X, dtype=dtypes, reset=reset, **limits)


def checkable(X: Any, caller: str, *, tensors: bool = False) -> Any:
    """Return rows for scikit-learn's checks; refuse texts, and tensors unless ``tensors``.

    Columns of vectors are stacked. Numbers of 16 bits become float32, and a tensor loses its
    gradient, and its device unless tensors stay tensors.
    """
    X = stacked(X, caller)
    is_numpy = isinstance(X, np.ndarray)
    if isinstance(X, list | tuple) or hasattr(X, "to_numpy") or (is_numpy and X.ndim):
        entry = next(iter(np.array(X[:1], dtype=object).ravel()), None)
        if isinstance(entry, str):
            raise TypeError(
                f"{caller} got texts, such as {str(entry)!r:.40}; it expects vectors. Put an "
                "encoder before it, such as make_pipeline(BertEncoder(), ...)."
            )
    if (
        not (tensors or is_numpy)
        and get_config()["array_api_dispatch"]
        and hasattr(X, "device")
    ):
        raise TypeError(
            f"{caller} got a {type(X).__name__}, but of the steps only Whitening computes on "
            "tensors. Pass an array, such as X.cpu().numpy()."
        )
    if hasattr(X, "detach"):
        X = X.detach()
        X = X.float() if X.dtype.itemsize < 4 and X.dtype.is_floating_point else X
        return X if get_config()["array_api_dispatch"] else X.cpu().numpy()
    dtypes = [X.dtype] if hasattr(X, "dtype") else [*getattr(X, "dtypes", [])]
    if dtypes and all(str(dtype).lower() in ("float16", "bfloat16") for dtype in dtypes):
        X = X.astype(np.float32)
    return unmasked(X)


def stacked(X: Any, caller: str) -> Any:
    """Return the vectors of a column of vectors as rows; anything else as it is.

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
            f"{caller} got a column of vectors of several shapes, {sorted(shapes)[:3]}. Give "
            "vectors of one length, and leave out missing ones."
        )
    rows = np.stack([np.asarray(entry) for entry in entries])
    kind = str(getattr(column, "type", getattr(column, "dtype", "")))
    return rows.astype(np.float32) if NARROW.search(kind) else rows
