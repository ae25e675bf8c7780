"""Similarities of millions of pairs, counted in bins as fine as float32 tells cosines apart."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

__all__ = ["PairCounts", "count_pairs", "n_rows_used"]

# Bins in one unit of similarity; a power of two, so that the edges are exact in binary.
BINS = 2**20
# Rows of a block; a product of two blocks is 4 MB.
BLOCK = 1024


@dataclass(frozen=True)
class PairCounts:
    """Numbers of pairs by their similarity, in bins of width 2⁻²⁰."""

    first: int  # bin i begins at similarity i / BINS; this is the lowest counted
    counts: np.ndarray  # (n_bins,), of the smallest type that holds them; the last is 0

    def at_least(self) -> np.ndarray:
        """Numbers of pairs in each bin or above it."""
        return self.counts[::-1].cumsum(dtype=np.int64)[::-1]

    def mean(self) -> float:
        """Mean similarity, to the width of a bin."""
        middles = self.first + 0.5 + np.arange(len(self.counts))
        return float(np.average(middles, weights=self.counts) / BINS)

    def p_value(self, similarity: np.ndarray) -> np.ndarray:
        """``(1 + pairs at least as similar) / (1 + pairs)``."""
        at_least = self.at_least()
        bins = np.clip(np.floor(similarity * BINS) - self.first, 0, len(at_least) - 1)
        return (1.0 + at_least[bins.astype(np.intp)]) / (1.0 + at_least[0])

    def threshold(self, p_value: float) -> float:
        """Least similarity whose p-value is at most this."""
        at_least = self.at_least()
        passing = (1.0 + at_least) / (1.0 + at_least[0]) <= p_value
        return float((self.first + passing.argmax()) / BINS)


def n_rows_used(n_rows: int, n_pairs: int) -> int:
    """Rows whose pairs `count_pairs` counts: the pairs within blocks come first."""
    return min(n_rows, BLOCK * -(-2 * n_pairs // (BLOCK * (BLOCK - 1))))


def count_pairs(unit: np.ndarray, half_density: np.ndarray, n_pairs: int) -> list[PairCounts]:
    """Count the cosines of about ``n_pairs`` pairs of rows, and of the corrected cosines.

    ``unit`` are float32 rows of unit length in a random order, and ``half_density`` of shape
    (n_rows,) is what the correction subtracts for each.
    """
    counts = np.zeros((2, 4 * BINS + 2), np.int64)  # both lie within [-2, 2]
    half_density = half_density.astype(np.float32)
    seen = 0
    for a, b in _blocks(len(unit)):
        cosine = unit[a] @ unit[b].T
        corrected = cosine - half_density[a, None] - half_density[b]
        if a == b:
            distinct = np.triu_indices(len(cosine), k=1)
            cosine, corrected = cosine[distinct], corrected[distinct]
        for kind, similarity in zip(counts, (cosine, corrected), strict=True):
            bins = np.floor(similarity.ravel() * BINS).astype(np.int32) + 2 * BINS
            kind += np.bincount(bins, minlength=len(kind))
        seen += cosine.size
        if seen >= n_pairs:
            break
    return [_trimmed(kind) for kind in counts]


def _blocks(n_rows: int) -> Iterator[tuple[slice, slice]]:
    """Yield pairs of blocks, so that each two rows meet once, and all early."""
    starts = range(0, n_rows, BLOCK)
    blocks = [slice(start, min(start + BLOCK, n_rows)) for start in starts]
    for distance in range(len(blocks)):
        yield from zip(blocks, blocks[distance:], strict=False)


def _trimmed(counts: np.ndarray) -> PairCounts:
    filled = np.flatnonzero(counts)
    kept = counts[filled[0] : filled[-1] + 2]
    return PairCounts(int(filled[0]) - 2 * BINS, kept.astype(np.min_scalar_type(kept.max())))
