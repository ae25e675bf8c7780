"""SearchEncoder: documents and queries as vectors whose inner product ranks better."""

from dataclasses import KW_ONLY
from itertools import compress
from numbers import Integral, Real
from typing import Any, NamedTuple, Self

import numpy as np
from scipy.sparse import csr_matrix
from sklearn.base import BaseEstimator, clone
from sklearn.pipeline import Pipeline
from sklearn.utils import check_scalar
from sklearn.utils.validation import check_is_fitted

from skcalib.base import estimator, from_scratch, warn
from skcalib.compat import HasMethods, Interval, RealNotInt, StrOptions, _fit_context
from skcalib.cosines import nearest_in_order, sparse_products
from skcalib.encoders.sides import first_of_queries
from skcalib.inputs.texts import TextTransformer, as_texts, distinct
from skcalib.inputs.vectors import distinct_vectors, warn_of_silent
from skcalib.similarity.inputs import Side, check_queries
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
LAST = -0.7  # column of hubs of documents without content; of others it is at least -.54
# Of calls with queries drawn like the bank, a share of ALARMS warns on average over banks. So
# for one bank in ten at most, the share is more than ten times as much (Markov's inequality).
ALARMS = 0.001


class DenseSparse(NamedTuple):
    """Two vectors of each text, whose inner products are added."""

    dense: np.ndarray  # (n_texts, d + 2), float32
    sparse: csr_matrix  # (n_texts, n_terms), float32


@estimator
class SearchEncoder(TextTransformer):
    """Encode documents and queries for a search by inner product, which ranks better.

    Queries and documents are different kinds of text, so each kind has its own mean. In
    addition, some documents, the hubs, are near every query. A sample of unlabeled queries, the
    bank, shows both, and this encoder removes them. Of texts it also compares the words, as
    sparse vectors. It needs no relevance judgments.

    Parameters
    ----------
    encoder : transformer of texts, any encoder of texts, or None, default=None
        Such as `BertEncoder`, or a model's folder, see `TextEncoder`. It is cloned and fitted
        on the documents; a ``FrozenEstimator`` keeps its fit. If its model declares prompts, or
        methods, for queries and for documents, each side uses its own. With None, documents and
        queries are vectors.
    query_encoder : transformer of texts, any encoder of texts, or None, default=None
        Encoder of the queries, such as ``BertEncoder(model, prompt="query: ")``. The later
        steps of an `encoder` that is a pipeline follow it. None uses `encoder`.
    lexical : "characters", vectorizer or None, default="characters"
        What compares words: TF-IDF of pieces of words, of 2 to 4 characters, or a vectorizer of
        scikit-learn, such as a ``TfidfVectorizer``, which is cloned and fitted on the
        documents. None, or an `encoder` of None, compares vectors alone.
    power : float in [0, 1], default=0.05
        Power of the whitening of both sides, see `Whitening`. More brings out details, which
        finds the same thing in other words; less, or 0, keeps documents on one topic together.
        It is smaller for few documents, see Notes.
    n_neighbors : int or float, default=0.1
        Number of queries of the bank whose mean cosine with a document is its hubness; or, as a
        float in (0, 1), a share of the bank.
    hub_weight : float in [0, 1], default=0.75
        Weight of the hubness. It is multiplied by the share of the hubness that another bank
        would repeat. It is smaller for few documents, and where a few documents answer most
        queries, see Notes. 0 leaves the hubs as they are.
    neighbors : transformer or None, default=None
        scikit-learn's ``KNeighborsTransformer``, or a similar one (of pynndescent or faiss), by
        cosine or Euclidean distance, for `kneighbors`. It is cloned, and its ``n_neighbors`` is
        set. It finds a hundred documents by their dense vectors, which the words reorder. None
        compares a query with every document.

    Attributes
    ----------
    vectors_ : ndarray of shape (n_documents, d + 2), float32
        Dense vectors of the fitted documents, for d dimensions of the encoder.
    words_ : csc_matrix of shape (n_documents, n_terms), float32, or None
        Their sparse vectors; None if only vectors are compared.
    vectorizer_ : vectorizer or None
        The fitted clone, with its ``vocabulary_`` and ``idf_``, which the fit determines:
        documents that come later do not change them.
    lexical_weight_ : float
        What sparse vectors of queries are multiplied by.
    document_shift_, query_shift_ : ndarray of shape (d,)
        What is subtracted from the unit vectors of documents and of queries: four fifths of
        their means, of which few queries estimate that of queries in part. Zero without
        queries.
    projection_ : ndarray of shape (d, d)
        W, the whitening of both sides.
    hub_weight_ : float
        Weight of the hubness in use.
    n_queries_ : int
        Number of distinct queries with content in the bank; 0 without queries.
    n_neighbors_ : int
        Number of nearest queries in use.
    neighbors_ : transformer or None
        The fitted clone; None for 101 documents or fewer.
    document_pipeline_, query_pipeline_ : Pipeline
        The fitted steps of each side, from texts or vectors to dense vectors of the search, as
        `skcalib.export` takes them. Texts without content are vectors like others there.
    n_features_in_, feature_names_in_
        Of vectors: number of features seen during fit, and their names when all are strings.

    See Also
    --------
    NearestAnswer : One of the stored answers, or none.
    skcalib.evaluation.evaluate_retrieval : Compare encoders on judged queries.

    Notes
    -----
    With unit vectors, m and μ the means of the documents and of the bank, Z in [0, 1], and t(.)
    the unit vectors of words::

        d' = unit((d - 0.8 m) W)    q' = unit((q - 0.8 (m + Z (μ - m))) W)

        score = (q' . d' - w r(d)) / 2 + v t(q) . t(d)

    r(d) is the mean of the k largest ``b' . d'`` over the queries b of the bank. So this is
    Nearest Neighbor Normalization [1]_ with two means and words. Its first part is a cosine,
    and an inner product: the vectors of documents are ``(d', -w r(d), s) / sqrt(2)`` and those
    of queries ``(q', 1, 0) / sqrt(2)``, where s makes the length 1 [2]_. The second is an inner
    product of sparse vectors. Every index of dense and sparse vectors adds both, and documents
    that come later need no new fit.

    A fifth of the means stays, as with `Whitening`, which protects the largest group of a
    skewed collection. Few queries estimate little. ``Z = max(0, 1 - V / G)``, where G is the
    squared distance of the two means, and V the part of it that is expected by chance (James &
    Stein [3]_).

    The weight w is `hub_weight` times the share of the variance of r(d) that another bank would
    repeat, by the correlation of r(d) from two halves of the bank [4]_. It is small for few
    queries, and where documents are near the queries that they answer and near no others. If
    each query has one answer, a document answers ``n / N`` of the n queries of the bank among N
    documents. They are near it because it answers them, so w is also multiplied by the share of
    its k nearest that are left, ``1 - n / (N k)``: of ten documents, and the default k,
    nothing. And popular documents, which answer many queries, look like hubs. So w is
    multiplied by a gate, from the effective number of documents that are first for the bank,
    over the number expected if queries ask for each document equally often: 0 up to .75, 1 from
    .95 on. Use a hundred queries or more; 2,000 at most are compared with each document.

    W is the whitening of both sides, each minus its mean, with a small `power` and the
    shrinkage of Ledoit and Wolf. It brings out details, which distinguish the answer of a query
    from other documents on its topic. `power` is multiplied by the same ``1 - n / (N k)``,
    since few documents are topics themselves.

    The weight v of words depends on how well they distinguish the document that is first by the
    vectors, for the queries of the bank, from those at the places 11 to 60: with the difference
    D of both means of ``t(q) . t(d)`` in standard deviations, a standard deviation of the words
    counts ``D² / (2 + 2 D²)`` of one of the vectors.

    Without queries, no mean and no hubs are known, and the documents ask for each other to find
    v. Without queries and without an encoder, scores are half the cosines after the whitening.

    Equal queries count once. Texts without content for the encoder, and zero vectors, come
    last as documents, and find nothing as queries.

    References
    ----------
    .. [1] Chowdhury et al. (2024), "Nearest Neighbor Normalization Improves Multimodal
           Retrieval", EMNLP, arXiv:2410.24114.
    .. [2] Bachrach et al. (2014), "Speeding Up the Xbox Recommender System Using a Euclidean
           Transformation for Inner-Product Spaces", RecSys.
    .. [3] James & Stein (1961), "Estimation with Quadratic Loss", Berkeley Symposium 4(1).
    .. [4] Spearman (1910), "Correlation Calculated from Faulty Data", British Journal of
           Psychology 3(3).

    Examples
    --------
    >>> from skcalib import SearchEncoder
    >>> from skcalib.datasets import load_docstrings
    >>> documents = load_docstrings().data[::4]
    >>> bank = [" ".join(text.split()[-5:]) for text in load_docstrings().data[1::8]]
    >>> search = SearchEncoder("minilm").fit(documents, queries=bank)
    >>> scores, rows = search.kneighbors(["area under a curve"], n_neighbors=1)
    >>> documents[rows[0, 0]]
    'Integrate along the given axis using the composite trapezoidal rule.'
    """

    encoder: Any = None
    query_encoder: Any = None
    _: KW_ONLY
    lexical: Any = "characters"
    power: float = 0.05
    n_neighbors: int | float = 0.1
    hub_weight: float = 0.75
    neighbors: BaseEstimator | None = None

    _parameter_constraints = {
        "encoder": "no_validation",  # `as_encoder` checks it
        "query_encoder": "no_validation",
        "lexical": [StrOptions({"characters"}), HasMethods(["fit", "transform"]), None],
        "power": [Interval(Real, 0, 1, closed="both")],
        "n_neighbors": [
            Interval(Integral, 1, None, closed="left"),
            Interval(RealNotInt, 0, 1, closed="neither"),
        ],
        "hub_weight": [Interval(Real, 0, 1, closed="both")],
        "neighbors": [HasMethods(["fit", "transform"]), None],
    }
    _state_version = 4

    @_fit_context(prefer_skip_nested_validation=False)
    @from_scratch
    def fit(self, X: Any, y: Any = None, *, queries: Any = None) -> Self:
        """Learn both means and the hubs, and keep the documents.

        Parameters
        ----------
        X : texts of shape (n_documents,), or vectors of shape (n_documents, n_features)
            Documents that are searched: texts with an `encoder`, vectors without.
        y : None
            Ignored.
        queries : texts of shape (n_queries,), or vectors, default=None
            The bank: real queries like the future ones, some hundred. Nobody needs to know
            which documents answer them.

        Returns
        -------
        self : SearchEncoder

        Raises
        ------
        ValueError
            If there are fewer than two different documents or queries with content, or if the
            vectors of queries have another width.

        Warns
        -----
        UserWarning
            If most queries are documents, or if vectors come without queries.
        """
        check_queries(self, y, queries)
        self._learn(X, queries)
        return self

    def _learn(self, X: Any, queries: Any, codes: np.ndarray | None = None) -> np.ndarray:
        """Fit on documents, which may be in groups, see `TwoSides.documents`.

        Return their unit vectors by the encoder.
        """
        if self.encoder is None and self.query_encoder is not None:
            raise ValueError(
                "SearchEncoder got a query_encoder but no encoder; expected both, or neither. "
                "Set the encoder of the documents, too, and pass texts."
            )
        self._document_side, unit = Side.fitted(self, X, "document")
        has_content = np.any(unit, axis=1)
        if has_content.sum() < 2:
            raise ValueError(
                f"Got n_samples={len(unit)} documents, {has_content.sum()} of them with "
                "content; a search ranks two or more. Pass all documents in one list."
            )
        texts = None if self.encoder is None else as_texts(X)
        content = unit if has_content.all() else unit[has_content]
        bank, asked = self._bank(content, texts, queries)
        self._sides = sides = TwoSides.learned(
            content,
            bank,
            power=self.power,
            n_neighbors=self.n_neighbors,
            hub_weight=self.hub_weight,
            codes=None if codes is None else codes[has_content],
        )
        self.n_queries_ = 0 if bank is None else len(bank)
        self._bank_test = None if bank is None else BankTest.of(bank)
        self.document_shift_, self.query_shift_ = sides.document_shift, sides.query_shift
        self.projection_ = sides.projection
        self.hub_weight_, self.n_neighbors_ = sides.hub_weight, sides.n_neighbors
        self._words = words = None
        if texts is not None and self.lexical is not None:
            self._words, words = Words.fitted(self.lexical, texts)
            words = by_term(words, has_content, codes)
        self._store(unit, words, codes)
        self.vectorizer_, self.lexical_weight_ = None, 0.0
        if (words := self._words) is not None and texts is not None:
            words.weight = self._weight_of_words(words, unit, texts, bank, asked)
            self.vectorizer_, self.lexical_weight_ = words.vectorizer, words.weight
        return unit

    def _bank(
        self, documents: np.ndarray, X: list[str] | None, queries: Any
    ) -> tuple[np.ndarray | None, list[str]]:
        """Fit the side of queries; return unit vectors and texts of distinct ones, if any."""
        unit, texts = self._fit_queries(X, queries)
        if unit is None:
            return None, []
        if X is None:
            asked = {row.tobytes() for row in unit}
            equal = len({key for row in documents if (key := row.tobytes()) in asked})
        else:
            equal = len({*texts} & {*X})
        if 2 * equal > len(unit):
            warn(
                f"{equal:,} of {len(unit):,} distinct queries are documents. The bank should "
                "show how queries differ from documents: pass real queries, or leave out "
                "`queries`."
            )
        has_content = np.any(unit, axis=1)
        if has_content.sum() < 2:
            raise ValueError(
                f"queries has {has_content.sum()} distinct queries with content; expected two "
                "or more, better some hundred. Add queries, or leave out `queries`."
            )
        return unit[has_content], [*compress(texts, has_content)]

    def _fit_queries(
        self, X: list[str] | None, queries: Any
    ) -> tuple[np.ndarray | None, list[str]]:
        """Fit the encoder of queries, on a sample of documents if there are none."""
        self._query_side, unit = self._document_side, None
        if X is None:
            if queries is not None:
                return distinct_vectors(self._query_side.unit(self, queries, "queries")), []
            warn(
                "Vectors of documents alone show neither the mean of queries nor the hubs, so "
                "scores are half the cosines after a mild whitening. Pass `queries`, or texts "
                "and an encoder."
            )
            return None, []
        texts = [] if queries is None else distinct(as_texts(queries, "queries"))[0]
        encoder = self.query_encoder
        if encoder is None:
            encoder = first_of_queries(self.encoder)
        if encoder is not None:
            some = texts or distinct([X[row] for row in sample_of(len(X))])[0]
            self._query_side, unit = self._document_side.fit_query_side(encoder, some)
        elif texts:
            unit = self._query_side.unit(self, texts, "queries")
        return unit if texts else None, texts

    def _store(
        self, unit: np.ndarray, words: csr_matrix | None, codes: np.ndarray | None
    ) -> None:
        """Keep documents by their unit vectors, and their words by terms, to be searched."""
        self.vectors_ = self._sides.documents(unit, codes)
        self._by_term, self.words_ = words, None if words is None else words.T
        self.neighbors_ = None
        if self.neighbors is not None and len(unit) > CANDIDATES + 1:  # some ask for one more
            index = clone(self.neighbors).set_params(n_neighbors=CANDIDATES)
            self.neighbors_ = index.fit(self.vectors_)

    def _weight_of_words(
        self,
        words: Words,
        unit: np.ndarray,
        texts: list[str],
        bank: np.ndarray | None,
        asked: list[str],
    ) -> float:
        """Return the weight by queries, or by documents that ask for each other."""
        rows = np.unique(distinct(texts)[1], return_index=True)[1]
        rows = rows[np.any(unit, axis=1)[rows]]  # a copy would be found by its words
        vectors: Any = self.vectors_
        stored: Any = self.words_
        if len(rows) < len(texts):
            vectors, stored = vectors[rows], stored[rows]
        if bank is None:
            own = sample_of(len(rows))
            of_asked = csr_matrix(stored[own])
            return weight_of_words(
                self._sides.queries(unit[rows[own]]), vectors, of_asked, stored, own
            )
        drawn = sample_of(len(asked))
        of_asked = words.documents([asked[row] for row in drawn])
        return weight_of_words(self._sides.queries(bank[drawn]), vectors, of_asked, stored)

    def fit_transform(self, X: Any, y: Any = None, *, queries: Any = None) -> np.ndarray:
        """Fit, and return the vectors of the documents.

        Parameters
        ----------
        X, y, queries
            As for `fit`.

        Returns
        -------
        vectors : ndarray of shape (n_documents, d + 2), float32
            Dense vectors, as `encode_document` returns them.
        """
        return self.fit(X, y, queries=queries).vectors_.copy()

    def transform(self, X: Any) -> np.ndarray:
        """Return the dense vectors of documents.

        Parameters
        ----------
        X : texts of shape (n_documents,), or vectors of shape (n_documents, n_features)

        Returns
        -------
        vectors : ndarray of shape (n_documents, d + 2), float32
        """
        check_is_fitted(self)
        unit = self._document_side.unit(self, X)
        warn_of_silent(~unit.any(axis=1))
        return self._sides.documents(unit)

    def encode_document(self, X: Any) -> Any:
        """Encode documents: those of the fit, or later ones.

        Parameters
        ----------
        X : texts of shape (n_documents,), or vectors of shape (n_documents, n_features)

        Returns
        -------
        dense : ndarray of shape (n_documents, d + 2), float32
            Of unit length.
        sparse : csr_matrix of shape (n_documents, n_terms), float32
            Of unit length, or zero without known terms. If only vectors are compared, `dense`
            is returned alone, not as a pair.
        """
        dense = self.transform(X)
        if self._words is None:
            return dense
        words = self._words.documents(as_texts(X))
        return DenseSparse(dense, with_content(words, dense[:, -2] > LAST))

    def encode_query(self, X: Any) -> Any:
        """Encode queries.

        Parameters
        ----------
        X : texts of shape (n_queries,), or vectors of shape (n_queries, n_features)
            New queries, or some of the bank.

        Returns
        -------
        dense : ndarray of shape (n_queries, d + 2), float32
            Of unit length, or zero for queries without content.
        sparse : csr_matrix of shape (n_queries, n_terms), float32
            Of the length `lexical_weight_`, or zero without known terms. The sum of both inner
            products with a document is its score. If only vectors are compared, `dense` is
            returned alone, not as a pair.

        Warns
        -----
        UserWarning
            If five or more distinct queries are unlike the bank, see `query_p_value`. Of calls
            whose queries are drawn like the bank, at most one in a hundred warns, for nine of
            ten banks.
        """
        unit = self._unit_queries(X)
        if (p_value := self._p_value(unit)) <= ALARMS:
            warn(
                f"The queries are unlike the bank (p={p_value:.1g}), as if they were in "
                "another language or of another kind. The means and hubs of a wrong bank may "
                "cost many points: fit again with a sample of queries such as these."
            )
        return self._encoded(unit, X)

    def _encoded(self, unit: np.ndarray, X: Any) -> Any:
        """Encode queries, of whose encoder these are the unit vectors."""
        dense, words = self._sides.queries(unit), self._words
        return dense if words is None else DenseSparse(dense, words.queries(as_texts(X)))

    def query_p_value(self, X: Any) -> float:
        """Chance that new queries of the bank's distribution are as far from it as these.

        Parameters
        ----------
        X : texts of shape (n_queries,), or vectors of shape (n_queries, n_features)
            Such as the queries of a day.

        Returns
        -------
        p_value : float
            Of a rank test of how near queries are to one half of the bank, compared with the
            other half [1]_. 1 for fewer than five distinct queries, a bank of fewer than ten,
            or without queries in the fit. At most 200 queries are compared, drawn at random.
            Equal queries, and near copies, count once. It holds on average over banks.

        References
        ----------
        .. [1] Mann & Whitney (1947), "On a Test of Whether One of Two Random Variables Is
               Stochastically Larger than the Other", Annals of Mathematical Statistics 18(1).
        """
        return self._p_value(self._unit_queries(X))

    def _unit_queries(self, X: Any) -> np.ndarray:
        check_is_fitted(self)
        return self._query_side.unit(self, X)

    def _p_value(self, unit: np.ndarray) -> float:
        return 1.0 if self._bank_test is None else self._bank_test.p_value(unit)

    def kneighbors(self, X: Any, n_neighbors: int = 5) -> tuple[np.ndarray, np.ndarray]:
        """Best documents of the fit for queries.

        Parameters
        ----------
        X : texts of shape (n_queries,), or vectors of shape (n_queries, n_features)
        n_neighbors : int, default=5
            With `neighbors`, more than 100 are searched without it.

        Returns
        -------
        scores : ndarray of shape (n_queries, n_neighbors), float64
            In decreasing order; fewer columns if there are fewer documents.
        rows : ndarray of shape (n_queries, n_neighbors), int
            Rows of the documents in the fit. -1, with the score -1, for a query without
            content, and where an index finds fewer.
        """
        check_is_fitted(self)
        check_scalar(n_neighbors, "n_neighbors", Integral, min_val=1)
        asked = self.encode_query(X)
        dense = asked if self._words is None else asked.dense
        scores, rows = self._nearest(asked, n_neighbors)
        silent = ~dense.any(axis=1)
        scores[silent], rows[silent] = -1, -1
        return scores, rows

    def _nearest(self, asked: Any, k: int) -> tuple[np.ndarray, np.ndarray]:
        """Scores, from the largest, and rows of the best documents for encoded queries."""
        k, added = min(k, len(self.vectors_)), None
        index = self.neighbors_ if k <= CANDIDATES else None
        if self._words is not None:
            asked, sparse = asked

            def added(chunk: slice) -> np.ndarray:
                return sparse_products(sparse[chunk], self._by_term)

        return nearest_in_order(asked, self.vectors_, k, index, added)

    @property
    def document_pipeline_(self) -> Pipeline:
        """The steps of documents, fitted, as exports take them."""
        check_is_fitted(self)
        return self._document_side.followed_by(self._sides.document_steps())

    @property
    def query_pipeline_(self) -> Pipeline:
        """The steps of queries, fitted, as exports take them."""
        check_is_fitted(self)
        return self._query_side.followed_by(self._sides.query_steps())

    @property
    def _n_features_out(self) -> int:
        return self.vectors_.shape[1]

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "vectors_")
