"""How similar unrelated texts are: millions of pairs, counted in bins.

Bins are as fine as the precision of float32. The middle of a bin is a multiple of its width, so
that 0, 1/2 and 1 are not on an edge. A threshold is a quarter of a bin above the edge, so that
no pair below passes by rounding.
"""

from dataclasses import dataclass, fields, replace
from functools import reduce
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike

from skcalib.cosines import blocks
from skcalib.inputs.vectors import equal_rows, unit_rows
from skcalib.process.forks import cached_property

# Bins in one unit of similarity; a power of two, so that the edges are exact in binary.
BINS = 2**20
# How far a threshold is below the middle of its bin, in bins.
MARGIN = 0.25
# Pairs that a threshold must let pass for an estimate of its rate.
FEWEST_PAIRS = 10
SAME_LENGTH = 5e-5  # relative difference of the lengths of equal rows, by rounding


@dataclass(frozen=True)
class PairCounts:
    """Numbers of pairs by their similarity, in bins of width 2⁻²⁰."""

    first: int  # bin i has its middle at similarity i / BINS; this is the lowest counted
    counts: np.ndarray  # (n_bins,), of the smallest type that holds them; the last is 0
    new: int = 1  # how many a new one that passes adds: itself, and perhaps its nearest

    @classmethod
    def of(cls, similarity: np.ndarray, new: int = 1) -> Self:
        """Count similarities in [-1, 1]."""
        bins = np.rint(np.clip(similarity, -1, 1) * BINS).astype(np.int32)
        first = int(bins.min())
        counts = np.bincount(bins - first, minlength=int(bins.max()) - first + 2)
        return cls(first, _narrow(counts), new)

    def plus(self, other: Self) -> Self:
        """Count the pairs of both."""
        first = min(self.first, other.first)
        stop = max(part.first + len(part.counts) for part in (self, other))
        counts = np.zeros(stop - first, np.int64)
        for part in (self, other):
            start = part.first - first
            counts[start : start + len(part.counts)] += part.counts
        return replace(self, first=first, counts=_narrow(counts))

    @property
    def n(self) -> int:
        """Number of pairs."""
        return int(self.counts.sum(dtype=np.int64))

    def p_value(self, similarity: np.ndarray) -> np.ndarray:
        """Return ``(new + pairs at least as similar) / (1 + pairs)``, at most 1."""
        bins = np.floor(similarity * BINS + MARGIN) - self.first
        return self._p_values[np.clip(bins, 0, len(self.counts) - 1).astype(np.intp)]

    def threshold(self, p_value: ArrayLike) -> np.ndarray:
        """Least similarity whose p-value is at most this."""
        n_at_most = np.searchsorted(self._p_values[::-1], p_value, side="right")
        return (self.first + len(self.counts) - n_at_most - MARGIN) / BINS

    @cached_property
    def _p_values(self) -> np.ndarray:
        """P-values of the bins. To sum two million takes 20 ms, too long for each query."""
        at_least = self.counts[::-1].cumsum(dtype=np.int64)[::-1]
        return np.minimum((self.new + at_least) / (1 + at_least[0]), 1.0)

    def __getstate__(self) -> dict[str, Any]:
        # Cached properties are not pickled.
        return {field.name: getattr(self, field.name) for field in fields(self)}


def count_pairs(rows: np.ndarray, columns: np.ndarray | None = None) -> PairCounts:
    """Count the cosines of unit rows with all unit columns, or of each pair of rows once."""
    of_blocks = (cosines[np.isfinite(cosines)] for _, _, cosines in blocks(rows, columns))
    counted = (PairCounts.of(pairs) for pairs in of_blocks if len(pairs))
    return reduce(PairCounts.plus, counted)


def distinct(X: np.ndarray) -> np.ndarray:
    """Leave out rows that are equal to an earlier one, also in length, but for rounding."""
    first, lengths = equal_rows(X), unit_rows(X)[1]
    others = np.abs(lengths - lengths[first]) > SAME_LENGTH * lengths
    return X[others | (first == np.arange(len(X)))]


def _narrow(counts: np.ndarray) -> np.ndarray:
    return counts.astype(np.min_scalar_type(counts.max()))
