"""Count similarities of millions of pairs, in bins as fine as the precision of float32.

A bin holds what rounds to its middle, a multiple of its width, so that 0, 1/2 and 1, which many
pairs may share exactly, are not on an edge. A threshold is a quarter of a bin above the lower
edge, so that no pair that was counted below it passes by rounding in float32.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

__all__ = ["FITTED_P_VALUES", "PairCounts", "count_pairs"]

# Bins in one unit of similarity; a power of two, so that the edges are exact in binary.
BINS = 2**20
# How far a threshold is below the middle of its bin, in bins.
MARGIN = 0.25
# The largest and the smallest p-value that a line is fitted to.
FITTED_P_VALUES = 3e-3, 3e-4
# Rows whose products with all others are in memory at a time.
BLOCK = 1024


@dataclass(frozen=True)
class PairCounts:
    """Numbers of pairs by their similarity, in bins of width 2⁻²⁰."""

    first: int  # bin i has its middle at similarity i / BINS; this is the lowest counted
    counts: np.ndarray  # (n_bins,), of the smallest type that holds them; the last is 0

    def p_value(self, similarity: np.ndarray) -> np.ndarray:
        """``(1 + pairs at least as similar) / (1 + pairs)``."""
        bins = np.floor(similarity * BINS + MARGIN) - self.first
        return self._p_values()[np.clip(bins, 0, len(self.counts) - 1).astype(np.intp)]

    def threshold(self, p_value: ArrayLike) -> np.ndarray:
        """Least similarity whose p-value is at most this."""
        least = self.first + np.searchsorted(-self._p_values(), -np.asarray(p_value))
        return (least - MARGIN) / BINS

    def extrapolated(self, p_value: float) -> tuple[float, float]:
        """Threshold of cosines below the p-values counted, and the largest error of the fit.

        Fisher's z of a cosine, ``artanh``, is nearly a straight line in the logarithm of the
        p-value. It is fitted where related pairs hardly count. The error is in decades.
        """
        largest, least = FITTED_P_VALUES
        p_values = np.geomspace(largest, least, 15)
        decades = np.log10(p_values)
        z = np.arctanh(np.clip(self.threshold(p_values), -1 + 1e-6, 1 - 1e-6))
        line = np.polyfit(decades, z, 1)
        falls = line[0] < -1e-3  # a line through ties fits, but means nothing
        error = np.abs(np.polyval(line, decades) - z).max() / -line[0] if falls else np.inf
        return float(np.tanh(np.polyval(line, np.log10(p_value)))), float(error)

    def _p_values(self) -> np.ndarray:
        at_least = 1.0 + self.counts[::-1].cumsum(dtype=np.int64)[::-1]
        return at_least / at_least[0]


def count_pairs(unit: np.ndarray, corrections: list[np.ndarray]) -> list[PairCounts]:
    """Count the cosines of all pairs of rows, which are float64 and of unit length.

    There is a result for each of ``corrections``, of shape (n_rows,): half the correction of
    each row of a pair is subtracted.
    """
    counts = np.zeros((len(corrections), 4 * BINS + 2), np.int64)  # all lie within [-2, 2]
    for start in range(0, len(unit), BLOCK):
        block = slice(start, start + BLOCK)
        similarity = unit[block] @ unit[start:].T
        later = np.arange(similarity.shape[1]) > np.arange(len(similarity))[:, None]
        similarity = similarity[later]
        for kind, correction in zip(counts, corrections, strict=True):
            less = (correction[block, None] / 2 + correction[start:] / 2)[later]
            bins = np.rint(np.clip(similarity - less, -2, 2) * BINS).astype(np.int32)
            kind += np.bincount(bins + 2 * BINS, minlength=len(kind))
    return [_trimmed(kind) for kind in counts]


def _trimmed(counts: np.ndarray) -> PairCounts:
    filled = np.flatnonzero(counts)
    kept = counts[filled[0] : filled[-1] + 2]
    first = int(filled[0]) - 2 * BINS
    return PairCounts(first, kept.astype(np.min_scalar_type(kept.max())))
