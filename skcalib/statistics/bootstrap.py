"""The paired bootstrap: intervals for differences of two means over a sample."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.special import stdtrit

RESAMPLED = 1000  # bootstrap samples
# Least variance of a resample, as a share of the sample's: few texts, or ties, may have none.
LEAST_VARIANCE = 1e-3


@dataclass(frozen=True)
class Difference:
    """A difference of two scores with its 95 % interval, by a paired bootstrap of the texts.

    Parameters
    ----------
    mean : float
        The difference.
    low, high : float
        Ends of the interval; -1 and 1 where texts are too few to estimate it.
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


def interval(values: np.ndarray, groups: np.ndarray, seed: int) -> np.ndarray:
    """Return the ends of the 95 % interval of each row's mean, of shape (2, n_rows).

    ``values``, from -1 to 1, have the shape (n_rows, n), and ``groups`` the group of each
    column. No end is nearer than that of Student's t, since resamples of few texts with
    outliers hide these: where one in ten of 50 texts differs, intervals miss in 2 % with it,
    and in 16 % without.
    """
    return _intervals(values, groups, seed, simultaneous=False)[1]


def leads(values: np.ndarray, groups: np.ndarray, seed: int) -> list[Difference]:
    """Return how far the mean of each row leads that of the first.

    The best of many equal candidates leads by chance. Therefore the intervals are simultaneous:
    in 97.5 % of the samples, no candidate's lead is above its interval (the maximum of
    studentized statistics; Romano & Wolf, 2005, "Stepwise multiple testing as formalized data
    snooping", Econometrica 73(4), first step). In simulations with 20 to 200 texts and 2 to 28
    equal candidates, at most 3.6 % of samples have a gain.
    """
    means, ends = _intervals(values - values[0], groups, seed, simultaneous=True)
    ends[:, 0] = 0.0  # the lead of the first over itself
    return [Difference(*map(float, lead)) for lead in zip(means, *ends, strict=True)]


def _intervals(
    values: np.ndarray, groups: np.ndarray, seed: int, simultaneous: bool
) -> tuple[np.ndarray, np.ndarray]:
    """Return the means of rows and both ends of their intervals, of each row or of all."""
    n = groups.max() + 1
    if n == 1:  # one text says nothing of others
        return values.mean(axis=1), np.tile([[-1.0], [1.0]], len(values))
    means, errors, t = _studentized(values, groups, seed)
    if simultaneous:
        low, high = np.quantile(t.max(axis=0), 0.975), np.quantile(t.min(axis=0), 0.025)
    else:
        high, low = np.quantile(t, (0.025, 0.975), axis=1)
    quantiles = np.maximum(low, _student(n)), np.minimum(high, -_student(n))
    ends = np.stack([means - errors * quantile for quantile in quantiles])
    # Where the values of a row are equal, others may be -1, or 1. A share of them is missing
    # among n by a chance of (1 - share)^n.
    unseen = 1 - (0.025 / (len(values) if simultaneous else 1)) ** (1 / n)
    equal = means - unseen * (means + np.array([[1.0], [-1.0]]))
    return means, np.clip(np.where(errors > 0, ends, equal), -1, 1)


def _studentized(
    values: np.ndarray, groups: np.ndarray, seed: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return means of rows, their standard errors, and t of resamples (n_rows, RESAMPLED).

    This is the bootstrap-t of Efron (1981), "Nonparametric standard errors and confidence
    intervals", Canadian Journal of Statistics 9(2), of whole groups. Of groups that differ in
    size few count: their number is Kish's effective one.
    """
    n = groups.max() + 1
    # A sample shows less of the skewness than there is, since the values that cause it are
    # rare. The mean of two thirds as many groups is 1.2 times as skewed.
    m = max(2, 2 * n // 3)
    counts = np.random.default_rng(seed).multinomial(m, np.full(n, 1 / n), size=RESAMPLED).T
    drawn = counts.astype(np.float64)  # (n, RESAMPLED)
    sizes = np.bincount(groups, minlength=n)
    sums = np.stack([np.bincount(groups, row, minlength=n) for row in values])
    means = sums.sum(axis=1) / len(groups)
    variance = ((sums - sizes * means[:, None]) ** 2).sum(axis=1)
    totals = sizes @ drawn
    resampled = sums @ drawn / totals
    # The sum of (sums - sizes * resampled)² over the drawn groups, multiplied out.
    squares = sums**2 @ drawn - 2 * resampled * ((sums * sizes) @ drawn)
    squares += resampled**2 * (sizes**2 @ drawn)
    errors = np.sqrt(np.maximum(squares, LEAST_VARIANCE * variance[:, None])) / totals
    varies = variance > np.finfo(float).eps * (sums**2).sum(axis=1)
    t = np.zeros_like(resampled)
    t[varies] = (resampled - means[:, None])[varies] / errors[varies]
    t *= np.sqrt((m - 1) / m * n / (n - 1))  # errors divide by the number, not by one less
    most = [np.unique(row.round(9), return_counts=True)[1].max() for row in sums / sizes]
    differ = n - np.array(most) + 1.0  # equal ones do not say how far others differ
    effective = np.clip(np.minimum(len(groups) ** 2 / np.sum(sizes**2), differ), 2, n)
    wider = _student(effective) / _student(n)
    return means, np.where(varies, wider * np.sqrt(variance), 0.0) / len(groups), t


def _student(n: Any) -> Any:
    """Half the width of an interval by n normal values, in errors that divide by n."""
    return stdtrit(n - 1, 0.975) * np.sqrt(n / (n - 1))
