"""Vectors moved toward their nearest neighbors."""

import numpy as np

from skcalib.utils.cosines import EQUAL
from skcalib.utils.vectors import LAST_BIT

# Cosines up to this count as 0. Each entry of two unit vectors is rounded to float32, so the
# computed cosine of orthogonal vectors is at most the sum of both relative errors.
ZERO = 2 * LAST_BIT


def smoothed(
    unit: np.ndarray,
    candidates: np.ndarray,
    missing: np.ndarray,
    n_neighbors: int,
    weight: float,
    alpha: float,
) -> np.ndarray:
    """``unit(x + weight Σ w_j x_j / Σ w_j)`` over the nearest candidates, ``w = cos^alpha``.

    ``unit`` is float64. ``candidates`` of shape (n_samples, m, d) have unit length, except the
    ``missing``. One candidate that equals x is left out; of the others, the ``n_neighbors``
    nearest count.
    """
    # Unlike the cosines of a search, these do not depend on the other rows.
    cosines = np.einsum("ij,ikj->ik", unit, candidates)
    cosines[missing] = 0.0  # no weight
    first = cosines.argmax(axis=1)[:, None]
    highest = np.take_along_axis(cosines, first, axis=1)
    np.put_along_axis(cosines, first, np.where(highest >= EQUAL, 0.0, highest), axis=1)
    farther = np.argsort(-cosines, axis=1, kind="stable")[:, n_neighbors:]
    np.put_along_axis(cosines, farther, 0.0, axis=1)
    weights = np.where(cosines > ZERO, np.abs(cosines) ** alpha, 0.0)
    total = weights.sum(axis=1, keepdims=True)
    weights *= weight / np.where(total > 0, total, 1)
    moved = unit + np.einsum("ik,ikj->ij", weights, candidates)
    length = np.linalg.norm(moved, axis=1, keepdims=True)
    return moved / np.where(length > 0, length, 1)
