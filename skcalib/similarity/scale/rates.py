"""Which rates counted pairs support, and the thresholds that keep them."""

from math import ceil, sqrt

from skcalib.similarity.scale.pairs import FITTED_P_VALUES, PairCounts, RateLine
from skcalib.statistics.conformal import n_above, n_needed

# Pairs that a threshold must let pass for an estimate of its rate.
FEWEST_PAIRS = 10
MOST_PAIRS = 10**7  # default of `n_pairs`
# Limits of ``extrapolate=True``: the smallest rate that was compared with the observed one on
# real texts; the pairs, of which 30 are at the lower end of the line; the error of the line.
LEAST_EXTRAPOLATED, EXTRAPOLATED_PAIRS, LARGEST_ERROR = 1e-6, 100_000, 0.1
HINT = "SimilarityScale.threshold estimates smaller rates with extrapolate=True."


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
    new, kind = counts.new, "queries" if counts.new == 1 else "texts"
    if per == "pair":
        new, needed = FEWEST_PAIRS, n_needed(rate, FEWEST_PAIRS)
        # Of n texts, n (n - 1) / 2 pairs are counted, at most n_pairs.
        kind = f"pairs, of {ceil((1 + sqrt(1 + 8 * needed)) / 2):,} texts"
        kind += f", and n_pairs={needed}" if needed > MOST_PAIRS else ""
    elif extrapolate and counts.n < n_needed(rate, new):
        return counts.beyond(rate)
    hint = "" if extrapolate else f" {HINT}"
    n_above(counts.n, rate, kind, new=new, hint=hint)
    return float(counts.threshold(rate))


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
