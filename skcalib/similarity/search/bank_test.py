"""Whether new queries are drawn like those of a bank."""

from dataclasses import dataclass
from typing import Self

import numpy as np
from scipy.sparse.csgraph import connected_components
from scipy.stats import mannwhitneyu

from skcalib.cosines import EQUAL, blocks

FEWEST = 5  # new queries to compare
MOST_OF_BANK = 1000  # queries in a half of the bank
MOST = 200  # new queries that are compared, drawn at random
NEAR = 0.1  # squared distance of near copies, at most, over the mean of all pairs


@dataclass(frozen=True, eq=False)
class BankTest:
    """One half of a bank of unit vectors, and how familiar the other half is with it."""

    reference: np.ndarray  # (n, d), float32
    familiarity: np.ndarray  # of the other half
    near: float  # cosine of near copies, at least

    @classmethod
    def of(cls, bank: np.ndarray) -> Self | None:
        """Cut a bank into random halves; None if it is too small."""
        mean = bank.mean(axis=0, dtype=np.float64)
        near = min(1 - NEAR * (1 - float(mean @ mean)), EQUAL)
        bank = without_copies(drawn(bank, 2 * MOST_OF_BANK), near)
        half = len(bank) // 2
        if half < FEWEST:
            return None
        return cls(bank[:half], familiarity(bank[half:], bank[:half]), near)

    def p_value(self, queries: np.ndarray) -> float:
        """Chance that queries drawn like the bank are as unfamiliar, or more.

        Given the reference, new queries and the other half of the bank come from the same
        distribution, so their ranks can be compared (Mann & Whitney, 1947), whatever the
        distribution is. Several queries on a topic of the bank are familiar, but queries in
        another language are not. Near copies count once, in the bank and here: otherwise the
        halves of the bank have copies of each other, and would be familiar for that reason.
        """
        new = without_copies(drawn(queries[queries.any(axis=1)], MOST), self.near)
        if len(new) < FEWEST:
            return 1.0
        found = familiarity(new, self.reference)
        return float(mannwhitneyu(found, self.familiarity, alternative="less").pvalue)


def drawn(queries: np.ndarray, most: int) -> np.ndarray:
    """Return at most so many of the queries, in random order."""
    return queries[np.random.default_rng(0).permutation(len(queries))[:most]]


def without_copies(queries: np.ndarray, near: float) -> np.ndarray:
    """Return the first query of each family of near copies, and of their near copies."""
    is_near = np.empty((len(queries), len(queries)), bool)
    for rows, _, cosines in blocks(queries, queries, whole=True):
        is_near[rows] = cosines >= near
    family = connected_components(is_near, directed=False)[1]
    return queries[np.sort(np.unique(family, return_index=True)[1])]


def familiarity(queries: np.ndarray, reference: np.ndarray) -> np.ndarray:
    """Cosine of each query with the nearest of the reference."""
    return (queries @ reference.T).max(axis=1)
