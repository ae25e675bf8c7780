"""The cosine that a given number of pairs of unrelated texts reaches."""

import numpy as np

from skcalib._base import warn
from skcalib._duplicates.pairs import representatives, similar_pairs
from skcalib._neighbors.search import EQUAL
from skcalib._scale.estimator import SimilarityScale
from skcalib._scale.pairs import FITTED_P_VALUES, PairCounts, count_pairs
from skcalib._scale.rates import EXTRAPOLATED_PAIRS, FEWEST_PAIRS, LARGEST_ERROR

# Distinct texts whose ten million pairs tell the rates.
COUNTED_TEXTS = 4473
# Rates of a line for texts whose duplicates bend the usual one; its threshold is stricter.
LARGER_P_VALUES = 3e-2, 3e-3


def threshold_of(
    vectors: np.ndarray, false_pairs: float, scale: SimilarityScale | None
) -> float:
    """Threshold for distinct unit vectors, of which the first are drawn at random."""
    n, n_pairs = len(vectors), len(vectors) * (len(vectors) - 1) // 2
    if n == 1:
        return EQUAL
    drawn, rate = vectors[:COUNTED_TEXTS], false_pairs / n_pairs
    counts = _counts(drawn) if scale is None else scale._counted("pair", False)
    by_line = counts.n >= EXTRAPOLATED_PAIRS
    least = 0 if by_line else FEWEST_PAIRS / counts.n
    if not least <= rate < 1:
        raise ValueError(
            f"false_pairs={false_pairs:g} cannot be told from {n:,} distinct texts, which have "
            f"{n_pairs:,} pairs. Give more texts (448 tell any number), or a number from "
            f"{np.ceil(least * n_pairs):.0f} to {n_pairs - 1}."
        )
    if not by_line:
        warn(
            f"false_pairs={false_pairs:g} are counted, not estimated, among the pairs of {n:,} "
            "distinct texts: no more are listed, duplicates included. Give 448 texts or more."
        )
    if not by_line or rate >= FITTED_P_VALUES[1]:
        return min(EQUAL, float(counts.threshold(rate)))
    line = counts.line()
    if scale is None and line.error > LARGEST_ERROR:
        stricter = counts.line(LARGER_P_VALUES)
        if stricter.error <= LARGEST_ERROR:
            strict = min(EQUAL, stricter.threshold(rate))
            line = _counts(_without_duplicates(drawn, strict)).line()
    if line.error > LARGEST_ERROR:
        raise ValueError(
            f"The pairs of {n:,} distinct texts do not tell the threshold: the line through "
            f"their rates is off by {line.error:.2g} decades, as when many are near copies. "
            "Give scale=SimilarityScale().fit(vectors), of such texts without duplicates."
        )
    return min(EQUAL, line.threshold(rate))


def _counts(vectors: np.ndarray) -> PairCounts:
    return count_pairs(vectors.astype(np.float64))[0]


def _without_duplicates(vectors: np.ndarray, threshold: float) -> np.ndarray:
    one = np.ones(len(vectors), int)
    pairs = similar_pairs(vectors, one, threshold)
    return vectors[representatives(*pairs, one, np.arange(len(vectors)))]
