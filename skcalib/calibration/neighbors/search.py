"""Exact search for the nearest of many vectors by cosine, in float32."""

from collections.abc import Iterable
from typing import Any

import numpy as np
from sklearn.utils import gen_batches

from skcalib.utils.threads import map_row_ranges, rows_within
from skcalib.utils.vectors import unit_rows

# Two vectors count as equal from this cosine on, in float64.
EQUAL = 1 - 1e-6
# Queries whose cosines with all fitted vectors are in memory; fewer if these need more bytes.
QUERIES, PRODUCT_BYTES = 256, 28 * 2**20
# Fitted vectors that are scaled to unit length at a time.
SCALED_BYTES = 64 * 2**20
# Entries of a column of stripes, see `_largest`.
STRIPES = 16


def nearest(queries: np.ndarray, fitted: np.ndarray, k: int) -> tuple[np.ndarray, np.ndarray]:
    """Return cosines and rows of the ``k`` fitted vectors nearest to each query, unordered.

    Both are float32 and of unit length. The results have the shape (n_queries, k).
    """
    cosines = np.empty((len(queries), k), np.float32)
    rows = np.empty((len(queries), k), np.intp)

    def search(chunks: Iterable[slice]) -> None:
        for chunk in chunks:
            product = queries[chunk] @ fitted.T
            rows[chunk] = _largest(product, k)
            cosines[chunk] = np.take_along_axis(product, rows[chunk], axis=1)

    step = min(QUERIES, rows_within(PRODUCT_BYTES, len(fitted), itemsize=4))
    limits = {"working_bytes": 4 * step * len(fitted), "rows_per_thread": QUERIES}
    map_row_ranges(search, len(queries), step, **limits)
    return cosines, rows


def rows_near(queries: np.ndarray, fitted: np.ndarray, k: int, index: Any = None) -> np.ndarray:
    """Return rows of fitted vectors near each query, of shape (n_queries, m); -1 for none.

    ``index`` is a fitted ``KNeighborsTransformer`` or similar; None compares with every vector.
    """
    if index is None:
        return nearest(queries, fitted, k)[1]
    graph = index.transform(queries).tocsr()
    found = np.diff(graph.indptr)[:, None]
    rows = np.full((len(queries), found.max(initial=1)), -1)
    rows[np.arange(rows.shape[1]) < found] = graph.indices
    return rows


def _largest(product: np.ndarray, k: int) -> np.ndarray:
    """Return the columns of the ``k`` largest entries of each row, unordered.

    A row is cut into `STRIPES` stripes, one above the other. Its ``k`` largest entries are in
    the ``k`` columns of the stripes with the greatest maxima, or after the last whole stripe.
    Maxima cost a tenth of a partition.
    """
    n_rows, n = product.shape
    width = n // STRIPES
    if width <= 2 * k:
        return np.argpartition(product, -k, axis=1)[:, -k:]
    whole = width * STRIPES
    maxima = product[:, :whole].reshape(n_rows, STRIPES, width).max(axis=1)
    best = np.argpartition(maxima, -k, axis=1)[:, -k:, None]
    columns = (best + width * np.arange(STRIPES)).reshape(n_rows, -1)
    columns = np.hstack([columns, np.tile(np.arange(whole, n), (n_rows, 1))])
    entries = np.take_along_axis(product, columns, axis=1)
    return np.take_along_axis(columns, np.argpartition(entries, -k, axis=1)[:, -k:], axis=1)


def neighbor_similarity(queries: np.ndarray, fitted: np.ndarray, k: int) -> np.ndarray:
    """Mean cosine of each query with the ``k`` nearest of more than ``k`` fitted vectors.

    One fitted vector that is equal to the query, such as its own, is left out.
    """
    means = np.empty(len(queries))
    for chunk in gen_batches(len(queries), 16 * QUERIES):
        cosines, rows = nearest(queries[chunk], fitted, k + 1)
        first = np.take_along_axis(rows, cosines.argmax(axis=1)[:, None], axis=1)[:, 0]
        # In float64: the rounding of the float32 product grows with the number of columns.
        exact = np.einsum("ij,ij->i", queries[chunk], fitted[first], dtype=np.float64)
        one_too_many = np.where(exact >= EQUAL, cosines.max(axis=1), cosines.min(axis=1))
        means[chunk] = (cosines.sum(axis=1, dtype=np.float64) - one_too_many) / k
    return means


def best_of_others(
    queries: np.ndarray, own: np.ndarray, fitted: np.ndarray, labels: np.ndarray
) -> np.ndarray:
    """Return the largest cosine of each query with fitted vectors of other labels than its own.

    The queries are float32 and of unit length; the fitted vectors have any length. -1 where
    there is no vector of another label.
    """
    best = np.full(len(queries), -1, np.float32)
    for block in gen_batches(len(fitted), rows_within(SCALED_BYTES, fitted.shape[1])):
        unit = unit_rows(fitted[block])[0].astype(np.float32)
        step = rows_within(PRODUCT_BYTES, len(unit), itemsize=4)
        for chunk in gen_batches(len(queries), step):
            product = queries[chunk] @ unit.T
            product[own[chunk, None] == labels[block]] = -1
            np.maximum(best[chunk], product.max(axis=1), out=best[chunk])
    return best
