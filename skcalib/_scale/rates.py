"""Which rates counted pairs can tell, and the thresholds that keep them."""

import numpy as np

from skcalib._scale.pairs import FITTED_P_VALUES, PairCounts, RateLine

# Pairs that a threshold must let pass for an estimate of its rate.
FEWEST_PAIRS = 10
# What ``extrapolate=True`` needs: the smallest rate that was compared with the observed one on
# real texts, pairs of which 30 are at the lower end of the line, and the error of the line.
LEAST_EXTRAPOLATED, EXTRAPOLATED_PAIRS, LARGEST_ERROR = 1e-6, 100_000, 0.1


def threshold_of(counts: PairCounts, rate: float, per: str, *, extrapolate: bool) -> float:
    """Least similarity that keeps a rate, per pair or per query."""
    if extrapolate and per == "pair" and rate < FITTED_P_VALUES[1]:
        if rate < LEAST_EXTRAPOLATED:
            raise ValueError(
                f"threshold got false_positive_rate={rate:g} and extrapolate=True; it needs a "
                f"rate of at least {LEAST_EXTRAPOLATED:g}. Ask for a larger rate."
            )
        return line_of(counts).threshold(rate)
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
    counted, more = "pairs", "texts: 1e-5 needs 1,415, and more than 4,473 need more n_pairs"
    if per == "query":
        counted, more = "queries", f"queries: this rate needs {np.ceil(1 / rate) - 1:,.0f}"
    raise ValueError(
        f"threshold got false_positive_rate={rate!r}; {counts.n:,} {counted} are enough for "
        f"{told}. Set extrapolate=True, or fit a SimilarityScale on more {more}."
    )


def line_of(counts: PairCounts) -> RateLine:
    """Return the line through the rates, if the pairs tell it."""
    if counts.n < EXTRAPOLATED_PAIRS:
        raise ValueError(
            f"A rate below 3e-4 was asked of {counts.n:,} pairs; to estimate it needs "
            f"{EXTRAPOLATED_PAIRS:,}, of 448 texts. Fit on more texts, or ask for a larger "
            "rate."
        )
    line = counts.line()
    if line.error > LARGEST_ERROR:
        raise ValueError(
            "A rate below 3e-4 cannot be estimated from the fitted pairs: the line through "
            f"their rates from 3e-3 to 3e-4 is off by {line.error:.2g} decades, as when one "
            "text in ten has many copies. Fit on texts of the same kind without duplicates."
        )
    return line
