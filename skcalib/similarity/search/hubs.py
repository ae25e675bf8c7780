"""Hubs: vectors that are near many vectors of another side, whatever these are about."""

import numpy as np

from skcalib.cosines import blocks

NEAREST = 0.1  # share of a bank, whose mean cosine with a vector is its hubness
SPLITS = 32  # of a bank into halves
COMPARED = 2000  # vectors, at most, whose hubness the halves estimate
BANK = 2000  # vectors, at most, that the hubness of each is computed from
# Effective number of vectors that are first, over the expected one: hubs are left as they are,
# or corrected in full. Chance varies it by less than .05 for a bank of 100.
CONCENTRATED, EVEN = 0.75, 0.95


def bank_of(vectors: np.ndarray) -> np.ndarray:
    """Return `BANK` of the vectors at most, in random order."""
    return vectors[np.random.default_rng(0).permutation(len(vectors))[:BANK]]


def n_nearest(n: int) -> int:
    """Return how many of n vectors of a bank are `NEAREST`."""
    return max(round(NEAREST * n), 1)


def hubness(vectors: np.ndarray, bank: np.ndarray) -> np.ndarray:
    """Mean cosine of each vector with the nearest vectors of a bank, float64.

    Both have unit length. This is r of CSLS (Conneau et al., 2018) and of Nearest Neighbor
    Normalization (Chowdhury et al., 2024).
    """
    mean = np.empty(len(vectors))
    for rows, _, cosines in blocks(vectors, bank, whole=True):
        mean[rows] = _largest(cosines)
    return mean


def gate(first: np.ndarray, n_vectors: int) -> float:
    """Return 1 if hubs are accidents of the space, 0 if they answer most of a bank, or between.

    ``first`` has the row, among n_vectors, of the nearest one to each vector of the bank. Their
    effective number, one over the sum of squared shares, is compared with that of queries which
    ask for each vector equally often. Where it is smaller, a few vectors are first because they
    are asked for, as popular answers are, and pushing them away would cost these.
    """
    n = len(first)
    squares = float(((np.bincount(first) / n) ** 2).sum())
    ratio = (1 / n + (1 - 1 / n) / n_vectors) / squares
    return float(np.clip((ratio - CONCENTRATED) / (EVEN - CONCENTRATED), 0, 1))


def repeatability(vectors: np.ndarray, bank: np.ndarray) -> float:
    """Share of the variance of `hubness` that another bank of this size would repeat.

    The correlation between the hubness by two halves of the bank, averaged over random halves,
    is that of a bank of half the size; the formula of Spearman and Brown (1910) leads to the
    whole. It is small for few queries, and where documents are near the few queries that they
    answer, and no others.
    """
    half = len(bank) // 2
    if half < 2:
        return 0.0
    rng = np.random.default_rng(0)
    drawn = vectors[rng.permutation(len(vectors))[:COMPARED]]
    cosines = drawn @ bank.T
    correlations = []
    for _ in range(SPLITS):
        order = rng.permutation(len(bank))
        halves = (_largest(cosines[:, order[i : i + half]]) for i in (0, half))
        both = np.array([one - one.mean() for one in halves])
        lengths = np.prod(np.linalg.norm(both, axis=1))
        correlations.append(both[0] @ both[1] / lengths if lengths > 0 else 0.0)
    correlation = max(float(np.mean(correlations)), 0.0)
    return 2 * correlation / (1 + correlation)


def _largest(cosines: np.ndarray) -> np.ndarray:
    """Mean of the `NEAREST` entries of each row."""
    k = n_nearest(cosines.shape[1])
    return np.partition(cosines, -k, axis=1)[:, -k:].mean(axis=1, dtype=np.float64)
