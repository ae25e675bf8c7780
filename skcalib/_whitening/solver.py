"""From moments to a whitening: shrinkage, noise, numerical rank and the dimensions kept."""

from __future__ import annotations

import numpy as np

from skcalib._base import warn
from skcalib._covariance.moments import Moments
from skcalib._covariance.noise import regularise
from skcalib._covariance.spectrum import decompose, rounding_error
from skcalib._whitening.linear_map import WhiteningMap

__all__ = ["solve", "spectrum_of", "warn_of_few_samples"]

# Samples per feature below which whitening amplifies sampling error. With 5, the smallest
# estimate of equal eigenvalues is (1 - sqrt(1/5))^2 = 0.3 of their value (Marchenko & Pastur).
SAMPLES_PER_FEATURE = 5


def spectrum_of(moments: Moments) -> tuple[np.ndarray, np.ndarray]:
    """Decompose the covariance, or raise a ValueError where the samples are too few for one."""
    n = moments.n
    if n < 2 and isinstance(n, int):
        raise ValueError(
            f"Whitening has seen n_samples={n}; a covariance needs at least 2. "
            "Fit on more samples."
        )
    if n <= 1:
        raise ValueError(
            f"sample_weight sums to {n:.6g}; weights count repetitions of samples, where zero "
            "leaves one out, and a covariance needs a sum above 1. Multiply the weights by the "
            "sample size."
        )
    return decompose(moments.covariance())


def solve(
    moments: Moments,
    spectrum: tuple[np.ndarray, np.ndarray],
    *,
    n_components: int | float | None,
    method: str,
    power: float,
    noise: float | str,
    shrinkage: float | str,
    tol: float | None,
) -> WhiteningMap:
    """Decide which axes to keep, for parameters of `Whitening` that are validated.

    ``spectrum`` is what `spectrum_of` the moments returns. A ValueError tells of samples that
    are all equal.
    """
    n, (variance, basis) = moments.n, spectrum
    regularised, shrinkage, noise = regularise(moments, variance, shrinkage, noise)
    if tol is None:
        least = np.maximum(rounding_error(regularised), moments.rounding(basis))
    else:
        least = tol * regularised[0]
    axes = np.flatnonzero(regularised > least)
    if shrinkage == 0 and isinstance(n, int):
        axes = axes[: n - 1]  # centring uses up one sample
    rank = len(axes)
    if rank == 0:
        raise ValueError(
            f"All {n} samples are equal: there is no direction to whiten. "
            "Fit on samples that differ."
        )
    return WhiteningMap(
        mean=moments.mean.copy(),  # torch warns of arrays that it may not write to
        basis=np.ascontiguousarray(basis[:, axes]),
        variance=variance[axes],
        regularised=regularised[axes],
        total_variance=float(variance.sum()),
        shrinkage=shrinkage,
        power=float(power),
        noise=noise,
        n_components=_n_kept(n_components, rank, variance[axes] / variance.sum()),
        method=method,
    )


def warn_of_few_samples(n: int | float, linear: WhiteningMap) -> None:
    """Warn of what a map suffers from the small number of its samples, if it does."""
    d = len(linear.mean)
    bare = linear.noise == 0 and linear.shrinkage == 0 and linear.power > 0
    if linear.surplus:
        consequence = (
            f"have rank {linear.rank}, below n_components={linear.n_components}: the surplus "
            "columns are zero"
        )
    elif not bare or n >= SAMPLES_PER_FEATURE * d:
        return
    elif linear.rank < d and n <= d:
        consequence = f"have rank {linear.rank}: directions outside the sample are dropped"
    else:
        consequence = (
            f"are fewer than {SAMPLES_PER_FEATURE} for each feature: weak directions are "
            "sampling error for the most part, and whitening amplifies them"
        )
    warn(
        f"n_samples={n:.10g} of n_features={d} {consequence}. Set noise='auto', or fit on "
        f"{SAMPLES_PER_FEATURE * d} samples or more."
    )


def _n_kept(n_components: int | float | None, rank: int, share: np.ndarray) -> int:
    """Resolve `n_components` to a number of axes."""
    if n_components is None:
        return rank
    if n_components >= 1:
        return int(n_components)
    return min(rank, int(np.searchsorted(np.cumsum(share), n_components)) + 1)
