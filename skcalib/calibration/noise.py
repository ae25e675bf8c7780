"""How strongly mean and directions count: centering, shrinkage, level, noise and power."""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil

import numpy as np

from skcalib.base import warn
from skcalib.calibration.moments import Moments, rounding_error

# A number of groups: each text is a group of its own, as in graded similarity.
MANY = "many"
# The mean of an output that was trained for cosines spreads over at least this share of the
# width. Measured: at least 0.66 in outputs, at most 0.22 in inner layers and raw language
# models. The second number is for a mean without its constant outliers: 0.75, 0.53.
LEAST_SPREAD, LEAST_SPREAD_OF_REST = 0.4, 0.63
# Share of a column's variance that is added to its squared mean. It decides where the mean is
# hardly more than sampling error.
SHARE_OF_VARIANCE = 0.1
# Share of columns, and of directions, that may be outliers. Mu & Viswanath (2018,
# arXiv:1702.01417) remove this share of the leading directions.
SHARE_OF_OUTLIERS = 0.01
# A column whose variance is at most this multiple of the median column's counts as constant.
CONSTANT = 2.0
# Directions for each group, and the largest share of all directions that are flattened: the
# rest is hardly more than sampling error.
DIRECTIONS_OF_GROUP = 2
MOST_DIRECTIONS = 0.9
# Share r of the mean m that is kept in a trained output. The mean points toward the largest
# group: without it, the vectors of that group lose the direction that they share. With it, two
# unrelated vectors keep r² of their mean inner product (4 %), and two vectors of the largest
# group, whose own mean is m + δ, gain 2 r δ·m.
KEPT_OF_MEAN = 0.2
# The noise for k groups is this share of the variance that each of k equal directions would
# have, times a power of the width of the cone: a narrow cone has less noise.
SHARE_OF_GROUP, CONE_POWER = 1 / 8, 1 / 3
# A massive activation puts more than this share of the variance into one column. Narrower
# vectors may have such a column for other reasons.
MASSIVE, WIDE = 0.5, 32


@dataclass(frozen=True)
class Regularized:
    """A spectrum after shrinkage, and the parameters in use."""

    eigenvalues: np.ndarray  # Λ
    total: float  # variance of the sample, tr Σ
    shrinkage: float
    noise: float  # as a share of the total variance
    power: float
    centering: float  # share of the mean that is subtracted
    level: float = 0.0  # to which stronger directions are flattened, as a variance

    @property
    def is_rotation(self) -> bool:
        """Whether g is 1 in every direction, with variance in the sample or without."""
        return self.power == 0 and self.noise == 0

    @property
    def passes_all(self) -> bool:
        """Whether g is above 0 in directions without variance in the sample, too."""
        return self.is_rotation or (self.level > 0 and self.noise == 0)

    def gain(self) -> np.ndarray:
        """``g(λ) = (λ + level)^(-power/2) λ / (λ + noise tr Σ)``, with a Wiener filter."""
        values = self.eigenvalues
        if self.is_rotation:
            return np.ones_like(values)
        flattened = (values + self.level) ** (-self.power / 2)
        if self.noise == 0:  # also where a value is 0
            return flattened
        return flattened * (values / (values + self.noise * self.total))


@dataclass(frozen=True)
class Regularization:
    """Parameters of `Whitening` that determine how strongly mean and directions count."""

    centering: float | str = "auto"
    shrinkage: float | str = 0.0
    noise: float | str = 0.0
    power: float | str = "auto"
    n_groups: int | str | None = None

    def __post_init__(self) -> None:
        if self.n_groups is None:
            return
        for name in ("noise", "power"):
            if (value := getattr(self, name)) != "auto":
                raise ValueError(
                    f"Got n_groups={self.n_groups!r} and {name}={value!r}; n_groups needs "
                    f"noise='auto' and power='auto'. Set {name}='auto', or leave out n_groups."
                )

    def of(self, moments: Moments, variance: np.ndarray) -> Regularized:
        """Apply to a sample, whose covariance has the eigenvalues ``variance`` (d,)."""
        estimates = "auto" in (self.shrinkage, self.noise)
        total = float(variance.sum())
        _check_underflow(total, order=4 if estimates else 2)
        is_neutral = self.noise == "auto"
        trained = is_neutral and is_trained(moments)
        shrinkage = 0.0 if self.shrinkage == "auto" else float(self.shrinkage)
        if self.shrinkage == "auto" or is_neutral:
            # Noise is chosen for the population's spectrum, so the sample's is corrected too.
            shrinkage = max(shrinkage, ledoit_wolf_shrinkage(moments))
        eigenvalues = (1 - shrinkage) * variance + shrinkage * total / len(variance)
        power = float(not trained) if self.power == "auto" else float(self.power)
        centering = 1.0 if self.centering == "auto" else float(self.centering)
        level = flattening_level(variance, moments.n, self.n_groups) if is_neutral else 0.0
        if not is_neutral:
            noise = float(self.noise)
        elif self.n_groups is None:
            noise = 0.0
        elif trained:
            noise = noise_level(moments.mean, total, self.n_groups)
        else:
            noise = level / (total or 1.0)
        if trained and power == 0:
            level = 0.0
            if self.n_groups in (None, MANY) and self.centering == self.power == "auto":
                centering -= kept_of_mean(moments.mean, total)
        return Regularized(eigenvalues, total, shrinkage, noise, power, centering, level)


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


def is_trained(moments: Moments) -> bool:
    """Whether the mean is that of an output that was trained for cosine similarity.

    Inner layers and language models that were never trained for similarity have a few outlier
    columns, which hold most of the mean whatever the texts are about [1]_. An output that was
    trained for cosines has none, or a few that hardly vary; without these its mean spreads.

    .. [1] Timkey & van Schijndel (2021), "All Bark and No Bite: Rogue Dimensions in Transformer
           Language Models Obscure Representational Quality", arXiv:2109.04404.
    """
    variances = np.diag(moments.covariance())  # of the columns
    shares = moments.mean**2 + SHARE_OF_VARIANCE * variances
    if spread(shares) >= LEAST_SPREAD:
        return True
    largest = np.argsort(-(moments.mean**2))[: ceil(SHARE_OF_OUTLIERS * len(shares))]
    constant = largest[variances[largest] <= CONSTANT * np.median(variances)]
    return spread(np.delete(shares, constant)) >= LEAST_SPREAD_OF_REST


def spread(values: np.ndarray) -> float:
    """Share of the positive entries over which their sum spreads, by its entropy."""
    share = values[values > 0] / (values.sum() or 1.0)
    return float(np.exp(-(share @ np.log(share)))) / max(len(share), 1)


def flattening_level(variance: np.ndarray, n: float, n_groups: int | str | None) -> float:
    """Variance to which stronger directions are flattened: an eigenvalue of the sample.

    By default it is the first beyond the hundredth of directions that may be outliers, so that
    these have no influence on it. For a number of groups, about two directions each are equal.
    """
    determined = int(np.count_nonzero(variance > rounding_error(variance)))
    if isinstance(n, int):
        determined = min(determined, n - 1)
    if n_groups is None:
        place = ceil(SHARE_OF_OUTLIERS * len(variance))
    else:
        most = int(MOST_DIRECTIONS * determined) - 1
        place = most if n_groups == MANY else min(DIRECTIONS_OF_GROUP * int(n_groups) - 1, most)
    return float(variance[max(min(place, determined - 1), 0)])


def warn_of_massive_column(variances: np.ndarray) -> None:
    """Warn if one column holds most of the variance, as where one token has all the attention.

    ``variances`` are those of the columns. The message is the same for all fits of a search.
    """
    if len(variances) >= WIDE and variances.max() > MASSIVE * variances.sum():
        warn(
            "One column holds most of the variance, as in means of a language model that puts "
            "massive activations on the first token. Raw cosines compare little else. Encode "
            "with pooling='mean_without_first', or remove the column."
        )


def noise_level(mean: np.ndarray, total: float, n_groups: int | str) -> float:
    """Noise for a number of groups in a trained output, as a share of the total variance.

    The more groups, the more directions distinguish them, and the weaker these are.
    """
    if n_groups == MANY:
        return 0.0
    return SHARE_OF_GROUP / int(n_groups) * cone_width(mean, total) ** CONE_POWER


def kept_of_mean(mean: np.ndarray, total: float) -> float:
    """Share of the mean to keep: a fifth, or less if it left a mean cosine above a fifth."""
    width = cone_width(mean, total)
    most = KEPT_OF_MEAN / (1 - KEPT_OF_MEAN) * width / max(1 - width, np.finfo(float).tiny)
    return min(KEPT_OF_MEAN, float(np.sqrt(most)))


def cone_width(mean: np.ndarray, total: float) -> float:
    """One minus the mean cosine of two samples, ``tr Σ / (|mean|² + tr Σ)``."""
    return total / ((float(mean @ mean) + total) or 1.0)


def _check_underflow(total_variance: float, order: int) -> None:
    """Raise a ValueError if float64 has lost digits of moments of this ``order``."""
    least = (np.finfo(np.float64).tiny / np.finfo(np.float64).eps) ** (2 / order)
    if 0 < total_variance < least:
        raise ValueError(
            f"X varies so little, {total_variance**0.5:.3g} in all, that powers of it "
            f"underflow float64. Scale X up first, to more than {least**0.5:.0e}."
        )
