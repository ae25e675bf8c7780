"""Similarities of millions of pairs, counted in bins as fine as float32 tells cosines apart.

A bin holds what rounds to its middle, a multiple of its width: 0, 1 and 1/2, which many pairs may
share exactly, lie on no edge. A threshold lies a quarter of a bin above the lower edge, so that
pairs which were counted below it do not pass by the rounding of a product in float32.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

__all__ = ["PairCounts", "count_pairs"]

# Bins in one unit of similarity; a power of two, so that the edges are exact in binary.
BINS = 2**20
# How far below the middle of a bin, in bins, the similarities begin that count it as reached.
MARGIN = 0.25
# Rows whose products with all others are in memory at a time.
BLOCK = 1024


@dataclass(frozen=True)
class PairCounts:
    """Numbers of pairs by their similarity, in bins of width 2⁻²⁰."""

    first: int  # bin i has its middle at similarity i / BINS; this is the lowest counted
    counts: np.ndarray  # (n_bins,), of the smallest type that holds them; the last is 0

    def p_value(self, similarity: np.ndarray) -> np.ndarray:
        """``(1 + pairs at least as similar) / (1 + pairs)``."""
        bins = np.clip(
            np.floor(similarity * BINS + MARGIN) - self.first, 0, len(self.counts) - 1
        )
        return self._p_values()[bins.astype(np.intp)]

    def threshold(self, p_value: float) -> float:
        """Least similarity whose p-value is at most this."""
        least = self.first + (self._p_values() <= p_value).argmax()
        return float((least - MARGIN) / BINS)

    def _p_values(self) -> np.ndarray:
        at_least = 1.0 + self.counts[::-1].cumsum(dtype=np.int64)[::-1]
        return at_least / at_least[0]


def count_pairs(unit: np.ndarray, density: np.ndarray) -> list[PairCounts]:
    """Count the cosines of all pairs of rows, and the corrected cosines.

    ``unit`` are float64 rows of unit length. For the corrected cosine of a pair, half the
    ``density``, of shape (n_rows,), of each row is subtracted.
    """
    counts = np.zeros((2, 4 * BINS + 2), np.int64)  # both lie within [-2, 2], but for rounding
    half = density / 2
    for start in range(0, len(unit), BLOCK):
        rows = slice(start, start + BLOCK)
        cosine = unit[rows] @ unit[start:].T
        later = np.arange(cosine.shape[1]) > np.arange(len(cosine))[:, None]
        cosine, correction = cosine[later], (half[rows, None] + half[start:])[later]
        for kind, similarity in zip(counts, (cosine, cosine - correction), strict=True):
            bins = np.rint(np.clip(similarity, -2, 2) * BINS).astype(np.int32) + 2 * BINS
            kind += np.bincount(bins, minlength=len(kind))
    return [_trimmed(kind) for kind in counts]


def _trimmed(counts: np.ndarray) -> PairCounts:
    filled = np.flatnonzero(counts)
    kept = counts[filled[0] : filled[-1] + 2]
    return PairCounts(int(filled[0]) - 2 * BINS, kept.astype(np.min_scalar_type(kept.max())))
