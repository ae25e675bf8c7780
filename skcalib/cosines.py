"""Cosines of many vectors of unit length with many others, in blocks that fit in memory.

The last bits of products in float32 depend on the other vectors of a block. So what is compared
with a threshold is computed again by `of_pairs`, in float64. All estimators accept what reaches
a threshold (``>=``).
"""

from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
from sklearn import get_config
from sklearn.utils import gen_batches

from skcalib.inputs.vectors import unit_rows
from skcalib.process.threads import map_row_ranges

# Two vectors count as equal from this cosine on, in float64.
EQUAL = 1 - 1e-6
# How far a product in float32 may be below the cosine in float64.
SLACK = 1e-5
# A block of products: more rows or more bytes are no faster, fewer than 64 rows are slower.
ROWS, LEAST_ROWS, BLOCK_BYTES = 1024, 64, 28 * 2**20
# Rows of a thread of `nearest`.
QUERIES = 256
# Entries of a column of stripes, see `largest`.
STRIPES = 16


def rows_in_memory(row_bytes: int) -> int:
    """Rows to work on at a time, within the ``working_memory`` of scikit-learn's settings."""
    allowed = int(get_config()["working_memory"] * 2**20) // row_bytes
    return max(1, min(allowed, max(LEAST_ROWS, BLOCK_BYTES // row_bytes)))


def blocks(
    rows: np.ndarray, columns: np.ndarray | None = None
) -> Iterator[tuple[slice, slice, np.ndarray]]:
    """Yield slices of rows and of columns, and their cosines, which the caller may overwrite.

    Without ``columns``, each pair of rows comes once, and all other entries are -inf.
    """
    others = rows if columns is None else columns
    step = min(ROWS, rows_in_memory(rows.itemsize * max(len(others), 1)))
    for block in gen_batches(len(rows), step):
        part = slice(block.start if columns is None else 0, len(others))
        cosines = rows[block] @ others[part].T
        if columns is None:
            cosines[np.tri(*cosines.shape, dtype=np.bool_)] = -np.inf
        yield block, part, cosines


def of_pairs(rows: np.ndarray, i: np.ndarray, j: np.ndarray) -> np.ndarray:
    """Return the cosines of the rows ``i`` with the rows ``j``, pair by pair, in float64."""
    parts = gen_batches(len(i) or 1, rows_in_memory(2 * rows.shape[1] * rows.itemsize))
    pairs = ((rows[i[part]], rows[j[part]]) for part in parts)
    return np.concatenate([np.einsum("ij,ij->i", *p, dtype=np.float64) for p in pairs])


def above(
    rows: np.ndarray, threshold: float
) -> Iterator[tuple[np.ndarray, np.ndarray, np.ndarray]]:
    """Yield pairs of rows that reach a threshold, each once, and their cosines, by blocks.

    Rows are float32.
    """
    for block, part, product in blocks(rows):
        i, j = np.nonzero(product >= threshold - SLACK)
        i, j = i + block.start, j + part.start
        cosines = of_pairs(rows, i, j)
        reach = cosines >= threshold
        if reach.any():
            yield i[reach], j[reach], cosines[reach]


def nearest(queries: np.ndarray, fitted: np.ndarray, k: int) -> tuple[np.ndarray, np.ndarray]:
    """Return cosines and rows of the ``k`` fitted vectors nearest to each query, unordered.

    Both are float32. The results have the shape (n_queries, k).
    """
    cosines = np.empty((len(queries), k), np.float32)
    rows = np.empty((len(queries), k), np.intp)

    def search(chunks: Iterable[slice]) -> None:
        for chunk in chunks:
            product = queries[chunk] @ fitted.T
            rows[chunk] = largest(product, k)
            cosines[chunk] = np.take_along_axis(product, rows[chunk], axis=1)

    row_bytes = 4 * len(fitted)
    step = min(QUERIES, rows_in_memory(row_bytes))
    limits = {"working_bytes": step * row_bytes, "rows_per_thread": QUERIES}
    map_row_ranges(search, len(queries), step, **limits)
    return cosines, rows


def rows_near(queries: np.ndarray, fitted: np.ndarray, k: int, index: Any = None) -> np.ndarray:
    """Return rows of fitted vectors near each query, of shape (n_queries, m); -1 for none.

    ``index`` is a fitted ``KNeighborsTransformer`` or similar; None compares with every vector.
    """
    if index is None:
        return nearest(queries, fitted, k)[1]
    graph = index.transform(queries).tocsr()
    n_near = np.diff(graph.indptr)[:, None]
    rows = np.full((len(queries), n_near.max(initial=1)), -1)
    rows[np.arange(rows.shape[1]) < n_near] = graph.indices
    return rows


def best_of_others(queries: np.ndarray, left_out: np.ndarray, fitted: np.ndarray) -> np.ndarray:
    """Return the largest cosine of each query with the fitted vectors, which have any length.

    ``left_out`` has the row of each query that does not count, or -1. Queries are float32.
    """
    best = np.full(len(queries), -1, np.float32)
    for scaled in gen_batches(len(fitted), rows_in_memory(8 * fitted.shape[1])):
        unit = unit_rows(fitted[scaled])[0].astype(np.float32)
        for block, part, product in blocks(queries, unit):
            place = np.arange(part.start, part.stop) + scaled.start
            product[left_out[block, None] == place] = -1
            np.maximum(best[block], product.max(axis=1), out=best[block])
    return best


def nearness(texts: np.ndarray, means: np.ndarray) -> np.ndarray:
    """``x·μ - |μ|²/2``, which is greatest for the mean nearest to x.

    Unlike a cosine, it gives a short mean, whose direction is random, little influence.
    """
    return texts @ means.T - (means**2).sum(axis=1) / 2


def largest(product: np.ndarray, k: int) -> np.ndarray:
    """Return the columns of the ``k`` largest entries of each row, unordered.

    A row is cut into `STRIPES` stripes, one above the other: its ``k`` largest entries are in
    the ``k`` columns with the greatest maxima, which cost a tenth of a partition.
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
