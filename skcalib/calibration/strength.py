"""How strongly mean, columns and directions count in a whitening."""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil

import numpy as np

from skcalib.base import warn
from skcalib.calibration.moments import Moments, rounding_error

# Power of raw vectors if nothing is known. Few large groups lie in strong directions; of 228
# cells of layer, pooling and set none loses a point against raw vectors up to a third.
NEUTRAL_POWER = 1 / 3
# A number of groups: each text is a group of its own, as in graded similarity.
MANY = "many"
# Share of the width over which the mean of a trained output spreads. Measured: at least 0.66,
# and at most 0.22 in raw vectors. The second is for a mean without its constant outliers.
LEAST_SPREAD, LEAST_SPREAD_OF_REST = 0.4, 0.63
# Within this factor of the limit, other samples of the same vectors may be on its other side.
UNSURE = 1.1
# Share of a column's variance that is added to its squared mean, which may be sampling error.
SHARE_OF_VARIANCE = 0.1
# Share of columns, and of directions, that may be outliers (Mu & Viswanath, arXiv:1702.01417).
SHARE_OF_OUTLIERS = 0.01
# A column whose variance is at most this multiple of the median column's counts as constant.
CONSTANT = 2.0
# Directions for each group, and the largest share of the directions that are flattened, of
# which two samples determine one.
DIRECTIONS_OF_GROUP, MOST_DIRECTIONS, SAMPLES_OF_DIRECTION = 2, 0.9, 2
# Share of the directions that are flattened for graded similarity; more loses with prompts.
DIRECTIONS_OF_MANY = 0.25
# Share of the mean that is kept in a trained output, and the largest mean cosine that it may
# leave. The mean points toward the largest group.
KEPT_OF_MEAN = 0.2
# The noise for k groups is this share of the variance that each of k equal directions would
# have, times a power of the width of the cone: a narrow cone has less noise.
SHARE_OF_GROUP, CONE_POWER = 1 / 8, 1 / 3
# A massive activation puts more than this share of the variance into one column. Narrower
# vectors may have such a column for other reasons.
MASSIVE, WIDE = 0.5, 32


@dataclass(frozen=True)
class Strength:
    """How strongly mean, columns and directions of a sample count: parameters in use."""

    scale: np.ndarray  # (d,), divides columns before the decomposition
    eigenvalues: np.ndarray  # Λ, after shrinkage
    total: float  # variance of the sample, tr Σ
    shrinkage: float
    noise: float  # as a share of the total variance
    power: float
    centering: float  # share of the mean that is subtracted
    level: float = 0.0  # to which stronger directions are flattened, as a variance

    @property
    def passes_all(self) -> bool:
        """Whether g is above 0 in directions without variance in the sample, too."""
        return self.noise == 0 and (self.power == 0 or self.level > 0)

    def gain(self) -> np.ndarray:
        """``g(λ) = (λ + level)^(-power/2) λ / (λ + noise tr Σ)``, with a Wiener filter."""
        values = self.eigenvalues
        flattened = (values + self.level) ** (-self.power / 2)
        if self.noise == 0:  # also where a value is 0
            return flattened
        return flattened * (values / (values + self.noise * self.total))


def spectrum_of(
    moments: Moments,
    *,
    centering: float | str = "auto",
    shrinkage: float | str = 0.0,
    noise: float = 0.0,
    power: float | str = 1.0,
    n_groups: int | str | None = None,
    flattens: bool = False,
) -> tuple[np.ndarray, np.ndarray, Strength]:
    """Decompose a sample, and choose what parameters of `Whitening` leave open.

    Return the variance along each axis, falling, the axes in columns, and the strength. If it
    ``flattens``, a power in figures takes the level and the shrinkage of "auto", too.
    """
    check_groups(power, noise, n_groups)
    is_neutral = power == "auto"
    _check_underflow(moments, order=4 if is_neutral or shrinkage == "auto" else 2)
    trained = (is_neutral or flattens) and is_trained(moments)
    kind = "figures" if not is_neutral else "trained output" if trained else "raw vectors"
    sample, scale = moments, np.ones(len(moments.mean))
    if kind == "raw vectors":
        sample, scale = moments.scaled, moments.column_scale
    variance, axes = sample.spectrum
    total, level = float(variance.sum()), 0.0
    n_known = None if n_groups == MANY else n_groups
    subtracted = 1.0 if centering == "auto" else float(centering)
    if kind == "trained output":
        power = 0.0
        if n_known is not None:
            noise = noise_of_groups(moments.mean, total, int(n_known))
        elif centering == "auto":
            subtracted -= kept_of_mean(moments.mean, total)
    elif kind == "raw vectors":
        power = NEUTRAL_POWER if n_groups is None else 1.0
        level = flattening_level(variance, moments.n, n_groups)
        if n_known is not None:
            noise = level / (total or 1.0)
    elif flattens:
        level = flattening_level(variance, moments.n, None)
    intensity = 0.0 if shrinkage == "auto" else float(shrinkage)
    if shrinkage == "auto" or trained:
        # Noise is chosen for the population's spectrum, so the sample's is corrected too.
        intensity = max(intensity, ledoit_wolf_shrinkage(moments))
    eigenvalues = (1 - intensity) * variance + intensity * total / len(variance)
    used = Strength(
        scale=scale,
        eigenvalues=eigenvalues,
        total=total,
        shrinkage=intensity,
        noise=noise,
        power=float(power),
        centering=subtracted,
        level=level,
    )
    return variance, axes, used


def check_groups(power: float | str, noise: float, n_groups: int | str | None) -> None:
    """Raise a ValueError if a number of groups has nothing to choose."""
    if n_groups is None or (power == "auto" and noise == 0):
        return
    raise ValueError(
        f"Got n_groups={n_groups!r} with power={power!r} and noise={noise!r}; n_groups chooses "
        "both. Set power='auto' and noise=0, or leave out n_groups."
    )


def ledoit_wolf_shrinkage(moments: Moments) -> float:
    """Intensity of shrinkage toward the scaled identity by Ledoit & Wolf (2004), in [0, 1].

    With ``S = scatter / n``, it is the variance of ``S`` about the covariance,
    ``β² = (Σ q² / n - |S|²) / n``, over its distance to the target, ``δ² = |S|² - tr(S)² / d``.
    """
    n, d = moments.n, len(moments.mean)
    norm2 = np.sum((moments.scatter / n) ** 2)
    distance = norm2 - (np.trace(moments.scatter) / n) ** 2 / d
    noise = (moments.quartic / n - norm2) / n
    if distance <= 0:  # already a multiple of the identity (always so when d = 1)
        return 0.0
    return float(np.clip(noise / distance, 0.0, 1.0))


def is_trained(moments: Moments) -> bool:
    """Whether the mean is that of an output that was trained for cosine similarity.

    In other vectors a few outlier columns hold most of the mean, whatever the texts are about
    (Timkey & van Schijndel 2021, "All Bark and No Bite", arXiv:2109.04404). A trained output
    has none, or a few that hardly vary; without these its mean spreads.
    """
    return not moments.is_centered and evenness(moments) >= 1


def evenness(moments: Moments) -> float:
    """How evenly the mean spreads over the columns, as a multiple of the least of an output."""
    variances = moments.variances
    shares = moments.mean**2 + SHARE_OF_VARIANCE * variances
    largest = np.argsort(-(moments.mean**2))[: ceil(SHARE_OF_OUTLIERS * len(shares))]
    constant = largest[variances[largest] <= CONSTANT * np.median(variances)]
    rest = spread(np.delete(shares, constant))
    return max(spread(shares) / LEAST_SPREAD, rest / LEAST_SPREAD_OF_REST)


def warn_of_verdict(moments: Moments) -> None:
    """Warn if the mean does not say whether vectors were trained for cosines."""
    if moments.is_centered:
        warn(
            "The vectors have a mean of zero, as if they had been centered or standardized "
            "before, so power='auto' cannot recognize a trained output and treats them as raw. "
            "Pass the vectors as the encoder returns them."
        )
    elif abs(np.log(evenness(moments))) < np.log(UNSURE):
        warn(
            "The mean of these vectors is between that of an output that was trained for "
            "cosines and that of a raw layer, so another sample may decide otherwise. Encode "
            "with the pooling that the model was trained with, or set power=0 for a trained "
            "output."
        )


def spread(values: np.ndarray) -> float:
    """Share of the positive entries over which their sum spreads, by its entropy."""
    share = values[values > 0] / (values.sum() or 1.0)
    return float(np.exp(-(share @ np.log(share)))) / max(len(share), 1)


def flattening_level(variance: np.ndarray, n: int, n_groups: int | str | None) -> float:
    """Variance to which stronger directions are flattened: an eigenvalue of the sample."""
    determined = min(int(np.count_nonzero(variance > rounding_error(variance))), n - 1)
    if n_groups is None:
        place = ceil(SHARE_OF_OUTLIERS * len(variance))
    else:
        known = min(determined, n // SAMPLES_OF_DIRECTION)
        place = int(DIRECTIONS_OF_MANY * known)
        if n_groups != MANY:
            place = min(DIRECTIONS_OF_GROUP * int(n_groups), int(MOST_DIRECTIONS * known)) - 1
    return float(variance[max(min(place, determined - 1), 0)])


def warn_of_massive_column(variances: np.ndarray) -> None:
    """Warn if one column holds most of the variance, as of one token with all the attention."""
    if len(variances) >= WIDE and variances.max() > MASSIVE * variances.sum():
        warn(
            "One column holds most of the variance, as in means of a language model that puts "
            "massive activations on the first token. Raw cosines compare little else. Encode "
            "with pooling='mean_without_first', or remove the column."
        )


def noise_of_groups(mean: np.ndarray, total: float, n_groups: int) -> float:
    """Noise for a number of groups in a trained output, as a share of the total variance."""
    return SHARE_OF_GROUP / n_groups * cone_width(mean, total) ** CONE_POWER


def kept_of_mean(mean: np.ndarray, total: float) -> float:
    """Share of the mean to keep: a fifth, or less if it left a mean cosine above a fifth."""
    width = cone_width(mean, total)
    most = KEPT_OF_MEAN / (1 - KEPT_OF_MEAN) * width / max(1 - width, np.finfo(float).tiny)
    return min(KEPT_OF_MEAN, float(np.sqrt(most)))


def cone_width(mean: np.ndarray, total: float) -> float:
    """One minus the mean cosine of two samples, ``tr Σ / (|mean|² + tr Σ)``."""
    return total / ((float(mean @ mean) + total) or 1.0)


def _check_underflow(moments: Moments, order: int) -> None:
    """Raise a ValueError if float64 has lost digits of moments of this ``order``."""
    total = float(moments.variances.sum())
    least = (np.finfo(np.float64).tiny / np.finfo(np.float64).eps) ** (2 / order)
    if 0 < total < least:
        raise ValueError(
            f"X varies so little, {total**0.5:.3g} in all, that powers of it underflow "
            f"float64. Scale X up first, to more than {least**0.5:.0e}."
        )
