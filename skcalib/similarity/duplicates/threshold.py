"""The cosine that a given number of pairs of unrelated texts reaches."""

import numpy as np

from skcalib.base import warn
from skcalib.cosines import EQUAL, nearest_in_order
from skcalib.similarity.duplicates.pairs import representatives, similar_pairs
from skcalib.similarity.null import (
    EXTRAPOLATED_PAIRS,
    FEWEST_PAIRS,
    FITTED_P_VALUES,
    LARGEST_ERROR,
    LEAST_EXTRAPOLATED,
    PairCounts,
    RateLine,
    count_pairs,
)

# Distinct texts whose ten million pairs give the rates.
COUNTED_TEXTS = 4473
# Rates of two stricter lines: for texts whose duplicates bend the usual line, and for texts
# whose duplicates bend that one, too.
LARGER_P_VALUES, LARGEST_P_VALUES = (3e-2, 3e-3), (3e-1, 3e-2)
# In one of twenty unrelated texts the nearest neighbor leads by so many times the mean lead.
LEAD = np.log(20)
# Copies stand apart if this share of the pairs at some rate stays at a twentieth of it. In
# simulations it was 0.9 or more of near copies, and below 0.7 of series and of distant copies.
APART = 0.8
# Most rounds in which pairs to leave out are chosen; their number settles after a few.
ROUNDS = 10


def threshold_of(vectors: np.ndarray, order: np.ndarray, false_pairs: float) -> float:
    """Return the threshold for distinct unit vectors, which a random ``order`` lists."""
    n, n_pairs = len(order), len(order) * (len(order) - 1) // 2
    if n < 2:
        return EQUAL
    drawn, rate = vectors[order[:COUNTED_TEXTS]], false_pairs / n_pairs
    counts, n_drawn = _counts(drawn), len(drawn)
    by_line = counts.n >= EXTRAPOLATED_PAIRS
    least = 0 if by_line else FEWEST_PAIRS / counts.n
    needs = f"448 distinct texts; got {n:,}"
    if not least <= rate < 1:
        lowest, highest = int(np.ceil(least * n_pairs)), n_pairs - 1
        other = f", or set false_pairs from {lowest} to {highest}" if lowest <= highest else ""
        raise ValueError(
            f"Estimating false_pairs={false_pairs:g} of {n_pairs:,} pairs needs {needs}. "
            f"Give more texts{other}."
        )
    if not by_line:
        warn(
            f"false_pairs={false_pairs:g} needs {needs}. So the pairs are counted: at most "
            f"{false_pairs:g} pairs are listed, duplicates included. Give more texts."
        )
        return min(EQUAL, float(counts.threshold(rate)))
    if rate < LEAST_EXTRAPOLATED:
        least = LEAST_EXTRAPOLATED * n_pairs
        warn(
            f"false_pairs={false_pairs:g} of {n_pairs:,} pairs is less than was compared with "
            f"counts, {least:,.0f} or more, where up to ten times as many were listed. Check "
            "the pairs from the first on, or set a larger false_pairs."
        )
    is_bent = counts.line(LARGER_P_VALUES).error > LARGEST_ERROR
    if is_bent and _stand_apart(counts, LARGEST_P_VALUES):
        # The usual line may be straight, since all of it is among the duplicates.
        counts, drawn = _without_duplicates(counts, drawn, rate, LARGEST_P_VALUES)
    if rate >= FITTED_P_VALUES[1]:
        threshold = float(counts.threshold(rate))
    else:
        line = _line_of_unrelated(counts, drawn)
        if line.error > LARGEST_ERROR:
            line, counts = _line_without_copies(counts, drawn, rate, false_pairs, n_drawn)
        if line.error > LARGEST_ERROR:
            raise ValueError(
                f"The pairs of {n:,} distinct texts give no threshold: the line through their "
                f"rates is off by {line.error:.2g} decades, as if many were near copies. Leave "
                "out most of the texts that repeat one template, or set a larger false_pairs."
            )
        threshold = line.threshold(rate)
    _warn_of_hidden(counts, rate)
    return min(EQUAL, threshold)


def _line_without_copies(
    counts: PairCounts, drawn: np.ndarray, rate: float, false_pairs: float, n_drawn: int
) -> tuple[RateLine, PairCounts]:
    """Fit a line to texts without those that count as duplicates; warn if they may not be.

    Return the line and the counts of the texts that are left.
    """
    apart = _stand_apart(counts, LARGER_P_VALUES)
    counts, kept = _without_duplicates(counts, drawn, rate, LARGER_P_VALUES)
    line = _line(counts)
    if not apart and line.error <= LARGEST_ERROR:
        warn(
            f"{len(drawn) - len(kept):,} of {n_drawn:,} texts are similar to others, as copies "
            "or series of products are, and count as duplicates, beyond "
            f"false_pairs={false_pairs:g}. Check the pairs, or use a guard."
        )
    return line, counts


def _warn_of_hidden(counts: PairCounts, rate: float) -> None:
    """Warn if so many pairs are similar that duplicates may be below the threshold."""
    for p_values in (LARGER_P_VALUES, LARGEST_P_VALUES):
        if rate < p_values[1] and counts.line(p_values).error > LARGEST_ERROR:
            warn(
                f"More than {100 * p_values[1]:g}% of all pairs of texts are similar, as in "
                "series of products or texts of one template. These count as unrelated, so "
                "duplicates may be missed. Leave out most of these texts, or set a larger "
                "false_pairs."
            )
            return


def _line_of_unrelated(counts: PairCounts, vectors: np.ndarray) -> RateLine:
    """Fit a line through the rates, without pairs that are likely true if these bend it.

    Where the rate falls exponentially in z, the largest of many z leads the second by an
    exponential variable with the mean of one e-fold, however dense the neighborhood is. So two
    texts that are nearest to each other, and lead by much more, are likely a true pair, and
    hardly any unrelated ones are left out. True pairs make the line too flat, and the mean lead
    too large, so that each round may find more.
    """
    line, n_out = _line(counts), 0
    if counts.n < EXTRAPOLATED_PAIRS:  # few are left, without duplicates
        return line
    cosines, leads = _mutual(vectors)
    at_end = FITTED_P_VALUES[1] * counts.n
    for _ in range(ROUNDS):
        out = leads > LEAD * -line.slope / np.log(10)
        if out.sum() <= n_out:
            break
        n_out, line = out.sum(), counts.without(cosines[out]).line()
    # At the end of the line; a bend below its accepted error does no harm.
    bends = n_out > (1 - 10**-LARGEST_ERROR) * at_end
    return line if bends else counts.line()


def _line(counts: PairCounts) -> RateLine:
    """Fit a line to the smallest rates that 30 pairs or more reach."""
    least = EXTRAPOLATED_PAIRS * FITTED_P_VALUES[1] / counts.n
    reached = (p for p in (FITTED_P_VALUES, LARGER_P_VALUES) if p[1] >= least)
    return counts.line(next(reached, LARGEST_P_VALUES))


def _mutual(vectors: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Cosines of texts that are nearest to each other, and their leads over others in z."""
    own = np.arange(len(vectors))
    cosines, rows = nearest_in_order(vectors, vectors, 3)
    best = np.where(rows[:, 0] == own, rows[:, 1], rows[:, 0])  # the other is itself
    left = own[(best[best] == own) & (own < best)]
    z = np.arctanh(np.clip(cosines, -EQUAL, EQUAL))
    return cosines[left, 1], z[left, 1] - np.maximum(z[left, 2], z[best[left], 2])


def _counts(vectors: np.ndarray) -> PairCounts:
    return count_pairs(vectors.astype(np.float64))


def _stand_apart(counts: PairCounts, p_values: tuple[float, float]) -> bool:
    """Whether a gap is between unrelated pairs and those that bend the line at smaller rates.

    In a gap, hardly any pair is between a threshold and that for a twentieth of its rate. In a
    series, such as "8 GB, blue" and "8 GB, pink", similarities have no gap.
    """
    line = counts.line(p_values)
    rates = np.geomspace(p_values[1], LEAST_EXTRAPOLATED, 50)
    found, kept = (
        counts.p_value(np.array([line.threshold(p) for p in at])) for at in (rates, rates / 20)
    )
    bend = found >= (1 - 10**-LARGEST_ERROR) * p_values[1] / 10
    return bool((bend & (kept >= APART * found)).any())


def _without_duplicates(
    counts: PairCounts, vectors: np.ndarray, rate: float, p_values: tuple[float, float]
) -> tuple[PairCounts, np.ndarray]:
    """Keep one vector of each group that a line through larger rates finds, if it is straight.

    Return their counts and these vectors.
    """
    line = counts.line(p_values)
    if line.error > LARGEST_ERROR:
        return counts, vectors
    one = np.ones(len(vectors), int)
    pairs = similar_pairs(vectors, one, min(EQUAL, line.threshold(rate)))
    vectors = vectors[representatives(*pairs, one)]
    return _counts(vectors), vectors
