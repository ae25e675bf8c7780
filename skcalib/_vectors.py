"""Rows as vectors: their lengths and directions, and missing entries."""

from __future__ import annotations

from typing import Any

import numpy as np

__all__ = ["comparable", "unit_rows", "unmasked"]

LAST_BIT = 2.0**-24  # of float32 below 1


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
