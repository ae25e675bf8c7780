"""Exact search for the nearest of many vectors by cosine, in float32 and bounded memory."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from sklearn.utils import gen_batches

from skcalib._machine.threads import map_row_ranges

__all__ = ["EQUAL", "cosines_of_others", "density", "nearest"]

# Cosine from which two vectors count as those of one text: rounding alone stays above.
EQUAL = 1 - 1e-6
# Queries and fitted vectors whose product is in memory, 16 MB in each thread.
QUERIES, FITTED = 256, 16384
# Rows that a row of the product is folded into before the largest are looked for.
STRIPES = 16


def nearest(queries: np.ndarray, fitted: np.ndarray, k: int) -> tuple[np.ndarray, np.ndarray]:
    """Cosines and rows of the ``k`` fitted vectors nearest each query, in no order.

    Both are float32 and of unit length. The results have the shape (n_queries, k).
    """
    cosines = np.empty((len(queries), k), np.float32)
    rows = np.empty((len(queries), k), np.intp)
    width = min(FITTED, -(-len(fitted) // STRIPES) * STRIPES)

    def search(chunks: Iterator[slice]) -> None:
        product = np.empty((QUERIES, width), np.float32)
        for chunk in chunks:
            cosines[chunk], rows[chunk] = _nearest_of_all(queries[chunk], fitted, k, product)

    limits = {"working_bytes": 4 * QUERIES * width, "rows_per_thread": QUERIES}
    map_row_ranges(search, len(queries), QUERIES, **limits)
    return cosines, rows


def _nearest_of_all(
    queries: np.ndarray, fitted: np.ndarray, k: int, product: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """As `nearest`, block by block of the fitted vectors; ``product`` is overwritten."""
    product = product[: len(queries)]
    cosines: np.ndarray = np.empty((len(queries), 0), np.float32)
    rows: np.ndarray = np.empty((len(queries), 0), np.intp)
    for block in gen_batches(len(fitted), product.shape[1]):
        n = block.stop - block.start
        np.matmul(queries, fitted[block].T, out=product[:, :n])
        product[:, n:] = -np.inf
        found = _largest(product, min(k, n))
        cosines = np.hstack([cosines, np.take_along_axis(product, found, axis=1)])
        rows = np.hstack([rows, found + block.start])
        if cosines.shape[1] > k:
            best = np.argpartition(cosines, -k, axis=1)[:, -k:]
            cosines, rows = (np.take_along_axis(a, best, axis=1) for a in (cosines, rows))
    return cosines, rows


def _largest(product: np.ndarray, k: int) -> np.ndarray:
    """Columns of the ``k`` largest entries of each row, in no order.

    Each row is folded into `STRIPES` rows. Its ``k`` largest entries lie in the ``k`` folded
    columns of greatest maximum, and maxima cost a tenth of a partition.
    """
    n_folded = product.shape[1] // STRIPES
    if n_folded <= 2 * k:
        return np.argpartition(product, -k, axis=1)[:, -k:]
    maxima = product.reshape(len(product), STRIPES, n_folded).max(axis=1)
    folded = np.argpartition(maxima, -k, axis=1)[:, -k:]
    columns = (folded[:, :, None] + n_folded * np.arange(STRIPES)).reshape(len(product), -1)
    entries = np.take_along_axis(product, columns, axis=1)
    return np.take_along_axis(columns, np.argpartition(entries, -k, axis=1)[:, -k:], axis=1)


def cosines_of_others(queries: np.ndarray, fitted: np.ndarray, k: int) -> np.ndarray:
    """Rising cosines of each query with the ``k`` nearest of more than ``k`` fitted vectors.

    A fitted vector that is equal to a query, itself for one, is none of them.
    """
    cosines = np.sort(nearest(queries, fitted, k + 1)[0], axis=1)
    return np.where(cosines[:, -1:] >= EQUAL, cosines[:, :-1], cosines[:, 1:])


def density(queries: np.ndarray, fitted: np.ndarray, k: int) -> np.ndarray:
    """Mean of `cosines_of_others`, of shape (n_queries,)."""
    means = np.empty(len(queries))
    for chunk in gen_batches(len(queries), 16 * QUERIES):
        others = cosines_of_others(queries[chunk], fitted, k)
        means[chunk] = others.mean(axis=1, dtype=np.float64)
    return means
