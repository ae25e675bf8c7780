"""Thresholds that a new score exceeds at a promised rate, by its rank among n others.

All ranks of a new score among n others are equally likely. So if m of these are above a
threshold, a new one is with probability ``(m + 1) / (n + 1)`` (split conformal prediction,
Vovk, Gammerman & Shafer 2005). That is the average over samples of n: the rate of one sample
has a Beta(m + 1, n - m) distribution, and exceeds its mean for nearly every second sample. A
threshold that holds *for the sample at hand* with some confidence keeps a quantile of it.
"""

from bisect import bisect_left
from math import ceil, floor, log10

import numpy as np
from scipy.stats import beta

ROUNDING = 1e-9  # of a rate times a number
# A promise is for the sample at hand, with this confidence, from so many scores on.
CONFIDENCE, ENOUGH = 0.9, 100


def confidence_for(n: int, rate: float, new: int = 1) -> float | None:
    """Return the confidence that n scores are enough for; None for the average of samples."""
    return CONFIDENCE if n >= max(ENOUGH, n_needed(rate, new, CONFIDENCE)) else None


def n_needed(rate: float, new: int = 1, confidence: float | None = None) -> int:
    """Return the fewest scores for which `n_above` accepts a rate."""
    average = ceil(new / rate - ROUNDING) - 1
    if confidence is None:
        return average
    sizes = range(new, 100 * average + 100)
    return sizes[
        bisect_left(sizes, confidence, key=lambda n: beta.cdf(rate, 1, (n + 1 - new) / new))
    ]


def n_above(
    n: int,
    rate: float,
    kind: str,
    *,
    new: int = 1,
    confidence: float | None = None,
    name: str = "false_positive_rate",
    hint: str = "",
) -> int:
    """Return how many of n scores may be above a threshold that a new one exceeds at a rate.

    The rate is an average over samples, or holds for this one with a ``confidence``. A score
    that is above the threshold together with others counts as several ``new`` ones, and the n
    scores as so many fewer. ``kind`` names the scores in the error for too few,
    ``name`` the rate.
    """
    most = floor(rate * (n + 1) + ROUNDING) - new
    least = new / (n + 1)
    if confidence is not None:
        above = np.arange(most + 1)
        kept = beta.ppf(confidence, (above + new) / new, (n + 1 - above - new) / new) <= rate
        most = int(np.count_nonzero(kept)) - 1
        least = float(beta.ppf(confidence, 1, (n + 1 - new) / new)) if n >= new else 1.0
    if most >= 0:
        return most
    place = 10 ** (1 - floor(log10(least)))
    larger = f", or set {name}={ceil(least * place) / place:g} or more" if least < 1 else ""
    raise ValueError(
        f"{name}={rate:g} needs {n_needed(rate, new, confidence):,} {kind}; got {n:,}. Give "
        f"more{larger}.{hint}"
    )
