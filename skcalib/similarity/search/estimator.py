"""SearchEncoder: documents and queries as vectors whose inner product ranks better."""

from dataclasses import KW_ONLY, dataclass
from numbers import Integral, Real
from typing import Any, Self

import numpy as np
from sklearn.base import BaseEstimator, clone
from sklearn.pipeline import Pipeline
from sklearn.utils import check_scalar
from sklearn.utils.metadata_routing import UNUSED
from sklearn.utils.validation import check_is_fitted

from skcalib.base import from_scratch, warn
from skcalib.compat import HasMethods, Interval, RealNotInt, _fit_context
from skcalib.cosines import nearest_in_order
from skcalib.inputs.texts import TextTransformer, as_texts, distinct
from skcalib.inputs.vectors import distinct_vectors, warn_of_silent
from skcalib.similarity.inputs import Side
from skcalib.similarity.search.sides import TwoSides
from skcalib.similarity.search.strangers import Strangers
from skcalib.similarity.search.windows import windows

# Windows show the hubs less well than queries do, so they have this share of the weight.
SHARE_OF_WINDOWS = 1 / 3
CANDIDATES = 100  # documents that an index given as `neighbors` finds
FALSE_ALARMS = 0.01  # share of calls with queries drawn like the bank that may warn


@dataclass(eq=False, repr=False)
class SearchEncoder(TextTransformer):
    """Encode documents and queries for a search by inner product, which ranks better.

    Queries and documents are different kinds of text, so each kind has its own mean. In
    addition, some documents, the hubs, are near every query. A sample of unlabeled queries, the
    bank, shows both, and this encoder removes them. It needs no relevance judgments.

    Parameters
    ----------
    encoder : transformer of texts, any encoder of texts, or None, default=None
        Such as `BertEncoder`, or a model's folder, see `TextEncoder`. It is cloned and fitted
        on the documents; a ``FrozenEstimator`` keeps its fit. With None, documents and queries
        are vectors.
    query_encoder : transformer of texts, any encoder of texts, or None, default=None
        Encoder of the queries, such as ``BertEncoder(model, prompt="query: ")``. The later
        steps of an `encoder` that is a pipeline follow it. None uses `encoder`.
    power : float in [0, 1], default=0.05
        Power of the whitening of both sides, see `Whitening`. More brings out details, which
        finds the same thing in other words; less, or 0, keeps documents on one topic together.
        It is smaller for few documents, see Notes.
    n_neighbors : int or float, default=0.1
        Number of queries of the bank whose mean cosine with a document is its hubness; or, as a
        float in (0, 1), a share of the bank.
    hub_weight : float in [0, 1], default=0.75
        Weight of the hubness. It is multiplied by the share of the hubness that another bank
        would repeat, and smaller for few documents, see Notes. 0 leaves the hubs as they are.
    neighbors : transformer or None, default=None
        scikit-learn's ``KNeighborsTransformer``, or a similar one (of pynndescent or faiss), by
        cosine or Euclidean distance, for `kneighbors`. It is cloned, and its ``n_neighbors`` is
        set. None compares a query with every document.

    Attributes
    ----------
    vectors_ : ndarray of shape (n_documents, d + 2), float32
        Vectors of the fitted documents, for d dimensions of the encoder.
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
        Number of nearest queries, or windows, in use.
    neighbors_ : transformer or None
        The fitted clone.
    document_pipeline_, query_pipeline_ : Pipeline
        The fitted steps of each side, from texts or vectors to vectors of the search, as
        `skcalib.export` takes them. Texts without content are vectors like others there.
    n_features_in_, feature_names_in_
        Of vectors: number of features seen during fit, and their names when all are strings.

    See Also
    --------
    NearestAnswer : One of the stored answers, or none.
    skcalib.evaluation.evaluate_retrieval : Compare encoders on judged queries.

    Notes
    -----
    With unit vectors, m and μ the means of the documents and of the bank, and Z in [0, 1]::

        d' = unit((d - 0.8 m) W)    q' = unit((q - 0.8 (m + Z (μ - m))) W)

        score = (q' . d' - w r(d)) / 2

    r(d) is the mean of the k largest ``b' . d'`` over the queries b of the bank. So this is
    Nearest Neighbor Normalization [1]_ with two means. It is a cosine, and an inner product:
    the vectors of documents are ``(d', -w r(d), s) / sqrt(2)`` and those of queries
    ``(q', 1, 0) / sqrt(2)``, where s makes the length 1 [2]_. So every index by cosine, inner
    product or Euclidean distance searches by it, and documents that come later need no new fit.

    A fifth of the means stays, as with `Whitening`, which protects the largest group of a
    skewed collection. Few queries estimate little. ``Z = max(0, 1 - V / G)``, where G is the
    squared distance of the two means, and V the part of it that is expected by chance (James &
    Stein [3]_). The weight w is `hub_weight` times the share of the variance of r(d) that
    another bank would repeat, by the correlation of r(d) from two halves of the bank [4]_. It
    is small for few queries, and where documents are near the queries that they answer and near
    no others. If each query has one answer, a document answers ``n / N`` of the n queries of
    the bank among N documents. They are near it because it answers them, so w is also
    multiplied by the share of its k nearest that are left, ``1 - n / (N k)``: of ten documents,
    and the default k, nothing. Use a hundred queries or more; 2,000 at most are compared with
    each document.

    W is the whitening of both sides, each minus its mean, with a small `power` and the
    shrinkage of Ledoit and Wolf. It brings out details, which distinguish the answer of a query
    from other documents on its topic. `power` is multiplied by the same ``1 - n / (N k)``,
    since few documents are topics themselves.

    Without queries, windows of 4 to 12 words of the documents are the bank, no mean is
    subtracted, and the weight is a third. Without queries and without an encoder, scores are
    half the cosines after the whitening.

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
    power: float = 0.05
    n_neighbors: int | float = 0.1
    hub_weight: float = 0.75
    neighbors: BaseEstimator | None = None

    _parameter_constraints = {
        "encoder": "no_validation",  # `as_encoder` checks it
        "query_encoder": "no_validation",
        "power": [Interval(Real, 0, 1, closed="both")],
        "n_neighbors": [
            Interval(Integral, 1, None, closed="left"),
            Interval(RealNotInt, 0, 1, closed="neither"),
        ],
        "hub_weight": [Interval(Real, 0, 1, closed="both")],
        "neighbors": [HasMethods(["fit", "transform"]), None],
    }
    _state_version = 2
    __metadata_request__fit = {"queries": UNUSED}  # which no pipeline passes on

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
        if self.encoder is None and self.query_encoder is not None:
            raise ValueError(
                "SearchEncoder got a query_encoder but no encoder; expected both, or neither. "
                "Set the encoder of the documents, too, and pass texts."
            )
        side, documents = Side.fitted(self, X)
        content = documents[documents.any(axis=1)]
        if len(content) < 2:
            raise ValueError(
                f"Got n_samples={len(documents)} documents, {len(content)} of them with "
                "content; a search ranks two or more. Pass all documents in one list."
            )
        self._document_side = self._query_side = side
        texts = None if side.space is None else as_texts(X)
        if queries is None:
            self._fit_windows(content, texts)
        else:
            self._fit_queries(content, X if texts is None else texts, queries)
        sides = self._sides
        self.document_shift_, self.query_shift_ = sides.document_shift, sides.query_shift
        self.projection_ = sides.projection
        self.hub_weight_, self.n_neighbors_ = sides.hub_weight, sides.n_neighbors
        self.vectors_, self.neighbors_ = sides.documents(documents), None
        if self.neighbors is not None:
            k = min(CANDIDATES, len(documents))
            self.neighbors_ = clone(self.neighbors).set_params(n_neighbors=k).fit(self.vectors_)
        return self

    def _fit_queries(self, documents: np.ndarray, X: Any, queries: Any) -> None:
        """Estimate both means and the hubs from a bank of queries."""
        if self.encoder is None:
            unit = self._query_side.unit(self, queries, "queries")
            unit = distinct_vectors(unit)
            stored = {row.tobytes() for row in documents}
            equal = sum(row.tobytes() in stored for row in unit)
        else:
            texts = distinct(as_texts(queries, "queries"))[0]
            unit = self._of_queries(texts)
            equal = len({*texts} & {*X})
        if 2 * equal > len(unit):
            warn(
                f"{equal:,} of {len(unit):,} distinct queries are documents. The bank should "
                "show how queries differ from documents: pass real queries, or leave out "
                "`queries`."
            )
        unit = unit[unit.any(axis=1)]
        if len(unit) < 2:
            raise ValueError(
                f"queries has {len(unit)} distinct queries with content; expected two or more, "
                "better some hundred. Add queries, or leave out `queries`."
            )
        self._sides = TwoSides.of_queries(
            documents,
            unit,
            power=self.power,
            n_neighbors=self.n_neighbors,
            hub_weight=self.hub_weight,
        )
        self.n_queries_, self._strangers = len(unit), Strangers.of(unit)

    def _fit_windows(self, documents: np.ndarray, texts: list[str] | None) -> None:
        """Estimate the hubs from windows of texts, or nothing from vectors."""
        if texts is None:
            warn(
                "Vectors of documents alone show neither the mean of queries nor the hubs, so "
                "scores are half the cosines after a mild whitening. Pass `queries`, or texts "
                "and an encoder."
            )
            unit = documents[:0]
        else:
            unit = self._of_queries(windows(texts))
            unit = unit[unit.any(axis=1)]
        weight = SHARE_OF_WINDOWS * self.hub_weight
        self._sides = TwoSides.of_windows(
            documents,
            unit,
            power=self.power,
            n_neighbors=self.n_neighbors,
            hub_weight=weight,
        )
        self.n_queries_, self._strangers = 0, None

    def _of_queries(self, texts: list[str]) -> np.ndarray:
        """Fit the encoder of queries on distinct texts, and return their unit vectors."""
        if self.query_encoder is None:
            return self._query_side.unit(self, texts, "queries")
        self._query_side, unit = self._document_side.beside(self.query_encoder, texts)
        return unit

    def fit_transform(self, X: Any, y: Any = None, *, queries: Any = None) -> np.ndarray:
        """Fit, and return the vectors of the documents.

        Parameters
        ----------
        X, y, queries
            As for `fit`.

        Returns
        -------
        vectors : ndarray of shape (n_documents, d + 2), float32
            As `encode_document` returns them.
        """
        return self.fit(X, queries=queries).vectors_.copy()

    def transform(self, X: Any) -> np.ndarray:
        """Encode documents, as `encode_document` does.

        Parameters
        ----------
        X : texts of shape (n_documents,), or vectors of shape (n_documents, n_features)

        Returns
        -------
        vectors : ndarray of shape (n_documents, d + 2), float32
        """
        return self.encode_document(X)

    def encode_document(self, X: Any) -> np.ndarray:
        """Encode documents: those of the fit, or later ones.

        Parameters
        ----------
        X : texts of shape (n_documents,), or vectors of shape (n_documents, n_features)

        Returns
        -------
        vectors : ndarray of shape (n_documents, d + 2), float32
            Of unit length.
        """
        check_is_fitted(self)
        unit = self._document_side.unit(self, X)
        warn_of_silent(~unit.any(axis=1))
        return self._sides.documents(unit)

    def encode_query(self, X: Any) -> np.ndarray:
        """Encode queries.

        Parameters
        ----------
        X : texts of shape (n_queries,), or vectors of shape (n_queries, n_features)
            New queries, or some of the bank.

        Returns
        -------
        vectors : ndarray of shape (n_queries, d + 2), float32
            Of unit length, or zero for queries without content. Their inner products with
            vectors of documents are the scores.

        Warns
        -----
        UserWarning
            If five or more distinct queries are unlike the bank, see `query_p_value`. Of calls
            whose queries are drawn like the bank, at most one in a hundred warns.
        """
        unit = self._unit_queries(X)
        if (p_value := self._p_value(unit)) <= FALSE_ALARMS:
            warn(
                f"The queries are unlike the bank (p={p_value:.1g}), as if they were in "
                "another language or of another kind. The means and hubs of a wrong bank may "
                "cost many points: fit again with a sample of queries such as these."
            )
        return self._sides.queries(unit)

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
            Equal ones count once, but near-copies do not, and make it too small.

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
        return 1.0 if self._strangers is None else self._strangers.p_value(unit)

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
        k = min(n_neighbors, len(self.vectors_))
        index = self.neighbors_ if k <= CANDIDATES else None
        scores, rows = nearest_in_order(asked, self.vectors_, k, index)
        silent = ~asked.any(axis=1)
        scores[silent], rows[silent] = -1, -1
        return scores, rows

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
