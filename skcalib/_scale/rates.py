"""Which rates counted pairs can tell, and the thresholds that keep them."""

from __future__ import annotations

from numbers import Real
from typing import Any

import numpy as np

from skcalib._scale.pairs import FITTED_P_VALUES, PairCounts

# Pairs that a threshold must let pass for an estimate of its rate.
FEWEST_PAIRS = 10
# What ``extrapolate=True`` needs: the smallest rate that was compared with the observed one on
# real texts, pairs of which 30 are at the lower end of the line, and the error of the line.
LEAST_EXTRAPOLATED, EXTRAPOLATED_PAIRS, LARGEST_ERROR = 1e-6, 100_000, 0.1


def threshold_of(counts: PairCounts, given: Any, per: str, *, extrapolate: bool) -> float:
    """Least similarity that keeps a rate, per pair or per query."""
    if not isinstance(given, Real) or not 0 < float(given) < 1:
        raise ValueError(
            f"threshold got false_positive_rate={given!r}; it expects a number above 0 and "
            "below 1, such as 0.01 for 1 %."
        )
    rate = float(given)
    if extrapolate and per == "pair" and rate < FITTED_P_VALUES[1]:
        return extrapolated(counts, rate)
    # A p-value per query is exact, whatever their number: that of a best pair above all others.
    least = FEWEST_PAIRS / counts.n if per == "pair" else 1 / (counts.n + 1)
    if rate >= least:
        return float(counts.threshold(rate))
    if extrapolate and per == "query":
        return counts.beyond(rate)
    told = "no rate"
    if least < 1:  # rounded up, so that it is accepted
        digits = 10.0 ** (1 - np.floor(np.log10(least)))
        told = f"rates from {np.ceil(least * digits) / digits:.2g} to 1"
    more = "texts: 1e-5 needs 1,415, and more than 4,473 need more n_pairs"
    if per == "query":
        more = f"queries: this rate needs {np.ceil(1 / rate) - 1:,.0f}"
    counted = "pairs" if per == "pair" else "queries"
    raise ValueError(
        f"threshold got false_positive_rate={given!r}; {counts.n:,} {counted} are enough for "
        f"{told}. Set extrapolate=True, or fit a SimilarityScale on more {more}."
    )


def extrapolated(counts: PairCounts, rate: float) -> float:
    """Threshold of a rate that duplicates would raise, by the line through larger rates."""
    if rate < LEAST_EXTRAPOLATED:
        raise ValueError(
            f"threshold got false_positive_rate={rate:g} and extrapolate=True; it needs a rate "
            f"of at least {LEAST_EXTRAPOLATED:g}. Ask for a larger rate."
        )
    return float(np.tanh(np.polyval(line_of(counts), np.log10(rate))))


def line_of(counts: PairCounts) -> np.ndarray:
    """Return slope and intercept of Fisher's z by decades of the rate, if the pairs tell it."""
    if counts.n < EXTRAPOLATED_PAIRS:
        raise ValueError(
            f"A rate below 3e-4 was asked of {counts.n:,} pairs; to estimate it needs "
            f"{EXTRAPOLATED_PAIRS:,}, of 448 texts. Fit on more texts, or ask for a larger "
            "rate."
        )
    line, error = counts.line()
    if error > LARGEST_ERROR:
        raise ValueError(
            "A rate below 3e-4 cannot be estimated from the fitted pairs: the line through "
            f"their rates from 3e-3 to 3e-4 is off by {error:.2g} decades, as when one text "
            "in ten has many copies. Fit on texts of the same kind without duplicates."
        )
    return line
