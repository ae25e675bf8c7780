"""From moments to a whitening: shrinkage, noise, numerical rank and the dimensions kept."""

from __future__ import annotations

import warnings
from numbers import Integral

import numpy as np

from skcalib._moments import Moments, ledoit_wolf_shrinkage
from skcalib._spectrum import WhiteningMap, decompose

__all__ = ["solve"]

# Samples per feature below which whitening amplifies sampling error: at 5 of them, the
# smallest of equal eigenvalues come out at (1 - sqrt(1/5))^2 = 0.3 of their value
# (Marchenko & Pastur).
SAMPLES_PER_FEATURE = 5

# The constants of `noise_level`: chosen on 55 hidden states of two encoders, 384 and 768 wide,
# and two tasks. docs/results.md tells how, and what else was tried.
NOISE, CONE, CONCENTRATION = 2.4, 1 / 3, 8.0


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
    """Decompose the covariance and decide which part of it is kept.

    Parameters
    ----------
    moments : Moments
    spectrum : tuple of ndarray or None
        What `decompose` gives for the covariance, where it is known already.
    n_components, method, power, noise, shrinkage, tol
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
    estimates = "auto" in (shrinkage, noise)
    _check_digits(total_variance, power=4 if estimates else 2)
    if estimates:
        # Noise is chosen for the population's spectrum, so the sample's is corrected too.
        asked = 0.0 if shrinkage == "auto" else shrinkage
        shrinkage = max(asked, ledoit_wolf_shrinkage(moments))
    shrinkage = float(shrinkage)
    regularised = (1 - shrinkage) * variance + shrinkage * total_variance / d
    noise = noise_level(moments.mean, regularised) if noise == "auto" else float(noise)
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


def noise_level(mean: np.ndarray, eigenvalues: np.ndarray) -> float:
    """Noise for ``noise="auto"``, in units of the mean eigenvalue.

    ``2.4 (1 - c)^(1/3) min(1, 8 r / d)³``, where ``c = |mean|² / (|mean|² + tr Σ)`` is the mean
    cosine of two samples and r the effective rank, the exponential of the entropy of the
    eigenvalues' shares. A wide cone (c near 0) is the work of training for similarity: its weak
    directions are noise. In a narrow one (c near 1), as of [CLS] in inner layers, they hold
    what tells texts apart. Where a few directions hold nearly all the variance (r far below
    d / 8), the mean eigenvalue is theirs and says nothing of the others.
    """
    total = eigenvalues.sum()
    share = eigenvalues[eigenvalues > 0] / total
    effective_rank = np.exp(-(share @ np.log(share)))
    spread = total / (float(mean @ mean) + total)  # 1 - c
    concentration = min(1.0, CONCENTRATION * effective_rank / len(mean))
    return float(NOISE * spread**CONE * concentration**3)


def _check_digits(total_variance, power):
    """Refuse moments of a ``power`` so small that float64 has lost their digits."""
    least = (np.finfo(np.float64).tiny / np.finfo(np.float64).eps) ** (2 / power)
    if 0 < total_variance < least:
        raise ValueError(
            f"X varies so little, {total_variance**0.5:.3g} in all, that powers of it "
            f"underflow float64. Scale X up first, to more than {least**0.5:.0e}."
        )


def _warn_of_few_samples(n, d, rank, surplus_of):
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


def _n_kept(n_components, rank, share):
    """Resolve `n_components` to a number of axes."""
    if n_components is None:
        return rank
    if isinstance(n_components, Integral):
        return int(n_components)
    return min(rank, int(np.searchsorted(np.cumsum(share), n_components)) + 1)
