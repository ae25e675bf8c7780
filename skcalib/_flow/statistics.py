"""Statistics of the training rows that a flow is standardised by."""

from __future__ import annotations

import math
from functools import reduce

import numpy as np
from sklearn.utils import gen_batches

from skcalib._covariance.moments import Moments
from skcalib._covariance.noise import regularise, whitening_gain
from skcalib._covariance.spectrum import decompose, rounding_error

__all__ = ["column_moments", "principal_axes"]

# Rows of a float64 copy, few enough to stay in the cache.
MOMENT_ROWS = 256

# Rows of a copy whose scatter matrix is merged with that of the others.
SCATTER_ROWS = 8192

# Smallest value whose square keeps full precision.
LEAST_SPREAD = math.sqrt(np.finfo(np.float64).tiny / np.finfo(np.float64).eps)


@np.errstate(over="ignore", invalid="ignore")  # an overflow shows in the result
def column_moments(X: np.ndarray, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Mean and standard deviation of the columns of X over the given rows, in float64.

    Blocks are measured from the first row, so that a large common mean costs no digits and
    a constant column has a deviation of exactly 0. Blocks merge as in Chan, Golub & LeVeque
    (1983). Where squares of the differences underflow, a ValueError is raised.
    """
    n, spread = 0, 0.0
    mean, scatter = np.zeros(X.shape[1]), np.zeros(X.shape[1])
    origin = X[rows[0]].astype(np.float64)
    for part in gen_batches(len(rows), MOMENT_ROWS):
        block = X[rows[part]] - origin
        spread = max(spread, float(np.abs(block).max()))
        total = n + len(block)
        block_mean = block.mean(axis=0)
        block -= block_mean
        shift = block_mean - mean
        scatter += np.einsum("ij,ij->j", block, block) + shift**2 * (n * len(block) / total)
        mean += shift * (len(block) / total)
        n = total
    if 0 < spread < LEAST_SPREAD:
        raise ValueError(
            f"X varies by no more than {spread:.3g}, whose square underflows float64. Scale X "
            "to about 1."
        )
    return origin + mean, np.sqrt(scatter / n)


@np.errstate(over="ignore", invalid="ignore")  # an overflow shows in the result
def principal_axes(
    X: np.ndarray, rows: np.ndarray, noise: float | str
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray, float]:
    """Principal axes of X over the given rows, and how a filter of noise weighs them.

    Returns
    -------
    mean : ndarray of shape (d,)
    deviation : ndarray of shape (d,)
        Along the axes; 0 beyond the numerical rank.
    axes : ndarray of shape (d, d)
        In columns.
    whitening : ndarray of shape (d,)
        Gain of ``Whitening(noise=noise)`` along the axes, positive.
    noise : float
        In units of the mean eigenvalue, chosen if "auto".
    """
    parts = (Moments.from_array(X[rows[part]]) for part in gen_batches(len(rows), SCATTER_ROWS))
    moments = reduce(Moments.merge, parts)
    if not (np.isfinite(moments.quartic) and np.isfinite(moments.scatter).all()):
        raise ValueError("X is so large that its squares overflow float64. Scale X to about 1.")
    variance, axes = decompose(moments.covariance())
    if not variance[0] > 0:
        raise ValueError(
            f"All {moments.n} samples are equal: noise={noise!r} needs samples that differ. "
            "Fit on such, or set noise=0."
        )
    eigenvalues, _, noise = regularise(moments, variance, 0.0, noise)
    # Eigenvalues below it are rounding errors, of either sign before `decompose` cut them off.
    least = rounding_error(variance)
    deviation = np.sqrt(np.where(variance > least, variance, 0.0))
    # The gain of a direction without variance is a limit.
    whitening = whitening_gain(np.maximum(eigenvalues, least), noise * variance.mean())
    return moments.mean, deviation, axes, whitening, noise
