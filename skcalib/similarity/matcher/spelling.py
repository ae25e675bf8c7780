"""Spelling: n-grams of characters, which an encoder of meaning hardly reads."""

from collections.abc import Sequence
from contextlib import suppress
from typing import Self

import numpy as np
from scipy.sparse import csr_array
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.preprocessing import normalize
from sklearn.utils import gen_batches

from skcalib.cosines import rows_in_memory

# Within words, since names swap them.
N_GRAMS = {"analyzer": "char_wb", "ngram_range": (3, 5), "sublinear_tf": True}


class Spelling:
    """Vectors of n-grams of characters: TF-IDF, the idf squared, so that frequent ones fade.

    All n-grams count, also those of one list: pairs within it are compared with pairs of both.
    """

    def __init__(self) -> None:
        self._counter: TfidfVectorizer | None = None

    def fit(self, first: Sequence[str], second: Sequence[str]) -> Self:
        """Learn the n-grams of both lists and their weights."""
        counter = TfidfVectorizer(**N_GRAMS, dtype=np.float32)
        with suppress(ValueError):  # scikit-learn's, where no n-gram is left
            self._counter = counter.fit([*{*first}, *{*second}])
        return self

    def vectors(self, texts: Sequence[str]) -> csr_array:
        """Return sparse rows of unit length, or zero without a known n-gram, float32."""
        if self._counter is None:
            return csr_array((len(texts), 1), dtype=np.float32)
        weighted = self._counter.transform(texts).multiply(self._counter.idf_)
        return csr_array(normalize(weighted)).astype(np.float32)


def nearest_spelled(queries: csr_array, fitted: csr_array, k: int) -> np.ndarray:
    """Return the ``k`` fitted rows with the largest products with each query, unordered."""
    rows = np.empty((queries.shape[0], k), np.intp)
    columns = fitted.T.tocsr()
    for chunk in gen_batches(len(rows), rows_in_memory(4 * fitted.shape[0])):
        products = (queries[chunk] @ columns).toarray()
        rows[chunk] = np.argpartition(products, -k, axis=1)[:, -k:]
    return rows


def spelled_alike(one: csr_array, i: np.ndarray, other: csr_array, j: np.ndarray) -> np.ndarray:
    """Return the products of the rows ``i`` with the rows ``j`` of another list, float64."""
    return np.asarray((one[i] * other[j]).sum(axis=1), np.float64)
