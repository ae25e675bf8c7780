"""Which rates counted pairs support, and the thresholds that keep them."""

import numpy as np

from skcalib.similarity.scale.pairs import FITTED_P_VALUES, PairCounts, RateLine

# Pairs that a threshold must let pass for an estimate of its rate.
FEWEST_PAIRS = 10
MOST_PAIRS = 10**7  # default of `n_pairs`
# Limits of ``extrapolate=True``: the smallest rate that was compared with the observed one on
# real texts; the pairs, of which 30 are at the lower end of the line; the error of the line.
LEAST_EXTRAPOLATED, EXTRAPOLATED_PAIRS, LARGEST_ERROR = 1e-6, 100_000, 0.1


def threshold_of(counts: PairCounts, rate: float, per: str, *, extrapolate: bool) -> float:
    """Least similarity that keeps a rate, per pair or per query."""
    if extrapolate and per == "pair" and rate < FITTED_P_VALUES[1]:
        if rate < LEAST_EXTRAPOLATED:
            raise ValueError(
                f"Got false_positive_rate={rate:g} and extrapolate=True; expected a rate of at "
                f"least {LEAST_EXTRAPOLATED:g}. Set a larger rate."
            )
        return line_of(counts).threshold(rate)
    # P-values per query are exact, however few: the least is that of a cosine above all others.
    few, of = (FEWEST_PAIRS, counts.n) if per == "pair" else (counts.new, counts.n + 1)
    if rate >= few / of:
        return float(counts.threshold(rate))
    if extrapolate and per == "query":
        return counts.beyond(rate)
    needed = np.ceil(few / rate - (of - counts.n) - 1e-9)
    counted = "pairs" if per == "pair" else "queries" if counts.new == 1 else "texts"
    texts = ""
    if per == "pair":  # of n texts, n (n - 1) / 2 are counted, at most n_pairs
        texts = f", of {np.ceil((1 + np.sqrt(1 + 8 * needed)) / 2):,.0f} texts"
        texts += f", and n_pairs={needed:.0f}" if needed > MOST_PAIRS else ""
    raise ValueError(
        f"Estimating false_positive_rate={rate!r} needs {needed:,.0f} {counted}{texts}; got "
        f"{counts.n:,}. Fit a SimilarityScale on more, ask for {few}/{of} or more, or set "
        "extrapolate=True."
    )


def line_of(counts: PairCounts) -> RateLine:
    """Return the line through the rates, if there are enough pairs."""
    line = counts.line()
    if counts.n < EXTRAPOLATED_PAIRS or line.error > LARGEST_ERROR:
        raise ValueError(
            "Estimating rates below 3e-4 needs 448 texts and a straight line through the "
            f"larger rates. Got {counts.n:,} pairs, and a line that is off by {line.error:.2g} "
            f"decades, where {LARGEST_ERROR} is accepted. Fit on more texts of the same kind "
            "without duplicates, or ask for a larger rate or a smaller cosine."
        )
    return line
