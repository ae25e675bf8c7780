"""Which rates counted pairs can tell, and the thresholds that keep them."""

import numpy as np

from skcalib.similarity.scale.pairs import FITTED_P_VALUES, PairCounts, RateLine

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
    few, of = (FEWEST_PAIRS, counts.n) if per == "pair" else (counts.new, counts.n + 1)
    if rate >= few / of:
        return float(counts.threshold(rate))
    if extrapolate and per == "query":
        return counts.beyond(rate)
    needed = np.ceil(few / rate - (of - counts.n) - 1e-9)
    counted = "pairs" if per == "pair" else "queries" if counts.new == 1 else "texts"
    raise ValueError(
        f"threshold got false_positive_rate={rate!r}, which needs {needed:,.0f} {counted}; "
        f"{counts.n:,} support rates from {few}/{of} to 1. Set extrapolate=True, or fit a "
        "SimilarityScale on more queries, or texts: 1,415 have a million pairs, and more than "
        "4,473 need more n_pairs."
    )


def line_of(counts: PairCounts) -> RateLine:
    """Return the line through the rates, if the pairs tell it."""
    line = counts.line()
    if counts.n < EXTRAPOLATED_PAIRS or line.error > LARGEST_ERROR:
        raise ValueError(
            f"A rate below 3e-4, or a cosine that fewer pairs reach, was asked of {counts.n:,} "
            f"pairs; to estimate it needs {EXTRAPOLATED_PAIRS:,}, of 448 texts, and a line "
            f"through their rates, which is off by {line.error:.2g} decades, where "
            f"{LARGEST_ERROR} is accepted. Fit on more texts of the same kind without "
            "duplicates, or ask for a larger rate or a smaller cosine."
        )
    return line
