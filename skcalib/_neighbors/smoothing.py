"""Vectors moved toward their nearest neighbours, and when that blurs what they say."""

from __future__ import annotations

import numpy as np

from skcalib._neighbors.search import EQUAL, density

__all__ = ["LEAST_DENSITY", "share_density", "smoothed"]

# Share of the texts among which `share_density` looks, and its value below which smoothing
# harms. Of any number of texts from 250 on it is 0.47 to 0.71 for intents and 0.37 to 0.46 for
# sentences of STS, with two encoders (docs/tasks/search.md).
SHARE, LEAST_DENSITY = 0.005, 0.46
SAMPLED_TEXTS, SAMPLED_QUERIES = 4000, 1000


def smoothed(
    unit: np.ndarray,
    rows: np.ndarray,
    fitted: np.ndarray,
    *,
    n_neighbors: int,
    weight: float,
    power: float,
) -> np.ndarray:
    """``unit(x + weight Σ w_j x_j / Σ w_j)`` over the nearest of ``rows``, ``w = cos^power``.

    ``rows`` of shape (n_samples, m) are candidates among the fitted vectors, -1 for none. The
    first that is equal to x is left out, and of the others the ``n_neighbors`` nearest count.
    """
    candidates = fitted[rows]
    # Whatever the search did, these cosines do not depend on the rows beside them.
    cosines = np.einsum("ij,ikj->ik", unit, candidates)
    cosines[rows < 0] = -np.inf
    order = np.argsort(-cosines, axis=1, kind="stable")
    rank = np.argsort(order, axis=1) - (cosines.max(axis=1, keepdims=True) >= EQUAL)
    counts = (rank >= 0) & (rank < n_neighbors) & (cosines > 0)
    weights = np.where(counts, cosines, 0) ** power * counts
    total = weights.sum(axis=1, keepdims=True)
    weights *= weight / np.where(total > 0, total, 1)
    moved = unit + np.einsum("ik,ikj->ij", weights, candidates)
    length = np.linalg.norm(moved, axis=1, keepdims=True)
    return moved / np.where(length > 0, length, 1)


def share_density(fitted: np.ndarray) -> float:
    """Mean cosine of a text with the nearest 0.5 % of the others, for a sample of texts.

    A share, unlike a number, of neighbours is as near whatever the number of texts. Texts that
    come several times count once.
    """
    rng = np.random.default_rng(0)
    sample = fitted[rng.permutation(len(fitted))[:SAMPLED_TEXTS]]
    sample = rng.permutation(np.unique(sample, axis=0))
    if len(sample) < 2:
        return 0.0
    k = max(1, round(SHARE * (len(sample) - 1)))
    return float(density(sample[:SAMPLED_QUERIES], sample, k).mean())
