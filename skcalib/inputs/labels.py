"""Labels from any container as exact Python values, none of them merged silently."""

from collections.abc import Hashable, Mapping, Set
from numbers import Number
from typing import Any

import numpy as np


def plain(values: Any) -> Any:
    """Return the entries of an array, or of a column of pandas, polars or pyarrow."""
    for name in ("tolist", "to_list", "to_pylist"):
        if hasattr(values, name):
            return getattr(values, name)()
    return values


def is_missing(entry: Any) -> bool:
    """Whether an entry, a text or a label, is None, NaN or pandas.NA."""
    if entry is None or getattr(entry, "shape", None):  # a Series, an array
        return entry is None
    try:
        return bool(entry != entry)
    except TypeError:  # pandas.NA
        return True
    except (ValueError, RuntimeError):  # an array, a tensor
        return False


def _one_column(labels: Any) -> str:
    """Return what to do with labels in two dimensions."""
    if not hasattr(labels, "columns"):
        return "Flatten a column with ravel()"
    name = next(iter(labels.columns), "label")
    return f"Select one column of the frame, as in frame[{name!r}]"


def labels_of(
    labels: Any, source: str, *, missing: bool = False, objects: bool = False
) -> list[Any]:
    """Return labels as Python values; equal values are the same label.

    With ``missing``, missing labels become None; with ``objects``, any object may be a label,
    also one that cannot be hashed. Labels that could merge by mistake are refused: True equals
    1, and large floats may be rounded.
    """
    if objects and getattr(labels, "ndim", 1) != 1:
        raise ValueError(
            f"{source} has shape {labels.shape}; expected one entry per row. "
            f"{_one_column(labels)}, or pass rows as a list of lists with tolist()."
        )
    listed = plain(labels)
    if isinstance(listed, str | Mapping | Set) or hasattr(labels, "columns"):
        is_frame = hasattr(labels, "columns")
        remedy = _one_column(labels) if is_frame else "Wrap a single label in a list"
        raise TypeError(
            f"{source} is of type {type(labels).__name__}; expected a list, an array or a "
            f"Series of labels. {remedy}."
        )
    if set(map(type, listed)) in ({str}, {int}):  # the usual cases, quickly checked
        return [*listed]
    unboxed = [x.item() if isinstance(x, np.generic) else x for x in listed]
    unboxed = [None if is_missing(x) else x for x in unboxed]
    for entry, label in zip(listed, unboxed, strict=True):
        if label is None and not missing:
            raise ValueError(
                f"{source} has a missing label, {entry!r}. Drop it, or replace it with a label."
            )
        if not objects and (not isinstance(label, Hashable) or isinstance(label, tuple)):
            raise TypeError(
                f"{source} has the label {label!r:.60}, a {type(label).__name__}; expected a "
                "str or a number. Join its parts into a str, or flatten a column with ravel()."
            )
    kinds = Number if objects else object
    judged = (x for x in unboxed if x is not None and isinstance(x, kinds))
    if len({isinstance(x, bool) for x in judged}) > 1:
        raise ValueError(
            f"{source} mixes True or False with other labels, and True equals 1. Give labels "
            "of one type."
        )
    dtype = getattr(labels, "dtype", None)
    is_float = isinstance(dtype, np.dtype) and dtype.kind == "f"
    bound = 2 / float(np.finfo(dtype if is_float else np.float64).eps)
    if large := [x for x in unboxed if isinstance(x, float) and abs(x) >= bound]:
        raise ValueError(
            f"{source} has the label {large[0]}. Floats of this size are rounded, so different "
            "labels may have become equal. Give such labels as str."
        )
    return unboxed
