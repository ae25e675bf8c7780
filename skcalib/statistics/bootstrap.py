"""The paired bootstrap: intervals for differences of two means over a sample."""

from dataclasses import dataclass

import numpy as np
from scipy.special import ndtr, stdtrit

RESAMPLED = 1000  # bootstrap samples


@dataclass(frozen=True)
class Difference:
    """A difference of two scores with its 95 % interval, by a paired bootstrap of the texts.

    Texts that share most of their words are resampled together. For the best of several
    candidates, the interval is simultaneous.

    Parameters
    ----------
    mean : float
        The difference.
    low, high : float
        Ends of the interval; -1 and 1 for fewer than 20 groups of texts, too few to estimate
        it.
    """

    mean: float
    low: float
    high: float

    @property
    def is_gain(self) -> bool:
        """Whether the interval is above zero."""
        return self.low > 0

    def __str__(self) -> str:
        return f"{100 * self.mean:+.1f} ({100 * self.low:+.1f} to {100 * self.high:+.1f})"


def resamples(groups: np.ndarray, seed: int) -> np.ndarray:
    """Return weights of samples with replacement, of shape (n, RESAMPLED).

    ``groups`` has the group of each value. The product of values (..., n) with the weights is
    the mean of each sample. Whole groups are drawn, since values of a group depend on each
    other.
    """
    n = groups.max() + 1
    counts = np.random.default_rng(seed).multinomial(n, np.full(n, 1 / n), size=RESAMPLED)
    weights = counts.T[groups]
    return weights / weights.sum(axis=0)


def interval(means: np.ndarray, groups: np.ndarray) -> np.ndarray:
    """Return the ends of the 95 % interval of means (..., RESAMPLED), of shape (2, ...)."""
    tail = ndtr(-_student(1.96, groups))
    return np.quantile(means, (tail, 1 - tail), axis=-1)


def _student(z: float, groups: np.ndarray) -> float:
    """Return standard errors of a bootstrap in place of z standard errors of many groups.

    With n equal groups, resampled means spread √(1 - 1/n) as much as means of samples do, and
    Student's t takes the place of the normal distribution (the expanded interval of Hesterberg,
    2015, "What Teachers Should Know About the Bootstrap", The American Statistician 69(4)). If
    groups differ in size, n is Kish's effective number.
    """
    sizes = np.bincount(groups)
    n = max(2.0, float(sizes.sum() ** 2 / np.sum(sizes**2)))
    return float(-stdtrit(n - 1, ndtr(-z)) * np.sqrt(n / (n - 1)))


def leads(scores: np.ndarray, means: np.ndarray, groups: np.ndarray) -> list[Difference]:
    """Return how far each of several candidates leads the first of them.

    ``means``, (n_candidates, RESAMPLED), has their ``scores`` in each resample of ``groups``.

    The best of many equal candidates leads by chance. Therefore the intervals are simultaneous:
    in 97.5 % of the samples, no candidate's lead is above its interval (the maximum of
    studentized statistics; Romano & Wolf, 2005, "Stepwise multiple testing as formalized data
    snooping", Econometrica 73(4), first step).
    """
    observed, resampled = scores - scores[0], means - means[0]
    error = resampled.std(axis=1)
    varies = error > 0  # False for the first and its equals
    if not varies.any():
        return [Difference(0.0, 0.0, 0.0)] * len(scores)
    deviations = (resampled[varies] - observed[varies, None]) / error[varies, None]
    z = np.quantile(deviations.max(axis=0), 0.975)
    widths = np.zeros(len(scores))
    widths[varies] = _student(z, groups) * error[varies]
    ends = zip(observed, observed - widths, observed + widths, strict=True)
    return [Difference(*map(float, lead)) for lead in ends]
