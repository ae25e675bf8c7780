"""Statistics of the training rows, by which a flow is standardized."""

import math
from dataclasses import replace
from functools import reduce

import numpy as np
from sklearn.preprocessing import StandardScaler
from sklearn.utils import gen_batches

from skcalib.calibration.moments import Moments, decompose, rounding_error
from skcalib.calibration.noise import Regularization, Regularized

TOO_LARGE = (
    "X has entries whose squares overflow float64. Scale X to about 1, or drop such rows if "
    "they are few."
)


@np.errstate(over="ignore", invalid="ignore")  # an overflow shows in the result
def column_moments(X: np.ndarray, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Mean and standard deviation of the columns of X over the given rows, in float64.

    `Moments` would also sum products of columns, which can take longer than the training.
    Differences are from the first row, so that a constant column has a deviation of exactly 0.
    """
    origin, scaler, spread = X[rows[0]].astype(np.float64), StandardScaler(), 0.0
    for part in gen_batches(len(rows), 1024):
        block = X[rows[part]] - origin
        spread = max(spread, float(np.abs(block).max()))
        scaler.partial_fit(block)
    if not np.isfinite(scaler.var_).all():
        raise ValueError(TOO_LARGE)
    if 0 < spread < math.sqrt(np.finfo(np.float64).tiny / np.finfo(np.float64).eps):
        raise ValueError(
            f"X varies by no more than {spread:.3g}, whose square underflows float64. Scale X "
            "to about 1."
        )
    return origin + scaler.mean_, np.sqrt(scaler.var_)


@np.errstate(over="ignore", invalid="ignore")  # an overflow shows in the result
def principal_axes(
    X: np.ndarray, rows: np.ndarray, strength: Regularization
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray, Regularized]:
    """Principal axes of X over the given rows, and the weight of each in the noise filter.

    Returns the mean (d,), the deviation along the axes (d,), 0 beyond the numerical rank, the
    axes in columns (d, d), their positive gain (d,), and the regularization in use. The gain is
    that of a `Whitening`; with a power below 1, in units of the largest deviation, since the
    networks of a flow expect entries of about 1.
    """
    parts = (Moments.from_array(X[rows[part]]) for part in gen_batches(len(rows), 8192))
    moments = reduce(Moments.merge, parts)
    if not (np.isfinite(moments.quartic) and np.isfinite(moments.scatter).all()):
        raise ValueError(TOO_LARGE)
    variance, axes = decompose(moments.covariance())
    if not variance[0] > 0:
        raise ValueError(
            f"All {moments.n} samples are equal: noise={strength.noise!r} needs samples that "
            "differ. Fit on other samples, or set noise=0."
        )
    regularized = strength.of(moments, variance)
    # Smaller eigenvalues are rounding errors; `decompose` has set the negative ones to 0.
    least = rounding_error(variance)
    deviation = np.sqrt(np.where(variance > least, variance, 0.0))
    # A direction without variance has a gain in the limit only.
    bounded = replace(regularized, eigenvalues=np.maximum(regularized.eigenvalues, least))
    unit = bounded.eigenvalues[0] ** ((1 - regularized.power) / 2)
    return moments.mean, deviation, axes, bounded.gain() / unit, regularized
