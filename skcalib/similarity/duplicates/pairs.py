"""Pairs of similar vectors, in bounded memory, and groups of them without chains."""

import numpy as np

from skcalib.cosines import above
from skcalib.inputs.vectors import digests, equal_rows

# Pairs that are kept; near copies of one text are in as many as the square of their number.
MOST_PAIRS = 20_000_000


def distinct_rows(
    vectors: np.ndarray, keys: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return the first row of each distinct vector and key, and each row's place among these.

    The third is an order of the places, that of digests: as if drawn at random, but independent
    of the order of the rows.
    """
    first, inverse = np.unique(equal_rows(vectors, keys), return_inverse=True)
    return first, inverse, np.argsort(digests(vectors[first], keys[first]))


def similar_pairs(
    vectors: np.ndarray, keys: np.ndarray, threshold: float
) -> tuple[np.ndarray, np.ndarray]:
    """Pairs of vectors with equal keys that reach a threshold, (2, n_pairs), and their cosines.

    Vectors are float32 and of unit length.
    """
    blocks, n = [(np.empty(0, int), np.empty(0, int), np.empty(0))], 0
    for block in above(vectors, threshold, keys):
        blocks.append(block)
        n += len(block[0])
        if n > MOST_PAIRS:
            raise ValueError(
                f"More than {MOST_PAIRS:,} pairs reach the threshold {threshold:.4f}, as if "
                "thousands of texts were near copies of one. Remove what they share, such as a "
                "footer, or set a smaller false_pairs."
            )
    i, j, cosines = map(np.concatenate, zip(*blocks, strict=True))
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
