"""How strongly weak directions count: shrinkage, noise and power, as given or chosen."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from skcalib._covariance.moments import Moments, ledoit_wolf_shrinkage

# Chosen on layers of several encoders, 384 and 768 wide; docs/results.md shows how.
LARGEST_SHARE = 1 / 80
SPREAD_RANK = 120
CONE_POWER = 1 / 3
# Little is changed where the variance spreads over many directions, in a wide enough cone: from
# not at all to fully, by entropy rank and by one minus the mean cosine. In cones that only
# training makes so wide, fewer directions suffice.
FLAT_RANKS, WIDE_CONES = (125, 160), (0.13, 0.155)
TRAINED_CONES, TRAINED_RANKS = (0.7, 0.8), 60
FLAT_POWER, FLAT_NOISE = 0.1, 0.08
TOLD_POWER = 0.5


@dataclass(frozen=True)
class Regularized:
    """A spectrum after shrinkage, and the parameters in use."""

    eigenvalues: np.ndarray  # Λ
    total: float  # variance of the sample, tr Σ
    shrinkage: float
    noise: float  # as a share of the total variance
    power: float

    def gain(self) -> np.ndarray:
        """``g(λ) = λ^(-power/2) λ / (λ + noise tr Σ)``: whitening times a Wiener filter."""
        values = self.eigenvalues
        return values ** (-self.power / 2) * (values / (values + self.noise * self.total))


@dataclass(frozen=True)
class Regularization:
    """Parameters of `Whitening` that say how strongly weak directions count."""

    shrinkage: float | str = 0.0
    noise: float | str = 0.0
    power: float | str = "auto"
    n_groups: int | None = None

    def __post_init__(self) -> None:
        if self.n_groups is None:
            return
        for name in ("noise", "power"):
            if (value := getattr(self, name)) != "auto":
                raise ValueError(
                    f"Got n_groups={self.n_groups} and {name}={value!r}; n_groups "
                    f"chooses the {name}. Set {name}='auto', or leave out n_groups."
                )

    def of(self, moments: Moments, variance: np.ndarray) -> Regularized:
        """Apply to a sample, whose covariance has the eigenvalues ``variance`` (d,)."""
        estimates = "auto" in (self.shrinkage, self.noise)
        total = float(variance.sum())
        _check_underflow(total, order=4 if estimates else 2)
        shrinkage = 0.0 if self.shrinkage == "auto" else float(self.shrinkage)
        if estimates:
            # Noise is chosen for the population's spectrum, so the sample's is corrected too.
            shrinkage = max(shrinkage, ledoit_wolf_shrinkage(moments))
        eigenvalues = (1 - shrinkage) * variance + shrinkage * total / len(variance)
        if self.noise != "auto":
            power = 1.0 if self.power == "auto" else self.power
            return Regularized(eigenvalues, total, shrinkage, float(self.noise), float(power))
        power, factor = self._power_and_factor(moments.mean, eigenvalues)
        # Shrinkage has corrected sampling error already; noise would correct it once more.
        noise = factor * (1 - shrinkage) * noise_level(moments.mean, eigenvalues)
        return Regularized(eigenvalues, total, shrinkage, noise, power)

    def _power_and_factor(
        self, mean: np.ndarray, eigenvalues: np.ndarray
    ) -> tuple[float, float]:
        """Choose the power for a population, and the noise beside it.

        Noise is a multiple of `noise_level`, which fits a power of 1: the weaker directions are
        amplified, the more noise it takes to fade them.
        """
        if self.n_groups is not None:
            return TOLD_POWER, max(0.4, (20 / self.n_groups) ** 1.3)
        if self.power == "auto":
            width = cone_width(mean, eigenvalues)
            trained = TRAINED_RANKS * np.interp(width, TRAINED_CONES, (0, 1))
            flat = np.interp(entropy_rank(eigenvalues) + trained, FLAT_RANKS, (0, 1))
            flat *= np.interp(width, WIDE_CONES, (0, 1))
            power = float(1 + flat * (FLAT_POWER - 1))
        else:
            power = float(self.power)
        return power, FLAT_NOISE ** ((1 - power) / (1 - FLAT_POWER))


def entropy_rank(eigenvalues: np.ndarray) -> float:
    """Over how many directions the variance spreads: exp of the entropy of their shares.

    (`skcalib.metrics.effective_rank` takes shares of the singular values instead, and is
    larger.)
    """
    share = eigenvalues[eigenvalues > 0] / eigenvalues.sum()
    return float(np.exp(-(share @ np.log(share))))


def cone_width(mean: np.ndarray, eigenvalues: np.ndarray) -> float:
    """One minus the mean cosine of two samples, ``|mean|² / (|mean|² + tr Σ)``."""
    total = float(eigenvalues.sum())
    return total / ((float(mean @ mean) + total) or 1.0)


def noise_level(mean: np.ndarray, eigenvalues: np.ndarray) -> float:
    """Noise of a population, as a share of its total variance, for a power of 1.

    Training for similarity spreads the variance over many directions, and the weak ones are
    noise. If a few directions hold nearly all of it, or the cone is narrow, as in inner layers,
    weak directions distinguish texts. docs/mathematics.md has the formula.
    """
    fades = min(1.0, entropy_rank(eigenvalues) / SPREAD_RANK)
    return cone_width(mean, eigenvalues) ** CONE_POWER * fades * LARGEST_SHARE


def _check_underflow(total_variance: float, order: int) -> None:
    """Raise a ValueError if float64 has lost digits of moments of this ``order``."""
    least = (np.finfo(np.float64).tiny / np.finfo(np.float64).eps) ** (2 / order)
    if 0 < total_variance < least:
        raise ValueError(
            f"X varies so little, {total_variance**0.5:.3g} in all, that powers of it "
            f"underflow float64. Scale X up first, to more than {least**0.5:.0e}."
        )
