"""The documents of a search, and what encodes further ones and queries."""

from copy import copy
from dataclasses import dataclass
from typing import Any, NamedTuple, Self

import numpy as np
from scipy.sparse import csr_matrix
from sklearn.base import clone

from skcalib.cosines import nearest_in_order, sparse_products
from skcalib.inputs.texts import as_texts, distinct
from skcalib.similarity.inputs import Side
from skcalib.similarity.search.bank import Bank, fit_queries
from skcalib.similarity.search.bank_test import BankTest
from skcalib.similarity.search.sides import TwoSides
from skcalib.similarity.search.words import (
    Words,
    by_term,
    sample_of,
    weight_of_words,
    with_content,
)

CANDIDATES = 100  # documents that an index given as `neighbors` finds


class DenseSparse(NamedTuple):
    """Two vectors of each text, whose inner products are added."""

    dense: np.ndarray  # (n_texts, d + 2), float32
    sparse: csr_matrix  # (n_texts, n_terms), float32

    def rows(self, rows: Any) -> Self:
        """Return the vectors of some texts."""
        return type(self)(self.dense[rows], self.sparse[rows])


@dataclass(eq=False)
class SearchIndex:
    """Both sides of a search, its words, and the documents that it has.

    Documents and queries are unit vectors of the encoder here, from `Side.unit`.
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
        document_side, unit = Side.fitted(search, X)
        has_content = np.any(unit, axis=1)
        if has_content.sum() < 2:
            raise ValueError(
                f"Got n_samples={len(unit)} documents, {has_content.sum()} of them with "
                "content; a search ranks two or more. Pass all documents in one list."
            )
        texts = None if search.encoder is None else as_texts(X)
        content = unit if has_content.all() else unit[has_content]
        query_side, bank = fit_queries(search, document_side, content, texts, queries)
        sides = TwoSides.learned(
            content,
            None if bank is None else bank.unit,
            power=search.power,
            hub_weight=search.hub_weight,
            codes=None if codes is None else codes[has_content],
        )
        words, terms = None, None
        if texts is not None and search.lexical is not None:
            words, vectors = Words.fitted(search.lexical, texts)
            terms = by_term(vectors, has_content, codes)
            del vectors  # as large as the terms
        n, test = (0, None) if bank is None else (len(bank.unit), BankTest.of(bank.unit))
        index = cls(document_side, query_side, sides, words, n, test, search.neighbors)
        index._keep(unit, terms, codes)
        if words is not None and texts is not None:
            words.weight = index._weight_of_words(words, unit, texts, bank)
        return index, unit

    def with_documents(
        self, unit: np.ndarray, texts: list[str], codes: np.ndarray | None = None
    ) -> Self:
        """Return an index of other documents, encoded by the same sides."""
        index, terms = copy(self), None
        if self.words is not None:
            terms = by_term(self.words.documents(texts), np.any(unit, axis=1), codes)
        index._keep(unit, terms, codes)
        return index

    def _keep(
        self, unit: np.ndarray, terms: csr_matrix | None, codes: np.ndarray | None
    ) -> None:
        self.vectors, self.terms = self.sides.documents(unit, codes), terms
        self.fitted_neighbors = None
        if self.neighbors is not None and len(unit) > CANDIDATES + 1:  # some ask for one more
            neighbors = clone(self.neighbors).set_params(n_neighbors=CANDIDATES)
            self.fitted_neighbors = neighbors.fit(self.vectors)

    def _weight_of_words(
        self, words: Words, unit: np.ndarray, texts: list[str], bank: Bank | None
    ) -> float:
        """Return the weight by queries, or by documents that ask for each other."""
        rows = np.unique(distinct(texts)[1], return_index=True)[1]
        rows = rows[np.any(unit, axis=1)[rows]]  # a copy would be found by its words
        vectors, stored = self.vectors, csr_matrix.transpose(self.terms)
        if len(rows) < len(texts):
            vectors, stored = vectors[rows], stored[rows]
        if bank is None:
            own = sample_of(len(rows))
            asked, of_asked = unit[rows[own]], csr_matrix(stored[own])
        else:
            own, drawn = None, sample_of(len(bank.texts))
            asked = bank.unit[drawn]
            of_asked = words.documents([bank.texts[row] for row in drawn])
        return weight_of_words(self.sides.queries(asked), vectors, of_asked, stored, own)

    def documents(self, unit: np.ndarray, X: Any) -> Any:
        """Encode documents that come later: dense, or a `DenseSparse` of texts."""
        dense = self.sides.documents(unit)
        if self.words is None:
            return dense
        words = self.words.documents(as_texts(X))
        return DenseSparse(dense, with_content(words, np.any(unit, axis=1)))

    def queries(self, unit: np.ndarray, X: Any) -> Any:
        """Encode queries: dense, or a `DenseSparse` of texts."""
        dense, words = self.sides.queries(unit), self.words
        return dense if words is None else DenseSparse(dense, words.queries(as_texts(X)))

    def nearest(self, asked: Any, k: int) -> tuple[np.ndarray, np.ndarray]:
        """Scores, from the largest, and rows of the best documents for encoded queries."""
        k, added = min(k, len(self.vectors)), None
        index = self.fitted_neighbors if k <= CANDIDATES else None
        if (terms := self.terms) is not None:
            asked, sparse = asked

            def added(chunk: slice) -> np.ndarray:
                return sparse_products(sparse[chunk], terms)

        return nearest_in_order(asked, self.vectors, k, index, added)
