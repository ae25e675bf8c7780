"""Thresholds that a new score exceeds at a promised rate, by its rank among n others."""

from math import ceil, floor, log10

import numpy as np

ROUNDING = 1e-9  # of a rate times a number


def n_needed(rate: float, new: int = 1) -> int:
    """Return the fewest scores for which `n_above` accepts a rate."""
    return ceil(new / rate - ROUNDING) - 1


def n_above(
    n: int,
    rate: float,
    kind: str,
    *,
    new: int = 1,
    name: str = "false_positive_rate",
    hint: str = "",
) -> int:
    """Return how many of n scores may be above a threshold that a new one exceeds at a rate.

    All ranks of a new score among n others are equally likely. So if m of these are above a
    threshold, a new one is with probability ``(m + 1) / (n + 1)`` (split conformal prediction,
    Vovk, Gammerman & Shafer 2005). A score that is above it together with others counts as
    several ``new`` ones. ``kind`` names the scores in the error for too few, ``name`` the rate.
    """
    most = floor(rate * (n + 1) + ROUNDING) - new
    if most >= 0:
        return most
    least = new / (n + 1)
    place = 10 ** (1 - floor(log10(least)))
    larger = f", or set {name}={ceil(least * place) / place:g} or more" if least < 1 else ""
    raise ValueError(
        f"{name}={rate:g} needs {n_needed(rate, new):,} {kind}; got {n:,}. Give "
        f"more{larger}.{hint}"
    )


def threshold_of(scores: np.ndarray, rate: float, kind: str, hint: str = "") -> float:
    """Return the score that a new one exceeds with probability ``rate`` at most.

    Infinite scores are above every threshold, so that more scores are needed.
    """
    n_infinite = int(np.isposinf(scores).sum())
    most = n_above(len(scores), rate, kind, new=1 + n_infinite, hint=hint) + n_infinite
    return float(np.sort(scores)[len(scores) - 1 - most])
