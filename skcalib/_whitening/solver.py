"""From moments to a whitening: shrinkage, noise, numerical rank and the dimensions kept."""

from __future__ import annotations

import warnings

import numpy as np

from skcalib._covariance.moments import Moments
from skcalib._covariance.noise import regularise
from skcalib._covariance.spectrum import decompose
from skcalib._whitening.linear_map import WhiteningMap

__all__ = ["solve"]

# Samples per feature below which whitening amplifies sampling error. With 5, the smallest
# estimate of equal eigenvalues is (1 - sqrt(1/5))^2 = 0.3 of their value (Marchenko & Pastur).
SAMPLES_PER_FEATURE = 5


def solve(
    moments: Moments,
    spectrum: tuple[np.ndarray, np.ndarray] | None = None,
    *,
    n_components: int | float | None,
    method: str,
    power: float,
    noise: float | str,
    shrinkage: float | str,
    tol: float | None,
) -> WhiteningMap:
    """Decide which axes to keep, for parameters of `Whitening` that are validated.

    ``spectrum`` is what `decompose` returns for the covariance, if it is known already. A
    ValueError tells of too few samples, or of samples that are all equal.
    """
    n, d = moments.n, len(moments.mean)
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
    variance, basis = spectrum or decompose(moments.covariance())
    total_variance = float(variance.sum())
    regularised, shrinkage, noise = regularise(moments, variance, shrinkage, noise)
    tol = d * np.finfo(np.float64).eps if tol is None else tol
    rank = int(np.count_nonzero(regularised > tol * regularised[0]))
    if shrinkage == 0 and isinstance(n, int):
        rank = min(rank, n - 1)  # centring uses up one sample
    if rank == 0:
        raise ValueError(
            f"All {n} samples are equal: there is no direction to whiten. "
            "Fit on samples that differ."
        )
    kept = _n_kept(n_components, rank, variance / total_variance)
    surplus = method == "pca" and kept > rank
    bare = noise == 0 and shrinkage == 0 and power > 0
    if surplus or (bare and n < SAMPLES_PER_FEATURE * d):
        _warn_of_few_samples(n, d, rank, kept if surplus else None)
    return WhiteningMap(
        mean=moments.mean,
        basis=np.ascontiguousarray(basis[:, :rank]),
        variance=variance[:rank],
        regularised=regularised[:rank],
        total_variance=total_variance,
        shrinkage=shrinkage,
        power=float(power),
        noise=noise,
        n_components=kept,
        rotates_back=method == "zca",
    )


def _warn_of_few_samples(n: int | float, d: int, rank: int, surplus_of: int | None) -> None:
    if surplus_of is not None:
        consequence = (
            f"have rank {rank}, below n_components={surplus_of}: the surplus columns are zero"
        )
    elif rank < d and n <= d:
        consequence = f"have rank {rank}: directions outside the sample are dropped"
    else:
        consequence = (
            f"are fewer than {SAMPLES_PER_FEATURE} for each feature: weak directions are "
            "sampling error for the most part, and whitening amplifies them"
        )
    warnings.warn(
        f"n_samples={n:.10g} of n_features={d} {consequence}. Set noise='auto', or fit on "
        f"{SAMPLES_PER_FEATURE * d} samples or more.",
        UserWarning,
        stacklevel=5,
    )


def _n_kept(n_components: int | float | None, rank: int, share: np.ndarray) -> int:
    """Resolve `n_components` to a number of axes."""
    if n_components is None:
        return rank
    if n_components >= 1:
        return int(n_components)
    return min(rank, int(np.searchsorted(np.cumsum(share), n_components)) + 1)
