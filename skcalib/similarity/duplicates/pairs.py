"""Pairs of similar vectors, in bounded memory, and groups of them without chains."""

from collections.abc import Iterator
from hashlib import blake2b

import numpy as np
from sklearn.utils import gen_batches

from skcalib.utils.threads import rows_within

# Rows and columns whose cosines are in memory at a time.
ROWS, COLUMNS = 512, 4096
# How far a product in float32 may be below the cosine in float64.
SLACK = 1e-5
# Pairs that are kept; near copies of one text are in as many as the square of their number.
MOST_PAIRS = 20_000_000
# Vectors of pairs that are side by side at a time.
PAIRS_BYTES = 64 * 2**20


def distinct_rows(
    vectors: np.ndarray, keys: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return the first row of each distinct vector and key, and each row's place among these.

    The third is an order of the places, that of digests: as if drawn at random, but independent
    of the order of the rows.
    """
    digests = [
        blake2b(row, digest_size=16, salt=int(key).to_bytes(8, "little", signed=True)).digest()
        for row, key in zip(np.ascontiguousarray(vectors), keys, strict=True)
    ]
    _, first, inverse = np.unique(
        np.array(digests, "V16"), return_index=True, return_inverse=True
    )
    place = np.empty(len(first), np.intp)
    place[np.argsort(first)] = np.arange(len(first))
    return np.sort(first), place[inverse], place


def with_equal_keys(
    keys: np.ndarray, others: np.ndarray
) -> Iterator[tuple[int, np.ndarray, np.ndarray]]:
    """Yield each key that is in both arrays, and its places in either, ascending."""
    of_keys, of_others = (np.argsort(a, kind="stable") for a in (keys, others))
    unique, first = np.unique(keys[of_keys], return_index=True)
    starts, stops = (np.searchsorted(others[of_others], unique, s) for s in ("left", "right"))
    parts = zip(unique.tolist(), np.split(of_keys, first[1:]), starts, stops, strict=True)
    for key, places, start, stop in parts:
        if start < stop:
            yield key, places, of_others[start:stop]


def similar(
    rows: np.ndarray, columns: np.ndarray, threshold: float, keys: tuple[np.ndarray, ...]
) -> Iterator[tuple[np.ndarray, np.ndarray, np.ndarray]]:
    """Yield rows, columns and cosines of the pairs that reach a threshold, block by block.

    Vectors are float32 and of unit length; only pairs with equal ``keys`` count. If ``columns``
    is ``rows``, each pair comes once. Cosines are computed in float64, so they do not depend on
    the blocks.
    """
    for block in gen_batches(len(rows), ROWS):
        for other in gen_batches(len(columns), COLUMNS):
            if columns is rows and other.stop <= block.start:
                continue
            i, j = np.nonzero(rows[block] @ columns[other].T >= threshold - SLACK)
            i, j = i + block.start, j + other.start
            kept = keys[0][i] == keys[1][j]
            if columns is rows:
                kept &= i < j
            i, j = i[kept], j[kept]
            if not len(i):
                continue
            cosines = np.empty(len(i))
            for part in gen_batches(len(i), rows_within(PAIRS_BYTES, 2 * rows.shape[1])):
                cosines[part] = np.einsum(
                    "ij,ij->i", rows[i[part]], columns[j[part]], dtype=np.float64
                )
            kept = cosines >= threshold
            yield i[kept], j[kept], cosines[kept]


def similar_pairs(
    vectors: np.ndarray, keys: np.ndarray, threshold: float
) -> tuple[np.ndarray, np.ndarray]:
    """Pairs that reach a threshold, of shape (2, n_pairs), and their cosines."""
    found, n = [(np.empty(0, int), np.empty(0, int), np.empty(0))], 0
    for block in similar(vectors, vectors, threshold, (keys, keys)):
        found.append(block)
        n += len(block[0])
        if n > MOST_PAIRS:
            raise ValueError(
                f"More than {MOST_PAIRS:,} pairs reach the threshold {threshold:.4f}, as if "
                "thousands of texts were near copies of one. Remove what they share, such as a "
                "footer, or set a smaller false_pairs."
            )
    i, j, cosines = map(np.concatenate, zip(*found, strict=True))
    return np.array([i, j]), cosines


def representatives(pairs: np.ndarray, cosines: np.ndarray, copies: np.ndarray) -> np.ndarray:
    """Choose vectors so that no two are a pair, and all others are in a pair with one of them.

    Greedy: of the vectors in no pair with a chosen one, the next is in pairs with the most
    texts. Ties go to the larger sum of cosines, then to the first. A vector has several
    ``copies``. Returns a mask.
    """
    (left, right), n = np.hstack([pairs, pairs[::-1]]), len(copies)
    partners = copies - 1 + np.bincount(left, copies[right], n)
    total = np.bincount(left, np.tile(cosines, 2) * copies[right], n)
    right = right[np.argsort(left, kind="stable")]
    ends = np.cumsum(np.bincount(left, minlength=n))
    starts = np.concatenate([[0], ends])
    chosen, left_out = np.zeros(n, bool), np.zeros(n, bool)
    for i in np.lexsort((-total, -partners)):
        if not left_out[i]:
            chosen[i] = True
            left_out[right[starts[i] : ends[i]]] = True
    return chosen


def nearest_representatives(
    pairs: np.ndarray, cosines: np.ndarray, chosen: np.ndarray
) -> np.ndarray:
    """Return the chosen vector that is most similar to each; a chosen one is its own."""
    of, (left, right) = np.arange(len(chosen)), np.hstack([pairs, pairs[::-1]])
    usable = chosen[right] & ~chosen[left]
    left, right, cosines = left[usable], right[usable], np.tile(cosines, 2)[usable]
    best_last = np.lexsort((-right, cosines))
    of[left[best_last]] = right[best_last]  # the last assignment stays
    return of
