"""The words of a search: sparse vectors of texts, and how much they count."""

from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from scipy.sparse import csr_matrix
from sklearn.base import clone
from sklearn.feature_extraction.text import CountVectorizer, TfidfTransformer, TfidfVectorizer
from sklearn.preprocessing import normalize

from skcalib.cosines import nearest_in_order
from skcalib.similarity.search.sides import in_groups

PIECES: dict[str, Any] = {"analyzer": "char_wb", "ngram_range": (2, 4), "dtype": np.float32}
ASKED = 500  # queries, or documents in place of them, at most, that show the weight
SAMPLED = 2000  # documents, at most, that show the spread of scores
OTHERS = slice(10, 60)  # places of documents that probably do not answer a query
MOST = 0.5  # weight of a standard deviation of the words, in those of the vectors


@dataclass(eq=False)
class Words:
    """Sparse vectors of unit length, by a vectorizer that was fitted on the documents.

    Those of queries are multiplied by ``weight``, so a sum of inner products is a score.
    """

    vectorizer: Any
    weight: float = 0.0

    @classmethod
    def fitted(cls, lexical: Any, texts: list[str]) -> tuple[Self, csr_matrix]:
        """Fit a vectorizer on documents, by default of pieces of words; return vectors."""
        try:
            if isinstance(lexical, str):
                vectorizer, vectors = _fit_pieces(texts)
            else:
                vectorizer = clone(lexical)
                vectors = vectorizer.fit_transform(texts)
        except ValueError as error:
            raise ValueError(
                f"lexical={lexical!r:.80} cannot be fitted on the documents: {error} Choose "
                'another vectorizer, "characters", or None.'
            ) from error
        return cls(vectorizer), _unit(vectors)

    def documents(self, texts: list[str]) -> csr_matrix:
        """Return the vectors of documents, (n, n_terms), float32; zero without known terms."""
        return _unit(self.vectorizer.transform(texts))

    def queries(self, texts: list[str]) -> csr_matrix:
        """Return the vectors of queries, multiplied by the weight."""
        return self.documents(texts) * np.float32(self.weight)


def _fit_pieces(texts: list[str]) -> tuple[TfidfVectorizer, csr_matrix]:
    """Fit TF-IDF of pieces of words, which every script and language has; return vectors.

    These are those of ``fit_transform``, but each distinct word is cut once, not wherever it
    comes, which takes a fifth of the time.
    """
    words = CountVectorizer(tokenizer=str.split, token_pattern=None, dtype=np.float32)
    of_texts = words.fit_transform(texts)
    pieces = CountVectorizer(lowercase=False, **PIECES)
    counts = of_texts @ pieces.fit_transform(words.get_feature_names_out())
    counts.sort_indices()
    tfidf = TfidfTransformer(sublinear_tf=True).fit(counts)
    vectorizer = TfidfVectorizer(sublinear_tf=True, **PIECES)
    vectorizer.vocabulary_, vectorizer.idf_ = pieces.vocabulary_, tfidf.idf_
    return vectorizer, tfidf.transform(counts, copy=False)


def _unit(vectors: Any) -> csr_matrix:
    """Scale sparse vectors to unit length, in float32; zero rows stay zero."""
    return normalize(csr_matrix(vectors, dtype=np.float32), copy=False)


def of_documents(
    words: csr_matrix, has_content: Any, codes: np.ndarray | None = None
) -> csr_matrix:
    """Return the vectors of documents, perhaps in groups, zero for those without content."""
    words = in_groups(words, codes)
    if has_content.all():
        return words
    words = csr_matrix(words.multiply(has_content[:, None]))
    words.eliminate_zeros()
    return words


def sample_of(n: int) -> np.ndarray:
    """Return the rows of `ASKED` of n texts at most, in random order."""
    return np.random.default_rng(0).permutation(n)[:ASKED]


def weight_of_words(
    asked: np.ndarray,
    vectors: np.ndarray,
    asked_words: csr_matrix,
    words: csr_matrix,
    rows: np.ndarray,
    own: np.ndarray | None = None,
) -> float:
    """Return the weight of inner products of words relative to those of vectors.

    Nobody knows which documents answer the queries, but the nearest one does so more often than
    those at the places 11 to 60. So words are worth as much as they distinguish it: with the
    means u of their inner products with the first, v with the others, their standard deviation
    s, and ``d = (u - v) / s``, a standard deviation of the words counts ``MOST d² / (1 + d²)``
    of one of the vectors. ``vectors`` are of these ``rows`` of ``words``, and ``own`` has the
    place among these of the document that a query is.
    """
    depth = OTHERS.stop + (own is not None)
    near = nearest_in_order(asked, vectors, min(depth, len(vectors)))[1]
    if own is not None:  # it moves to the end, or what it has pushed off the end goes
        order = np.argsort(near == own[:, None], axis=1, kind="stable")
        near = np.take_along_axis(near, order, axis=1)[:, :-1]
    n, k = near.shape
    if k < 2:
        return 0.0
    pairs = asked_words[np.repeat(np.arange(n), k)].multiply(words[rows[near.ravel()]])
    products = np.asarray(pairs.sum(axis=1), np.float64).reshape(n, k)
    first, others = products[:, 0], products[:, min(OTHERS.start, max(1, k // 6)) :]
    deviation = np.sqrt((first.var() + others.var()) / 2)
    if deviation <= 0:
        return 0.0
    squares = max(float(first.mean() - others.mean()) / deviation, 0.0) ** 2
    sampled = np.random.default_rng(0).permutation(len(vectors))[:SAMPLED]
    spread = (asked @ vectors[sampled].T).std(axis=1).mean()
    return float(MOST * squares / (1 + squares) * spread / deviation)
