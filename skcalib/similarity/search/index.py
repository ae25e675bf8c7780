"""The documents of a search, and what encodes further ones and queries."""

from collections.abc import Callable
from copy import copy
from dataclasses import dataclass
from typing import Any, NamedTuple, Self

import numpy as np
from scipy.sparse import csr_matrix
from sklearn.base import clone

from skcalib.cosines import nearest_in_order
from skcalib.inputs.texts import distinct
from skcalib.similarity.search.bank import Bank, fit_queries
from skcalib.similarity.search.bank_test import BankTest
from skcalib.similarity.search.sides import TwoSides
from skcalib.similarity.search.words import (
    Words,
    of_documents,
    sample_of,
    weight_of_words,
)
from skcalib.similarity.space import Side

CANDIDATES = 100  # documents that an index given as `neighbors` finds
FIRST = 10  # documents that `nearest_allowed` compares first
NONE = -2.0  # below all scores


class DenseSparse(NamedTuple):
    """Two vectors of each text, whose inner products are added."""

    dense: np.ndarray  # (n_texts, d + 2), float32
    sparse: Any  # csr_matrix (n_texts, n_terms), float32; None if only vectors are compared

    def rows(self, rows: np.ndarray) -> Self:
        """Return the vectors of some texts."""
        return type(self)(self.dense[rows], None if self.sparse is None else self.sparse[rows])

    def vectors(self) -> Any:
        """Return both, or the dense ones if there are no others."""
        return self.dense if self.sparse is None else self


@dataclass(eq=False)
class SearchIndex:
    """Both sides of a search, its words, and the documents that it has.

    Documents and queries are unit vectors of the encoder here, and their texts, if these.
    """

    document_side: Side
    query_side: Side
    sides: TwoSides
    words: Words | None
    n_queries: int
    bank_test: BankTest | None
    neighbors: Any  # not fitted

    vectors: Any = None  # (n_documents, d + 2), float32
    terms: csr_matrix | None = None  # (n_terms, n_documents), float32
    fitted_neighbors: Any = None

    @classmethod
    def learned(
        cls, search: Any, X: Any, queries: Any, codes: np.ndarray | None = None
    ) -> tuple[Self, np.ndarray]:
        """Learn from documents by the parameters of a `SearchEncoder`, and keep them.

        With ``codes`` they are in groups, see `TwoSides.documents`. Return also their unit
        vectors.
        """
        if search.encoder is None and search.query_encoder is not None:
            raise ValueError(
                "SearchEncoder got a query_encoder but no encoder; expected both, or neither. "
                "Set the encoder of the documents, too, and pass texts."
            )
        document_side, unit, texts = Side.fitted(search, X)
        has_content = unit.any(axis=1)
        if has_content.sum() < 2:
            raise ValueError(
                f"Got n_samples={len(unit)} documents, {has_content.sum()} of them with "
                "content; a search ranks two or more. Pass all documents in one list."
            )
        query_side, bank = fit_queries(search, document_side, unit, texts, queries)
        sides, vectors = TwoSides.learned(
            unit,
            None if bank is None else bank.unit,
            power=search.power,
            hub_weight=search.hub_weight,
            codes=codes,
        )
        n, test = (0, None) if bank is None else (len(bank.unit), BankTest.of(bank.unit))
        index = cls(document_side, query_side, sides, None, n, test, search.neighbors)
        documents = DenseSparse(vectors, None)
        if texts is not None and search.lexical is not None:
            index.words, sparse = Words.fitted(search.lexical, texts)
            documents = DenseSparse(vectors, of_documents(sparse, has_content, codes))
            weight = index._weight_of_words(index.words, documents, unit, texts, bank)
            index.words.weight = weight
        return index._keep(documents), unit

    def with_documents(self, unit: np.ndarray, texts: list[str], codes: np.ndarray) -> Self:
        """Return an index of other documents, encoded by the same sides."""
        return copy(self)._keep(self.documents(unit, texts, codes))

    def _keep(self, documents: DenseSparse) -> Self:
        self.vectors, sparse = documents
        self.terms = None if sparse is None else csr_matrix(sparse.T)
        self.fitted_neighbors, n = None, len(self.vectors)
        if self.neighbors is not None and n > CANDIDATES + 1:  # some ask for one more
            neighbors = clone(self.neighbors).set_params(n_neighbors=CANDIDATES)
            self.fitted_neighbors = neighbors.fit(self.vectors)
        return self

    def _weight_of_words(
        self,
        words: Words,
        documents: DenseSparse,
        unit: np.ndarray,
        texts: list[str],
        bank: Bank | None,
    ) -> float:
        """Return the weight by queries, or by documents that ask for each other."""
        vectors, sparse = documents
        rows = np.unique(distinct(texts)[1], return_index=True)[1]
        rows = rows[np.any(unit, axis=1)[rows]]  # a copy would be found by its words
        vectors = vectors if len(rows) == len(texts) else vectors[rows]
        if bank is None:
            own = sample_of(len(rows))
            asked, of_asked = unit[rows[own]], sparse[rows[own]]
        else:
            own, drawn = None, sample_of(len(bank.texts))
            asked = bank.unit[drawn]
            of_asked = words.documents([bank.texts[row] for row in drawn])
        return weight_of_words(self.sides.queries(asked), vectors, of_asked, sparse, rows, own)

    def documents(
        self, unit: np.ndarray, texts: list[str] | None, codes: np.ndarray | None = None
    ) -> DenseSparse:
        """Encode documents, perhaps in groups."""
        dense, sparse = self.sides.documents(unit, codes), None
        if self.words is not None and texts is not None:
            sparse = of_documents(self.words.documents(texts), np.any(unit, axis=1), codes)
        return DenseSparse(dense, sparse)

    def queries(self, unit: np.ndarray, texts: list[str] | None) -> DenseSparse:
        """Encode queries."""
        dense, sparse = self.sides.queries(unit), None
        if self.words is not None and texts is not None:
            sparse = self.words.queries(texts)
        return DenseSparse(dense, sparse)

    def ask(self, texts: list[str]) -> DenseSparse:
        """Encode queries that are texts, as `as_texts` returns them."""
        space: Any = self.query_side.space
        return self.queries(space.unit(texts), texts)

    def nearest(self, asked: DenseSparse, k: int) -> tuple[np.ndarray, np.ndarray]:
        """Scores, from the largest, and rows of the best documents for encoded queries."""
        k = min(k, len(self.vectors))
        index = self.fitted_neighbors if k <= CANDIDATES else None
        words = None if asked.sparse is None else (asked.sparse, self.terms)
        return nearest_in_order(asked.dense, self.vectors, k, index, words)

    def nearest_allowed(
        self,
        asked: DenseSparse,
        allows: Callable[[np.ndarray, np.ndarray], np.ndarray],
        least: float = -np.inf,
        most: float = np.inf,
    ) -> tuple[np.ndarray, np.ndarray]:
        """Return each query's best score with a document that it allows, and the row of it.

        ``allows`` gets numbers of queries, (n, 1), and rows of documents, (n, k). The search
        widens until it finds one, or the others score less than ``least``. After ``most``
        documents, the score is that of the last one, which the others do not exceed.
        """
        best, found = np.full(len(asked.dense), NONE), np.zeros(len(asked.dense), np.intp)
        left, k = np.flatnonzero(asked.dense.any(axis=1)), FIRST
        while len(left):
            scores, rows = self.nearest(asked.rows(left), k)
            allowed = allows(left[:, None], rows) & (rows >= 0)
            has, place = allowed.any(axis=1), allowed.argmax(axis=1)[:, None]
            best[left[has]] = np.take_along_axis(scores, place, axis=1)[has, 0]
            found[left[has]] = np.take_along_axis(rows, place, axis=1)[has, 0]
            if k >= len(self.vectors):
                break
            last = np.where(rows[:, -1] < 0, np.inf, scores[:, -1])
            if k >= most:
                best[left[~has]] = last[~has]
                break
            left, k = left[~has & (last >= least)], 4 * k
        return best, found
