"""Noise in the spectrum of a sample: how much there is, and the gain that fades it."""

from __future__ import annotations

import numpy as np

from skcalib._covariance.moments import Moments, ledoit_wolf_shrinkage

__all__ = ["noise_level", "regularise", "whitening_gain"]

# Chosen on hidden states of three encoders, 384 and 768 wide; docs/results.md tells how.
LARGEST_SHARE = 1 / 80
SPREAD_RANK = 120
CONE_POWER = 1 / 3


def regularise(
    moments: Moments, variance: np.ndarray, shrinkage: float | str, noise: float | str
) -> tuple[np.ndarray, float, float]:
    """Eigenvalues after shrinkage, and the shrinkage and noise in use.

    ``variance`` are the eigenvalues of the moments' covariance, of shape (d,).
    """
    estimates = "auto" in (shrinkage, noise)
    _check_underflow(float(variance.sum()), order=4 if estimates else 2)
    if estimates:
        # Noise is chosen for the population's spectrum, so the sample's is corrected too.
        asked = 0.0 if shrinkage == "auto" else shrinkage
        shrinkage = max(asked, ledoit_wolf_shrinkage(moments))
    shrinkage = float(shrinkage)
    eigenvalues = (1 - shrinkage) * variance + shrinkage * variance.sum() / len(variance)
    if noise == "auto":
        # Shrinkage has added what sampling explains; of a small sample the noise would be too.
        noise = (1 - shrinkage) * noise_level(moments.mean, eigenvalues)
    return eigenvalues, shrinkage, float(noise)


def noise_level(mean: np.ndarray, eigenvalues: np.ndarray) -> float:
    """Noise of a population, as a share of its total variance.

    ``(1 - c)^(1/3) min(1, r / 120) / 80``, where ``c = |mean|² / (|mean|² + tr Σ)`` is the mean
    cosine of two samples, and r the entropy rank of the eigenvalues, the exponential of the
    entropy of their shares: over how many directions the variance spreads.
    (`skcalib.metrics.effective_rank` takes shares of the singular values instead, and is
    larger.) Training for similarity spreads it over many directions, of which the weak are
    noise. Where a few directions hold nearly all of it, or the cone is narrow (c near 1), as in
    inner layers, weak directions distinguish texts.

    A share of the total variance, as opposed to one of the mean eigenvalue, does not depend on
    the width: zeros appended to every vector add neither variance nor entropy.
    """
    total = eigenvalues.sum()
    share = eigenvalues[eigenvalues > 0] / total
    entropy_rank = np.exp(-(share @ np.log(share)))
    spread = total / (float(mean @ mean) + total)  # 1 - c
    return float(spread**CONE_POWER * min(1.0, entropy_rank / SPREAD_RANK) * LARGEST_SHARE)


def whitening_gain(
    eigenvalues: np.ndarray, noise_variance: float, power: float = 1.0
) -> np.ndarray:
    """``λ^(-power/2) λ / (λ + noise_variance)``: whitening times a Wiener filter."""
    return eigenvalues ** (-power / 2) * (eigenvalues / (eigenvalues + noise_variance))


def _check_underflow(total_variance: float, order: int) -> None:
    """Raise a ValueError if float64 has lost digits of moments of this ``order``."""
    least = (np.finfo(np.float64).tiny / np.finfo(np.float64).eps) ** (2 / order)
    if 0 < total_variance < least:
        raise ValueError(
            f"X varies so little, {total_variance**0.5:.3g} in all, that powers of it "
            f"underflow float64. Scale X up first, to more than {least**0.5:.0e}."
        )
