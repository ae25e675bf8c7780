"""Labels from any container as Python values."""

from collections.abc import Mapping, Set
from typing import Any

import numpy as np

from skcalib.compat import is_pandas_na, is_scalar_nan


def plain(values: Any) -> Any:
    """Return the entries of an array, or of a column of pandas, polars or pyarrow."""
    for name in ("tolist", "to_list", "to_pylist"):
        if hasattr(values, name):
            return getattr(values, name)()
    return values


def is_missing(entry: Any) -> bool:
    """Whether an entry, a text or a label, is None, NaN or pandas.NA."""
    return entry is None or is_scalar_nan(entry) or is_pandas_na(entry)


def labels_of(labels: Any, source: str, *, missing: bool = False) -> list[Any]:
    """Return labels as Python values; with ``missing``, missing ones become None."""
    is_frame = hasattr(labels, "columns") or getattr(labels, "ndim", 1) != 1
    if isinstance(labels, str | Mapping | Set) or is_frame:
        raise TypeError(
            f"{source} is of type {type(labels).__name__}; expected a list, a 1-D array or a "
            "Series of labels. Wrap a single label in a list, flatten a column with ravel(), "
            "and select one column of a frame."
        )
    listed = [
        entry.item() if isinstance(entry, np.generic) else entry for entry in plain(labels)
    ]
    listed = [None if is_missing(entry) else entry for entry in listed]
    if None in listed and not missing:
        raise ValueError(f"{source} has a missing label. Drop it, or replace it with a label.")
    return listed
