"""Whether new queries are drawn like those of a bank."""

from dataclasses import dataclass
from typing import Self

import numpy as np
from scipy.stats import mannwhitneyu

NEAREST = 3  # queries of the reference, whose mean cosine is how familiar a query is
FEWEST = 5  # new queries to compare
MOST_OF_BANK = 1000  # queries in a half of the bank
MOST = 200  # new queries that are compared, drawn at random


@dataclass(frozen=True, eq=False)
class BankTest:
    """One half of a bank of unit vectors, and how familiar the other half is with it."""

    reference: np.ndarray  # (n, d), float32
    familiarity: np.ndarray  # of the other half

    @classmethod
    def of(cls, bank: np.ndarray) -> Self | None:
        """Cut a bank into random halves; None if it is too small."""
        bank = bank[np.random.default_rng(0).permutation(len(bank))[: 2 * MOST_OF_BANK]]
        half = len(bank) // 2
        if half < FEWEST:
            return None
        return cls(bank[:half], familiarity(bank[half:], bank[:half]))

    def p_value(self, queries: np.ndarray) -> float:
        """Chance that queries drawn like the bank are as unfamiliar, or more.

        Given the reference, new queries and the other half of the bank come from the same
        distribution, so their ranks can be compared (Mann & Whitney, 1947), whatever the
        distribution is. Several queries on a topic of the bank are familiar, but queries in
        another language are not. Each distinct query counts once.
        """
        distinct = np.unique(queries[queries.any(axis=1)], axis=0)
        if len(distinct) < FEWEST:
            return 1.0
        drawn = np.random.default_rng(0).permutation(len(distinct))[:MOST]
        new = familiarity(distinct[drawn], self.reference)
        return float(mannwhitneyu(new, self.familiarity, alternative="less").pvalue)


def familiarity(queries: np.ndarray, reference: np.ndarray) -> np.ndarray:
    """Mean cosine of each query with its `NEAREST` of the reference, float64."""
    k = min(NEAREST, len(reference))
    cosines = np.partition(queries @ reference.T, -k, axis=1)[:, -k:]
    return cosines.mean(axis=1, dtype=np.float64)
