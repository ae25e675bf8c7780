"""SearchEncoder: score = unit(q - 0.75 μ) . unit(d - 0.75 m) + 0.4 t(q) . t(d).

q and d are unit vectors of query and document, μ and m the means of each side, t is TF-IDF.
"""

from numbers import Integral, Real
from typing import Any, NamedTuple, Self

import numpy as np
from scipy.sparse import csr_array, diags_array, hstack
from sklearn.base import BaseEstimator, clone
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import Normalizer, StandardScaler
from sklearn.utils import check_scalar, gen_batches
from sklearn.utils.validation import check_is_fitted

from skcalib.base import VersionedState, warn
from skcalib.callbacks import fit_task
from skcalib.compat import Interval, as_sparse_interface
from skcalib.cosines import largest, rows_in_memory
from skcalib.encoders.pipelines import (
    after_query_encoder,
    as_encoder,
    first_of_queries,
    of_side,
)
from skcalib.inputs.containers import refuse_rows
from skcalib.inputs.texts import TextInput, as_texts, distinct
from skcalib.inputs.vectors import SCALED, unit_rows
from skcalib.similarity.n_grams import fit_n_grams, sparse_products
from skcalib.similarity.space import TextSpace

# Share of each mean that is subtracted. The largest group of a skewed collection lies in the
# direction of the mean, and would lose it with all of it.
SHARE = 0.75
# The mean of few texts lies among their own topics. So there are this many more in it: zeros
# beside the documents, and the mean of documents beside the queries.
PRIOR = 10
# Documents that fit an encoder of queries, if there are no queries.
SAMPLE = 500


class DenseSparse(NamedTuple):
    """Two vectors of each text. A score is the sum of their inner products."""

    dense: np.ndarray  # (n_texts, d), float32
    sparse: Any  # (n_texts, n_terms), float32; None if vectors are compared alone


class SearchEncoder(TextInput, VersionedState, BaseEstimator):
    """Search documents with queries by vectors and words.

    The score of a query and a document is::

        unit(q - 0.75 μ) . unit(d - 0.75 m) + lexical_weight t(q) . t(d)

    with unit vectors q and d, the means μ of queries and m of documents, and unit vectors t(.)
    of TF-IDF of pieces of words (2 to 4 characters within words, sublinear). Queries and
    documents are different kinds of text, so each side has its own mean. Words find names and
    codes that vectors do not see.

    Parameters
    ----------
    encoder : transformer of texts, any encoder of texts, or None, default=None
        Such as `BertEncoder`, or a model's folder, see `TextEncoder`. It is cloned and fitted
        on the documents; a ``FrozenEstimator`` keeps its fit. If its model declares prompts, or
        methods, for queries and for documents, each side uses its own. With None, documents and
        queries are vectors, which have no words.
    query_encoder : transformer of texts, any encoder of texts, or None, default=None
        Encoder of the queries, such as ``BertEncoder(model, prompt="query: ")``. The later
        steps of an `encoder` that is a pipeline follow it. None uses `encoder`.
    lexical_weight : float, default=0.4
        Weight of the words. 0 compares vectors alone.

    Attributes
    ----------
    vectors_ : ndarray of shape (n_documents, d), float32
        Dense vectors of the documents, for d dimensions of the encoder.
    words_ : csc_matrix of shape (n_documents, n_terms), float32, or None
        Their sparse vectors; None if only vectors are compared.
    vectorizer_ : TfidfVectorizer or None
        Fitted on the documents of `fit`; pieces that only later documents have do not count.
    document_shift_, query_shift_ : ndarray of shape (d,), float64
        0.75 m and 0.75 μ.
    n_queries_ : int
        Number of distinct queries with content in the bank.
    n_features_in_, feature_names_in_
        Of vectors: number of features seen during fit, and their names when all are strings.

    See Also
    --------
    NearestAnswer : One of the stored answers, or none.
    skcalib.evaluation.evaluate_retrieval : Compare encoders on judged queries.

    Notes
    -----
    Both terms are inner products, so any index of dense and sparse vectors adds them, and
    `vectors_` alone is what an index of vectors takes.

    With N documents d and n distinct queries b in the bank, ``m = sum(d) / (N + 10)`` and ``μ =
    (sum(b) + 10 m) / (n + 10)``. So few texts change little, a hundred queries show their mean,
    and without a bank μ is m.

    A row number never changes: `add` appends documents, and `remove` leaves a gap. Only a new
    `fit` numbers documents anew, and learns means and pieces of words again.

    A text without content for the encoder (blank, only unknown tokens) and a zero vector are
    never found as documents, and find nothing as queries.

    Examples
    --------
    >>> from skcalib import SearchEncoder
    >>> from skcalib.datasets import load_docstrings
    >>> documents = load_docstrings().data
    >>> bank = [" ".join(text.split()[-5:]) for text in documents[::15]]  # of your users
    >>> search = SearchEncoder("minilm").fit(documents, queries=bank)
    >>> scores, rows = search.kneighbors(["area under a curve"], n_neighbors=1)
    >>> print(documents[rows[0, 0]])
    Evaluate the integral of the spline over area [xa,xb] x [ya,yb].
    >>> search.add(["The area between a curve and its asymptote."]).tolist() == [len(documents)]
    True
    """

    _parameter_constraints = {
        "encoder": "no_validation",  # `as_encoder` checks it
        "query_encoder": "no_validation",
        "lexical_weight": [Interval(Real, 0, None, closed="left")],
    }
    _state_version = 13

    def __init__(
        self,
        encoder: Any = None,
        *,
        query_encoder: Any = None,
        lexical_weight: float = 0.4,
    ):
        self.encoder = encoder
        self.query_encoder = query_encoder
        self.lexical_weight = lexical_weight

    def fit(self, X: Any, y: Any = None, *, queries: Any = None) -> Self:
        """Learn both means and the pieces of words, and keep the documents.

        Parameters
        ----------
        X : texts of shape (n_documents,), or vectors of shape (n_documents, n_features)
            Texts with an `encoder`, vectors without; two or more with content.
        y : None
            Ignored. Texts and vectors are refused.
        queries : texts of shape (n_queries,), or vectors, default=None
            The bank: real queries like the future ones, a few hundred, without judgments. A
            warning says if most of them are documents.

        Returns
        -------
        self : SearchEncoder
        """
        self._fit(X, y, queries=queries)
        return self

    @fit_task(prefer_skip_nested_validation=False, n_subtasks=2)
    def _fit(self, X: Any, y: Any = None, *, queries: Any = None) -> np.ndarray:
        """Fit, and return the unit vectors of the documents."""
        advice = "Pass a sample of queries by name: fit(documents, queries=past_queries)."
        refuse_rows(self, y, advice)
        if self.encoder is None and self.query_encoder is not None:
            raise ValueError(
                "SearchEncoder got a query_encoder but no encoder; expected both, or neither. "
                "Set the encoder of the documents, too, and pass texts."
            )
        encoder = self.encoder
        if encoder is not None:
            encoder = of_side(clone(as_encoder(encoder)), "document")
        self._documents = TextSpace(encoder)
        unit, texts = self._documents.unit_of(self, X, fit=True)
        has_content = np.any(unit, axis=1)
        if has_content.sum() < 2:
            raise ValueError(
                f"Got n_samples={len(unit)} documents, {has_content.sum()} of them with "
                "content; a search ranks two or more. Pass all documents in one list."
            )
        bank = self._fit_queries(texts, queries)
        n = self.n_queries_ = len(bank)
        of_documents = unit.sum(axis=0, dtype=np.float64) / (has_content.sum() + PRIOR)
        of_queries = (bank.sum(axis=0, dtype=np.float64) + PRIOR * of_documents) / (n + PRIOR)
        self.document_shift_, self.query_shift_ = SHARE * of_documents, SHARE * of_queries
        self.vectorizer_, self._by_term = None, None
        if texts is not None and self.lexical_weight > 0:
            self.vectorizer_, words = fit_n_grams(texts)
            self._by_term = csr_array(_only(has_content, words).T)
        self.vectors_ = shifted(unit, self.document_shift_)
        self._is_found: np.ndarray = has_content
        return unit

    def add(self, X: Any) -> np.ndarray:
        """Add documents. Each call copies the index, so add many together.

        Parameters
        ----------
        X : texts of shape (n_added,), or vectors of shape (n_added, n_features)

        Returns
        -------
        rows : ndarray of shape (n_added,), int
            Their row numbers, which follow those of the other documents.
        """
        check_is_fitted(self)
        unit, texts = self._documents.unit_of(self, X, warns=True)
        return self._append(*self._as_documents(unit, texts))

    def _append(self, dense: np.ndarray, sparse: Any) -> np.ndarray:
        """Append encoded documents, and return their rows."""
        first = len(self.vectors_)
        self.vectors_ = np.vstack([self.vectors_, dense])
        if sparse is not None:
            self._by_term = hstack([self._by_term, csr_array(sparse.T)], format="csr")
        self._is_found = np.concatenate([self._is_found, dense.any(axis=1)])
        return np.arange(first, len(self.vectors_))

    def remove(self, rows: Any) -> Self:
        """Remove documents. Each call copies the index, so remove many together.

        Parameters
        ----------
        rows : array-like of shape (n_removed,), int
            Row numbers. These documents are never found again, and their vectors become zero.

        Returns
        -------
        self : SearchEncoder
        """
        check_is_fitted(self)
        rows, n = np.asarray(rows), len(self.vectors_)
        if rows.size and not (rows.dtype.kind in "iu" and 0 <= rows.min() <= rows.max() < n):
            raise ValueError(
                f"rows has {rows.tolist()!r:.60}; expected row numbers from 0 to {n - 1}, as "
                "`add` and `kneighbors` return them."
            )
        is_found = self._is_found.copy()
        is_found[rows.astype(int)] = False
        self.vectors_ = np.where(is_found[:, None], self.vectors_, np.float32(0))
        if self._by_term is not None:
            self._by_term = csr_array(_only(is_found, self._by_term.T).T)
        self._is_found = is_found
        return self

    def kneighbors(self, X: Any, n_neighbors: int = 5) -> tuple[np.ndarray, np.ndarray]:
        """Best documents for queries.

        Parameters
        ----------
        X : texts of shape (n_queries,), or vectors of shape (n_queries, n_features)
        n_neighbors : int, default=5

        Returns
        -------
        scores : ndarray of shape (n_queries, n_neighbors), float64
            In decreasing order; fewer columns if there are fewer rows.
        rows : ndarray of shape (n_queries, n_neighbors), int
            Row numbers. -1, with the score -1, where no document is found: for a query without
            content, and after the last document.
        """
        check_is_fitted(self)
        check_scalar(n_neighbors, "n_neighbors", Integral, min_val=1)
        return self._nearest(*self._as_queries(*self._queries.unit_of(self, X)), n_neighbors)

    def encode_document(self, X: Any) -> Any:
        """Encode documents for another index.

        Parameters
        ----------
        X : texts of shape (n_documents,), or vectors of shape (n_documents, n_features)

        Returns
        -------
        dense : ndarray of shape (n_documents, d), float32
            Of unit length, or zero for documents without content.
        sparse : csr_matrix or csr_array of shape (n_documents, n_terms), float32
            Of unit length, or zero without known pieces of words. If only vectors are compared,
            `dense` is returned alone, not as a pair.
        """
        check_is_fitted(self)
        encoded = self._as_documents(*self._documents.unit_of(self, X, warns=True))
        return encoded.dense if encoded.sparse is None else encoded

    def encode_query(self, X: Any) -> Any:
        """Encode queries for another index.

        Parameters
        ----------
        X : texts of shape (n_queries,), or vectors of shape (n_queries, n_features)

        Returns
        -------
        dense : ndarray of shape (n_queries, d), float32
            Of unit length, or zero for queries without content.
        sparse : csr_matrix or csr_array of shape (n_queries, n_terms), float32
            Of the length `lexical_weight`, or zero without known pieces of words, so that a
            score is the sum of both inner products. Left out as in `encode_document`.
        """
        check_is_fitted(self)
        encoded = self._as_queries(*self._queries.unit_of(self, X))
        return encoded.dense if encoded.sparse is None else encoded

    @property
    def words_(self) -> Any:
        """Sparse vectors of the documents."""
        check_is_fitted(self)
        return None if self._by_term is None else as_sparse_interface(self._by_term.T)

    @property
    def document_pipeline_(self) -> Pipeline:
        """Fitted steps from documents, all as if with content, to vectors, for exports."""
        check_is_fitted(self)
        return self._pipeline(self._documents, self.document_shift_)

    @property
    def query_pipeline_(self) -> Pipeline:
        """Fitted steps from queries, all as if with content, to vectors, for exports."""
        check_is_fitted(self)
        return self._pipeline(self._queries, self.query_shift_)

    def _fit_queries(self, documents: list[str] | None, queries: Any) -> np.ndarray:
        """Fit the encoder of queries, and return the unit vectors of the distinct ones."""
        self._queries, width = self._documents, self._documents.width
        if documents is not None and queries is not None:
            queries = distinct(as_texts(queries, "queries"))[0]
            if 2 * len(known := {*queries} & {*documents}) > len(queries):
                warn(
                    f"{len(known):,} of {len(queries):,} distinct queries are documents. The "
                    "bank should show how queries differ from documents: pass real queries, or "
                    "leave out `queries`."
                )
        encoder = self.query_encoder
        if encoder is None and self.encoder is not None:
            encoder = first_of_queries(clone(as_encoder(self.encoder)))
        if encoder is not None and documents is not None:
            encoder = after_query_encoder(clone(as_encoder(encoder)), self._documents.encoder)
            self._queries = TextSpace(encoder)
            sample = np.random.default_rng(0).permutation(len(documents))[:SAMPLE]
            fit_on = [documents[row] for row in sample] if queries is None else queries
            unit, _ = self._queries.unit_of(self, fit_on, name="queries", fit=True)
            if unit.shape[1] != width:
                raise ValueError(
                    f"query_encoder returns {unit.shape[1]} features, but encoder {width}. "
                    "Expected two encoders with comparable vectors, such as one model with two "
                    "prompts."
                )
        elif queries is not None:
            unit, _ = self._documents.unit_of(self, queries, name="queries")
        if queries is None:
            return np.empty((0, width))
        unit = np.unique(unit[np.any(unit, axis=1)], axis=0)
        if not len(unit):
            raise ValueError(
                "queries has none with content; expected a few hundred. Add queries, or leave "
                "out `queries`."
            )
        return unit

    def _as_documents(self, unit: np.ndarray, texts: Any) -> DenseSparse:
        """Return both vectors of each document from its unit vector and its text."""
        return DenseSparse(shifted(unit, self.document_shift_), self._words(unit, texts))

    def _as_queries(self, unit: np.ndarray, texts: Any) -> DenseSparse:
        """Return those of queries."""
        words = self._words(unit, texts)
        if words is not None:
            words = words * np.float32(self.lexical_weight)
        return DenseSparse(shifted(unit, self.query_shift_), words)

    def _words(self, unit: np.ndarray, texts: Any) -> Any:
        """Return the sparse vectors of texts, zero for texts without content."""
        if self.vectorizer_ is None:
            return None
        words = _only(np.any(unit, axis=1), self.vectorizer_.transform(texts))
        return as_sparse_interface(words)

    def _nearest(
        self,
        dense: np.ndarray,
        sparse: Any,
        k: int,
        left_out: tuple[np.ndarray, np.ndarray] | None = None,
    ) -> tuple[np.ndarray, np.ndarray]:
        """Return scores in float64, from the largest, and rows of the best for encoded queries.

        They are found in float32, so a candidate that is as near as the last to 1e-6 may be
        left out. Ties are in the order of rows. With ``left_out``, numbers of all documents and
        of the queries, a query finds none of the documents with its number.
        """
        n, d = self.vectors_.shape
        k, hidden = min(k, n), np.flatnonzero(~self._is_found)
        scores, rows = np.empty((len(dense), k)), np.empty((len(dense), k), np.intp)
        for block in gen_batches(len(dense) or 1, rows_in_memory(12 * n + 8 * k * d)):
            products = dense[block] @ self.vectors_.T
            if sparse is not None:
                products += (words := sparse_products(sparse[block], self._by_term))
            products[:, hidden] = -np.inf
            products[~dense[block].any(axis=1)] = -np.inf
            if left_out is not None:
                products[left_out[0] == left_out[1][block, None]] = -np.inf
            near = largest(products, k)
            exact = np.einsum("ij,ikj->ik", dense[block], self.vectors_[near], dtype=np.float64)
            if sparse is not None:
                exact += np.take_along_axis(words, near, axis=1)
            is_none = np.isneginf(np.take_along_axis(products, near, axis=1))
            exact[is_none], near[is_none] = -np.inf, -1
            order = np.lexsort((near, -exact))
            scores[block] = np.take_along_axis(exact, order, axis=1)
            rows[block] = np.take_along_axis(near, order, axis=1)
        scores[rows < 0] = -1
        return scores, rows

    def _pipeline(self, space: TextSpace, shift: np.ndarray) -> Pipeline:
        # Fitted on one row, a scaler subtracts it.
        minus = StandardScaler(with_std=False).fit(shift[None])
        first = [] if space.encoder is None else [space.encoder]
        return make_pipeline(*first, Normalizer(), minus, Normalizer())


def shifted(unit: np.ndarray, shift: np.ndarray) -> np.ndarray:
    """Subtract from unit vectors, and scale to unit length again; zero vectors stay zero."""
    out = np.zeros(unit.shape, np.float32)
    for rows in gen_batches(len(unit) or 1, SCALED):
        moved = unit_rows(unit[rows] - shift)[0]
        out[rows] = np.where(unit[rows].any(axis=1)[:, None], moved, 0.0)
    return out


def _only(kept: np.ndarray, words: Any) -> Any:
    """Return sparse rows, of which those that are not ``kept`` are zero."""
    if kept.all():
        return words
    words = diags_array(kept.astype(np.float32)) @ words
    words.eliminate_zeros()
    return words
