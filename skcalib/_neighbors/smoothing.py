"""Vectors moved toward their nearest neighbours, and a sign that this would harm."""

from __future__ import annotations

import numpy as np

from skcalib._neighbors.search import EQUAL, density

__all__ = ["LEAST_SIBLINGS", "siblings", "smoothed"]

# Value of `siblings` below which smoothing harms. With two encoders and any number of texts
# from 250 on, it is 0.47 to 0.71 for intents, and 0.36 to 0.46 for STS-B.
LEAST_SIBLINGS = 0.46


def smoothed(
    unit: np.ndarray,
    candidates: np.ndarray,
    missing: np.ndarray,
    *,
    n_neighbors: int,
    weight: float,
    power: float,
) -> np.ndarray:
    """``unit(x + weight Σ w_j x_j / Σ w_j)`` over the nearest candidates, ``w = cos^power``.

    ``candidates`` of shape (n_samples, m, d) are of unit length, but for those ``missing``. One
    that is equal to x is left out, and of the others the ``n_neighbors`` nearest count.
    """
    # These do not depend on the rows beside them, as the cosines of a search do.
    cosines = np.where(missing, -np.inf, np.einsum("ij,ikj->ik", unit, candidates))
    rank = np.argsort(np.argsort(-cosines, axis=1, kind="stable"), axis=1)
    rank -= cosines.max(axis=1, keepdims=True) >= EQUAL
    counts = (rank >= 0) & (rank < n_neighbors) & (cosines > 0)
    weights = np.where(counts, np.maximum(cosines, 0) ** power, 0)
    total = weights.sum(axis=1, keepdims=True)
    weights *= weight / np.where(total > 0, total, 1)
    moved = unit + np.einsum("ik,ikj->ij", weights, candidates)
    length = np.linalg.norm(moved, axis=1, keepdims=True)
    return moved / np.where(length > 0, length, 1)


def siblings(unit: np.ndarray) -> float:
    """Mean cosine of a text with the nearest 0.5 % of the others, for a sample of texts.

    A share of the others, unlike a number, is as near whatever the number of texts. Texts that
    come several times count once.
    """
    rng = np.random.default_rng(0)
    sample = rng.permutation(np.unique(rng.permutation(unit)[:4000], axis=0))
    if len(sample) < 2:
        return 0.0
    return float(density(sample[:1000], sample, max(1, len(sample) // 200)).mean())
