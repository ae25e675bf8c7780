"""How strongly mean and weak directions count: centering, shrinkage, noise and power."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from skcalib.calibration.moments import Moments

# The power for a spread of the mean vector, see `mean_spread`, on a logarithmic scale between
# them: [CLS] of inner layers, means of inner layers (both ends), an output trained for cosines.
SPREADS = 0.01, 0.05, 0.35, 0.45
POWERS = 0.5, 0.35, 0.35, 0.0
# Of the variance, beside the mean: so the spread of a mean that is hardly more than sampling
# error is that of the variance.
SHARE_OF_VARIANCE = 0.1
# Number of groups that the default noise assumes, where it amplifies weak directions.
MANY_GROUPS = 250
# From this power on, weak directions are amplified as in inner layers, and need all the noise.
FULL_POWER = 0.35
# Share of the mean that is kept where nothing is amplified. The mean m of a sample lies on the
# side of its largest group, whose vectors lose the direction that they share if all of m is
# subtracted. A kept share r leaves r² of the mean inner product of unrelated vectors, 4 % for a
# fifth: second order in r. Two vectors of the largest group, whose own mean lies δ from m, gain
# 2 r δ·m: first order.
KEPT_OF_MEAN = 0.2
# A direction as strong as this share of one of k equal directions is faded by half.
SHARE_OF_GROUP = 1 / 8
CONE_POWER = 1 / 3
# Amplified more, weak directions take more noise: a power of 1 so many times that of 0.
NOISE_OF_POWER = 20


@dataclass(frozen=True)
class Regularized:
    """A spectrum after shrinkage, and the parameters in use."""

    eigenvalues: np.ndarray  # Λ
    total: float  # variance of the sample, tr Σ
    shrinkage: float
    noise: float  # as a share of the total variance
    power: float
    centering: float  # share of the mean that is subtracted

    @property
    def is_rotation(self) -> bool:
        """Whether g is 1 in every direction, with variance in the sample or without."""
        return self.power == 0 and self.noise == 0

    def gain(self) -> np.ndarray:
        """``g(λ) = λ^(-power/2) λ / (λ + noise tr Σ)``: whitening times a Wiener filter."""
        values = self.eigenvalues
        if self.is_rotation:
            return np.ones_like(values)
        return values ** (-self.power / 2) * (values / (values + self.noise * self.total))


@dataclass(frozen=True)
class Regularization:
    """Parameters of `Whitening` that determine how strongly mean and weak directions count."""

    centering: float | str = "auto"
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
                    f"Got n_groups={self.n_groups} and {name}={value!r}; n_groups needs "
                    f"noise='auto' and power='auto'. Set {name}='auto', or leave out n_groups."
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
            power = 1.0 if self.power == "auto" else float(self.power)
            centering = 1.0 if self.centering == "auto" else float(self.centering)
            return Regularized(
                eigenvalues, total, shrinkage, float(self.noise), power, centering
            )
        variances = np.diag(moments.covariance())  # of the columns
        chosen = neutral_power(mean_spread(moments.mean, variances))
        power = chosen if self.power == "auto" else float(self.power)
        noise = noise_level(moments.mean, total, self.n_groups) * NOISE_OF_POWER ** (
            power - chosen
        )
        amplified = min(power / FULL_POWER, 1.0)
        if self.n_groups is None:
            noise *= amplified  # what is not amplified needs none
        centering = 1.0 if self.centering == "auto" else float(self.centering)
        if self.n_groups is None and self.centering == self.power == "auto":
            centering -= (1 - amplified) * kept_of_mean(moments.mean, total)
        return Regularized(eigenvalues, total, shrinkage, noise, power, centering)


def ledoit_wolf_shrinkage(moments: Moments) -> float:
    """Ledoit-Wolf intensity of shrinkage toward the scaled identity, in [0, 1].

    Ledoit & Wolf (2004), "A well-conditioned estimator for large-dimensional covariance
    matrices", with ``S = scatter / n``: the variance of ``S`` about the covariance,
    ``β² = (Σ q² / n - |S|²) / n``, over its distance to the target,
    ``δ² = |S|² - tr(S)² / d``.
    """
    n, d = moments.n, len(moments.mean)
    norm2 = np.sum((moments.scatter / n) ** 2)
    distance = norm2 - (np.trace(moments.scatter) / n) ** 2 / d
    noise = (moments.quartic / n - norm2) / n
    if distance <= 0:  # already a multiple of the identity (always so when d = 1)
        return 0.0
    return float(np.clip(noise / distance, 0.0, 1.0))


def mean_spread(mean: np.ndarray, variances: np.ndarray) -> float:
    """Over how many coordinates the mean spreads, in terms of how many the variance does.

    exp of the entropy of their shares of ``mean² + variance / 10``, over that of the variance.
    Inner layers have a few outlier dimensions, which hold most of the mean whatever the texts
    are about [1]_. An output that was trained for cosines has none, nor has a rotated one.

    .. [1] Timkey & van Schijndel (2021), "All Bark and No Bite: Rogue Dimensions in Transformer
           Language Models Obscure Representational Quality", arXiv:2109.04404.
    """
    return exp_entropy(mean**2 + SHARE_OF_VARIANCE * variances) / exp_entropy(variances)


def neutral_power(spread: float) -> float:
    """Return the power that suits vectors of this `mean_spread`, whatever their groups."""
    return float(np.interp(np.log(spread), np.log(SPREADS), POWERS))


def noise_level(mean: np.ndarray, total: float, n_groups: int | None) -> float:
    """Noise for a number of groups, as a share of the total variance, at the neutral power.

    The more groups, the more directions distinguish them, and the weaker these are. If the mean
    cosine of two samples is large, as in inner layers, weak directions distinguish texts.
    """
    return SHARE_OF_GROUP / (n_groups or MANY_GROUPS) * cone_width(mean, total) ** CONE_POWER


def kept_of_mean(mean: np.ndarray, total: float) -> float:
    """Share of the mean to keep: a fifth, or less if it left a mean cosine above a fifth."""
    width = cone_width(mean, total)
    most = KEPT_OF_MEAN / (1 - KEPT_OF_MEAN) * width / max(1 - width, np.finfo(float).tiny)
    return min(KEPT_OF_MEAN, float(np.sqrt(most)))


def cone_width(mean: np.ndarray, total: float) -> float:
    """One minus the mean cosine of two samples, ``tr Σ / (|mean|² + tr Σ)``."""
    return total / ((float(mean @ mean) + total) or 1.0)


def exp_entropy(values: np.ndarray) -> float:
    """Over how many entries values spread: exp of the entropy of their shares."""
    share = values[values > 0] / values.sum()
    return float(np.exp(-(share @ np.log(share))))


def _check_underflow(total_variance: float, order: int) -> None:
    """Raise a ValueError if float64 has lost digits of moments of this ``order``."""
    least = (np.finfo(np.float64).tiny / np.finfo(np.float64).eps) ** (2 / order)
    if 0 < total_variance < least:
        raise ValueError(
            f"X varies so little, {total_variance**0.5:.3g} in all, that powers of it "
            f"underflow float64. Scale X up first, to more than {least**0.5:.0e}."
        )
