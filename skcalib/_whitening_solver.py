"""From moments to a whitening: shrinkage, numerical rank and the dimensions kept."""

from __future__ import annotations

import warnings
from numbers import Integral

import numpy as np

from skcalib._moments import Moments, ledoit_wolf_shrinkage
from skcalib._spectrum import WhiteningMap, decompose

__all__ = ["solve"]


def solve(
    moments: Moments,
    spectrum: tuple[np.ndarray, np.ndarray] | None = None,
    *,
    n_components: int | float | None,
    method: str,
    power: float,
    shrinkage: float | str,
    tol: float | None,
) -> WhiteningMap:
    """Decompose the covariance and decide which part of it is kept.

    Parameters
    ----------
    moments : Moments
    spectrum : tuple of ndarray or None
        What `decompose` gives for the covariance, where it is known already.
    n_components, method, power, shrinkage, tol
        As in `Whitening`, validated.

    Raises
    ------
    ValueError
        If there are too few samples, or all are equal.
    """
    n, d = moments.n, len(moments.mean)
    if n < 2 and isinstance(n, int):
        raise ValueError(
            f"Whitening has seen n_samples={n}; a covariance needs at least 2. "
            "Fit on more samples."
        )
    if n <= 1:
        raise ValueError(
            f"sample_weight sums to {n:.6g}; weights count repetitions of samples, and a "
            "covariance needs a sum above 1. Multiply the weights by the sample size."
        )
    variance, basis = spectrum or decompose(moments.covariance())
    total_variance = float(variance.sum())
    _check_digits(total_variance, power=4 if shrinkage == "auto" else 2)
    if shrinkage == "auto":
        shrinkage = ledoit_wolf_shrinkage(moments)
    shrinkage = float(shrinkage)
    regularised = (1 - shrinkage) * variance + shrinkage * total_variance / d
    tol = d * np.finfo(np.float64).eps if tol is None else tol
    rank = int(np.count_nonzero(regularised > tol * regularised[0]))
    if shrinkage == 0 and isinstance(n, int):
        rank = min(rank, n - 1)  # centring uses up one sample
    if rank == 0:
        raise ValueError(
            f"All {n} samples are equal: there is no direction to whiten. "
            "Fit on samples that differ."
        )
    _warn_of_low_rank(n_components, rank, n, d)
    return WhiteningMap(
        mean=moments.mean,
        basis=np.ascontiguousarray(basis[:, :rank]),
        variance=variance[:rank],
        regularised=regularised[:rank],
        total_variance=total_variance,
        shrinkage=shrinkage,
        power=float(power),
        n_components=_width(n_components, method, rank, variance / total_variance),
    )


def _check_digits(total_variance, power):
    """Refuse moments of a ``power`` so small that float64 has lost their digits."""
    least = (np.finfo(np.float64).tiny / np.finfo(np.float64).eps) ** (2 / power)
    if 0 < total_variance < least:
        raise ValueError(
            f"X varies so little, {total_variance**0.5:.3g} in all, that powers of it "
            f"underflow float64. Scale X up first, to more than {least**0.5:.0e}."
        )


def _warn_of_low_rank(n_components, rank, n, d):
    surplus = isinstance(n_components, Integral) and n_components > rank
    too_few = n_components is None and rank < d and n <= d
    if surplus or too_few:
        warnings.warn(
            f"n_samples={n:.10g} of n_features={d} have rank {rank}"
            + (
                f", below n_components={n_components}: the surplus columns are zero."
                if surplus
                else ": directions outside the sample are dropped."
            )
            + " Fit on more samples, keep fewer components, or use shrinkage='auto'.",
            UserWarning,
            stacklevel=5,
        )


def _width(n_components, method, rank, share):
    """Resolve `n_components`; None for "zca", which keeps the input's width."""
    if method == "zca":
        return None
    if n_components is None:
        return rank
    if isinstance(n_components, Integral):
        return int(n_components)
    return min(rank, int(np.searchsorted(np.cumsum(share), n_components)) + 1)
