"""Rows as vectors: their lengths and directions, and missing entries."""

from collections.abc import Sequence
from typing import Any, NoReturn

import numpy as np
from sklearn.utils import gen_batches
from sklearn.utils.validation import assert_all_finite, check_array, validate_data

from skcalib.base import warn
from skcalib.inputs.containers import checkable

UNIT = 1e-3  # how far from 1 the mean square of unit vectors may be, for instance in float16
SEEN = 16  # rows whose lengths are compared with those of the fit
SCALED = 8192  # rows that are scaled to unit length at a time, in float64
LAST_BIT = 2.0**-24  # of float32 below 1
# Tolerance for equal unit vectors; width and number of the random projections.
ROUNDING, CELL, PROJECTIONS = 1e-5, 1e-3, 4


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


def unit_vectors(vectors: np.ndarray) -> np.ndarray:
    """Scale rows to unit length, in float32; zero rows stay zero."""
    unit = np.empty(vectors.shape, np.float32)
    for rows in gen_batches(len(unit), SCALED):
        unit[rows] = unit_rows(vectors[rows])[0] + 0.0  # no negative zeros
    return unit


def equal_rows(X: np.ndarray, keys: Any = None) -> np.ndarray:
    """Return the place of the first row with the direction of each, and its key, if any.

    Copies differ in the last bits after a product in float32. So rows are compared that are in
    one cell of a few random projections; a border of cells separates 1 in 2,000 copies.
    """
    unit = unit_rows(X)[0]
    seen = unit @ np.random.default_rng(0).normal(size=(X.shape[1], PROJECTIONS))
    cells = np.column_stack([np.floor(seen / CELL), np.zeros(len(X)) if keys is None else keys])
    _, first, number = np.unique(cells, axis=0, return_index=True, return_inverse=True)
    first = first[number.ravel()]
    is_equal = np.linalg.norm(unit - unit[first], axis=1) <= ROUNDING
    return np.where(is_equal, first, np.arange(len(X)))


def distinct_vectors(X: np.ndarray) -> np.ndarray:
    """Return the rows that differ, of equal ones the first, in their order."""
    is_first = equal_rows(X) == np.arange(len(X))
    return X if is_first.all() else X[is_first]


def warn_of_silent(silent: Any, texts: Sequence[str] = ()) -> None:
    """Warn of ``texts`` without content, or of zero vectors if ``texts`` is empty."""
    if not silent.any():
        return
    row, fault = int(silent.argmax()), "vectors are zero, such as row {}"
    if len(texts):
        fault = "texts have no content for the encoder, such as {!r:.40}: they are blank, "
        fault += "contain only unknown tokens, or have zero vectors"
    example = fault.format(texts[row] if len(texts) else row)
    warn(f"{silent.sum():,} of {len(silent):,} {example}. They are similar to no other.")


def warn_of_lengths(X: Any, mean_square: float) -> None:
    """Warn if either ``X`` or the fitted vectors have unit length, and the others do not.

    ``mean_square`` is the mean of the squared lengths of the fit. Other lengths than 1 differ
    between domains by up to three times, so that they say nothing.
    """
    if not isinstance(X, np.ndarray):  # but of dask
        return
    rows = X[:: len(X) // SEEN + 1]
    squares = np.einsum("ij,ij->i", rows, rows, dtype=np.float64)
    squares = squares[squares > 0]
    were_unit = abs(mean_square - 1) < UNIT
    if not len(squares) or (1 - UNIT < squares.min() <= squares.max() < 1 + UNIT) == were_unit:
        return
    usual = float(np.median(squares))
    if not 0.25 < usual / mean_square < 4:
        warn(
            f"The vectors have lengths of about {np.sqrt(usual):.3g}, and those of the fit had "
            f"{np.sqrt(mean_square):.3g}: only one of the two has unit length. Pass vectors by "
            "the same model and settings as in the fit, or scale both to unit length."
        )


def comparable(cosines: np.ndarray) -> np.ndarray:
    """Round cosines of float64 to multiples of 2**-24, so that equal ones compare as equal.

    Their last bits depend on the machine and on the other rows of the block, even near 0.
    """
    return (np.rint(cosines / LAST_BIT) * LAST_BIT).astype(np.float32)


def checked_rows(estimator: Any, X: Any, *, reset: bool, **limits: int) -> np.ndarray:
    """Rows of an estimator's input in float64 or float32, checked as scikit-learn does."""
    X, dtypes = checkable(X), [np.float64, np.float32]
    X = validate_data(
        estimator, X, dtype=dtypes, reset=reset, ensure_all_finite=False, **limits
    )
    check_finite(X)
    return X


def check_vectors(X: Any, *, name: str = "X", dtype: Any = np.float64, **limits: int) -> Any:
    """Return the finite vectors that a function got as an array (n, d) of ``dtype``."""
    X = check_array(
        checkable(X), dtype=dtype, input_name=name, ensure_all_finite=False, **limits
    )
    check_finite(X, name)
    return X


def check_finite(X: Any, name: str = "X", texts: Sequence[str] = ()) -> None:
    """Raise a ValueError that names the first row with NaN or infinity, or its text."""
    try:
        assert_all_finite(X, input_name=name)
    except ValueError as error:
        cells = np.asarray(X)
        row = int(np.isfinite(cells).reshape(len(cells), -1).all(axis=1).argmin())
        which = f"the vector of {texts[row]!r:.60}" if len(texts) else f"row {row}"
        fault = str(error).partition("\n")[0].rstrip(".")
        raise ValueError(
            f"{fault}, first in {which}. Drop such rows, or compute them again."
        ) from None


def refuse_not_finite(X: np.ndarray, overflow: str) -> NoReturn:
    """Raise a ValueError that explains why a result of the rows ``X`` is not finite."""
    check_finite(X)
    remedy = ", or pass it as float64" if str(X.dtype).endswith("float32") else ""
    raise ValueError(
        f"{overflow}: the largest magnitude in X is {float(abs(X).max()):.3g}. Scale X "
        f"down{remedy}."
    )
