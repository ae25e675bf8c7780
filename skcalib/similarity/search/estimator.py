"""SearchEncoder: documents and queries as vectors whose inner product ranks better."""

from dataclasses import KW_ONLY
from numbers import Integral, Real
from typing import Any, Self

import numpy as np
from sklearn.base import BaseEstimator
from sklearn.pipeline import Pipeline
from sklearn.utils import check_scalar
from sklearn.utils.validation import check_is_fitted

from skcalib.base import NotHere, estimator, from_scratch, warn
from skcalib.compat import HasMethods, Interval, StrOptions, _fit_context
from skcalib.inputs.containers import refuse_rows
from skcalib.inputs.texts import TextTransformer
from skcalib.inputs.vectors import warn_of_silent
from skcalib.similarity.search.index import DenseSparse, SearchIndex

# Of calls with queries drawn like the bank, a share of ALARMS warns on average over banks. So
# for one bank in ten at most, the share is more than ten times as much (Markov's inequality).
ALARMS = 0.001


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
    hub_weight : float in [0, 1], default=0.75
        Weight of the hubness of a document: its mean cosine with the tenth of the bank that is
        nearest. It is smaller for few queries or documents, and where a few documents answer
        most queries, see Notes. 0 leaves the hubs as they are.
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

    r(d) is the mean of the k largest ``b' . d'`` over the n queries b of the bank, where k is a
    tenth of n. So this is Nearest Neighbor Normalization [1]_ with two means and words. Its
    first part is a cosine, and an inner product: the vectors of documents are ``(d', -w r(d),
    s) / sqrt(2)`` and those of queries ``(q', 1, 0) / sqrt(2)``, where s makes the length 1
    [2]_. The second is an inner product of sparse vectors. Every index of dense and sparse
    vectors adds both, and documents that come later need no new fit.

    A fifth of the means stays, as with `Whitening`, which protects the largest group of a
    skewed collection. Few queries estimate little. ``Z = max(0, 1 - V / G)``, where G is the
    squared distance of the two means, and V the part of it that is expected by chance (James &
    Stein [3]_).

    The weight w is the product of `hub_weight` and of three shares:

    - the share of the variance of r(d) that another bank would repeat, by the correlation of
      r(d) from two halves of the bank [4]_. It is small for few queries, and where documents
      are near the queries that they answer and near no others;
    - ``1 - n / (N k)`` for N documents. If each query has one answer, a document answers ``n /
      N`` of the bank on average. Of its k nearest queries, the others make it a hub: of ten
      documents, none;
    - a gate for popular documents, which look like hubs: from the effective number of documents
      that are first for the bank, over the number expected if queries ask for each document
      equally often. It is 0 up to a ratio of .75, and 1 from .95 on.

    Use a hundred queries or more; hubs are found by 2,000 of them at most.

    W is the whitening of both sides, each minus its mean, with a small `power` and the
    shrinkage of Ledoit and Wolf. It brings out details, which distinguish the answer of a query
    from other documents on its topic. `power` is multiplied by the second share, since few
    documents are topics themselves.

    The weight v of words depends on how well they distinguish, for the queries of the bank, the
    document that is first by the vectors from those at the places 11 to 60: with the difference
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
    hub_weight: float = 0.75
    neighbors: BaseEstimator | None = None

    _parameter_constraints = {
        "encoder": "no_validation",  # `as_encoder` checks it
        "query_encoder": "no_validation",
        "lexical": [
            StrOptions({"characters"}),
            HasMethods(["fit_transform", "transform"]),
            None,
        ],
        "power": [Interval(Real, 0, 1, closed="both")],
        "hub_weight": [Interval(Real, 0, 1, closed="both")],
        "neighbors": [HasMethods(["fit", "transform"]), None],
    }
    _state_version = 5
    encode = NotHere("Use encode_document, and encode_query for queries.")
    search = NotHere("Use kneighbors(queries, n_neighbors), or the vectors in an index.")

    @from_scratch
    @_fit_context(prefer_skip_nested_validation=False)
    def fit(self, X: Any, y: Any = None, *, queries: Any = None) -> Self:
        """Learn both means and the hubs, and keep the documents.

        Parameters
        ----------
        X : texts of shape (n_documents,), or vectors of shape (n_documents, n_features)
            Documents that are searched: texts with an `encoder`, vectors without.
        y : None
            Ignored. Texts and vectors are refused.
        queries : texts of shape (n_queries,), or vectors, default=None
            The bank: real queries like the future ones, some hundred. Nobody needs to know
            which documents answer them.

        Returns
        -------
        self : SearchEncoder

        Raises
        ------
        TypeError, ValueError
            If there are fewer than two different documents or queries with content, if queries
            come as `y`, by a pipeline that does not transform them, or with another width.

        Warns
        -----
        UserWarning
            If most queries are documents, or if vectors come without queries.
        """
        advice = "Pass a sample of queries by name: fit(documents, queries=past_queries)."
        refuse_rows(self, y, advice)
        index, _ = SearchIndex.learned(self, X, queries)
        return self._keep(index)

    def _keep(self, index: SearchIndex) -> Self:
        self._index, sides, words = index, index.sides, index.words
        self.vectors_, self.neighbors_ = index.vectors, index.fitted_neighbors
        self.words_ = None if index.terms is None else index.terms.T
        self.vectorizer_ = None if words is None else words.vectorizer
        self.lexical_weight_ = 0.0 if words is None else words.weight
        self.document_shift_, self.query_shift_ = sides.document_shift, sides.query_shift
        self.projection_, self.hub_weight_ = sides.projection, sides.hub_weight
        self.n_queries_ = index.n_queries
        return self

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
        unit, _ = self._documents(X)
        return self._index.sides.documents(unit)

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
        unit, texts = self._documents(X)
        return self._index.documents(unit, texts).vectors()

    def _documents(self, X: Any) -> tuple[np.ndarray, list[str] | None]:
        check_is_fitted(self)
        unit, texts = self._index.document_side.checked(self, X)
        warn_of_silent(~unit.any(axis=1))
        return unit, texts

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
            If five or more distinct queries are farther from the bank than its queries are from
            each other, by a rank test [1]_, for a bank of ten or more. Near copies count once.
            Of calls whose queries are drawn like the bank, at most one in a hundred warns, for
            nine of ten banks.

        References
        ----------
        .. [1] Mann & Whitney (1947), "On a Test of Whether One of Two Random Variables Is
               Stochastically Larger than the Other", Annals of Mathematical Statistics 18(1).
        """
        return self._queries(X).vectors()

    def _queries(self, X: Any) -> DenseSparse:
        check_is_fitted(self)
        index = self._index
        unit, texts = index.query_side.checked(self, X)
        p_value = 1.0 if index.bank_test is None else index.bank_test.p_value(unit)
        if p_value <= ALARMS:
            warn(
                f"The queries are unlike the bank (p={p_value:.1g}), as if they were in "
                "another language or of another kind. The means and hubs of a wrong bank may "
                "cost many points: fit again with a sample of queries such as these."
            )
        return index.queries(unit, texts)

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
        asked = self._queries(X)
        scores, rows = self._index.nearest(asked, n_neighbors)
        silent = ~asked.dense.any(axis=1)
        scores[silent], rows[silent] = -1, -1
        return scores, rows

    @property
    def document_pipeline_(self) -> Pipeline:
        """The steps of documents, fitted, as exports take them."""
        check_is_fitted(self)
        return self._index.document_side.followed_by(self._index.sides.document_steps())

    @property
    def query_pipeline_(self) -> Pipeline:
        """The steps of queries, fitted, as exports take them."""
        check_is_fitted(self)
        return self._index.query_side.followed_by(self._index.sides.query_steps())

    @property
    def _n_features_out(self) -> int:
        return self.vectors_.shape[1]
