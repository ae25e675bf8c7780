"""A scale of similarity: how rare a cosine is among pairs of unrelated texts."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass
from functools import reduce
from numbers import Integral
from typing import Any, Literal, Self

import numpy as np
from numpy.typing import ArrayLike
from sklearn.base import BaseEstimator, clone
from sklearn.utils import assert_all_finite
from sklearn.utils.metadata_routing import UNUSED
from sklearn.utils.validation import check_consistent_length, check_is_fitted

from skcalib.similarity.scale.left_out import FOLDS, learns, left_out, mapped, warn_if_fitted
from skcalib.similarity.scale.pairs import FITTED_P_VALUES, PairCounts, count_pairs
from skcalib.similarity.scale.rates import line_of, threshold_of
from skcalib.utils.base import VersionedState, from_scratch, warn
from skcalib.utils.cosines import best_of_others, neighbor_similarity
from skcalib.utils.sklearn_compat import (
    HasMethods,
    Interval,
    RealNotInt,
    _fit_context,
    check_rate,
)
from skcalib.utils.vectors import (
    checked_rows,
    distinct_vectors,
    unit_rows,
    unmasked,
    warn_of_silent,
)

# Largest number of fitted texts that a float `n_neighbors` is a share of.
REFERENCE_TEXTS = 10_000
# Squared length of the mean of unit vectors above which they are not centered.
NARROW_CONE = 0.2
# A new stored text that passes makes two pass: itself, and its nearest text.
MUTUAL = 2
ROUNDING = 1e-5  # of a cosine in float32


@dataclass(eq=False, repr=False)
class SimilarityScale(VersionedState, BaseEstimator):
    """Measure how similar unrelated texts are: thresholds, p-values, a corrected similarity.

    Nearly all pairs of fitted texts are unrelated. So a similarity that one in a thousand of
    them reaches is reached by one in a thousand unrelated pairs of the same domain. A rate is
    per pair or, with ``per="query"``, per query without an answer, whose best pair counts.

    Texts in a dense region are similar to many others. With the corrected similarity [1]_,
    ``cos(a, b) - (r(a) + r(b)) / 2``, one threshold fits all pairs. The `neighbor_similarity` r
    of a text is its mean cosine with the nearest fitted texts. Fit on vectors of
    ``Whitening(noise="auto")``; do not correct raw vectors.

    Parameters
    ----------
    calibration : transformer of vectors or None, default=None
        Calibration of the vectors that are compared, such as ``Whitening(noise="auto")``, if it
        is fitted on the same texts. `fit` then accepts the vectors before it, fits a clone, and
        counts pairs that were left out of its fit, as new pairs are: the pairs that it was
        fitted on are less similar. With None, `fit` accepts the vectors that are compared,
        which no calibration was fitted on.
    n_pairs : int, default=10_000_000
        Number of pairs to count. The default counts those of 4,473 texts drawn at random, or
        all pairs if there are fewer texts.
    n_neighbors : int or float, default=0.05
        Number of fitted texts that are a text's neighbors; or, as a float in (0, 1), a share of
        the fitted texts, of which at most 10,000 count. Use 10 for one-to-one matching, such as
        of translations.

    Attributes
    ----------
    calibration_ : transformer or None
        The calibration, fitted on all texts.
    n_pairs_ : int
        Number of pairs counted.
    n_queries_ : int
        Number of queries whose best document was counted.
    n_neighbors_ : int
        Number of nearest texts in use, among `vectors_`.
    vectors_ : ndarray of shape (n_texts, n_features), float32
        Fitted vectors of unit length, among which neighbors are searched.
    n_features_in_, feature_names_in_
        Number of features seen during fit, and their names when all are strings.

    Notes
    -----
    Thresholds and p-values are exact to 1e-6 for the pairs counted. ``extrapolate=True``
    assumes that Fisher's z [2]_ of the cosine is a straight line in the logarithm of the rate,
    and fits it where duplicates hardly count. A line that is off by more than 0.1 decades
    raises a ValueError.

    Rates per query are exact for any number of `queries` (conformal prediction [3]_) if these
    are like future queries and no document answers them. If some are answered, the threshold is
    stricter. Without `queries`, the documents stand in for them, which is right if queries are
    like documents. The most similar documents are mostly each other's best, so that a new one
    makes two pass, and a rate needs ``2 / rate - 1`` documents.

    References
    ----------
    .. [1] Conneau et al. (2018), "Word Translation Without Parallel Data", ICLR,
           arXiv:1710.04087, section 2.3.
    .. [2] Fisher (1915), "Frequency Distribution of the Values of the Correlation Coefficient
           in Samples from an Indefinitely Large Population", Biometrika 10 (4).
    .. [3] Vovk, Gammerman & Shafer (2005), "Algorithmic Learning in a Random World", Springer.

    Examples
    --------
    >>> import numpy as np
    >>> from skcalib import SimilarityScale
    >>> X = np.random.default_rng(0).normal(size=(2000, 16))
    >>> scale = SimilarityScale().fit(X)
    >>> threshold = scale.threshold(1e-3)
    >>> bool(scale.p_value(threshold) <= 1e-3), float(scale.surprisal(threshold).round(2))
    (True, 3.0)

    A search by inner product ranks by the corrected similarity:

    >>> products = scale.query_vectors(X[:3]) @ scale.index_vectors(X).T
    >>> corrected = products - scale.neighbor_similarity(X[:3])[:, None] / 2
    >>> np.allclose(corrected[:, 5], scale.corrected(X[:3], X[[5, 5, 5]]))
    True
    """

    calibration: Any = None
    _: KW_ONLY
    n_pairs: int = 10_000_000
    n_neighbors: int | float = 0.05

    _parameter_constraints = {
        "calibration": [HasMethods(["fit", "transform"]), None],
        "n_pairs": [Interval(Integral, 1, None, closed="left")],
        "n_neighbors": [
            Interval(Integral, 1, None, closed="left"),
            Interval(RealNotInt, 0, 1, closed="neither"),
        ],
    }

    # Data of the fit, which no pipeline passes on.
    __metadata_request__fit = {"queries": UNUSED}
    _state_version = 9

    @_fit_context(prefer_skip_nested_validation=True)
    @from_scratch
    def fit(self, X: Any, y: Any = None, *, queries: Any = None) -> Self:
        """Count the similarities of pairs of texts.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Vectors of texts, at least two that differ. Equal vectors count once, as repeated
            texts do, and zero vectors are left out. With a `calibration`, the vectors before
            it.
        y : None
            Ignored.
        queries : array-like of shape (n_queries, n_features), default=None
            Vectors of queries, for pairs of a query and a text of `X`. For ``per="query"`` pass
            queries that no text of `X` answers.

        Returns
        -------
        self : SimilarityScale
        """
        X = self._with_content(X, 2, reset=True)
        if queries is not None:
            queries = self._with_content(queries, 1, reset=False)
        X = distinct_vectors(X)
        if len(X) < 2:
            raise ValueError(
                "SimilarityScale got vectors that are all equal; expected two or more that "
                "differ. Give more texts."
            )
        if self.calibration is None and queries is None:
            warn_if_fitted(X)
        self.calibration_, self._width = None, X.shape[1]
        if self.calibration is not None:
            self.calibration_ = clone(self.calibration).fit(X, None)
            self._width = mapped(self.calibration_, X[:1]).shape[1]
            if queries is None and learns(self.calibration):
                return self._count_left_out(X)
            X = mapped(self.calibration_, X)
            queries = None if queries is None else mapped(self.calibration_, queries)
        rng, n_texts = np.random.default_rng(0), self._n_texts
        drawn = rng.permutation(len(X))
        if queries is None:
            n_rows = n_columns = min(n_texts, len(X))
        else:
            n_rows = min(n_texts, len(queries))
            n_columns = min(max(self.n_pairs // n_rows, 1), len(X))
        is_share = self.n_neighbors < 1
        n_fitted = REFERENCE_TEXTS if is_share else len(X)
        unit = unit_rows(X[drawn[: max(n_fitted, n_columns)]])[0]
        vectors, columns = unit[:n_fitted].astype(np.float32), unit[:n_columns]
        n_neighbors = self.n_neighbors
        if is_share:
            n_neighbors = max(1, round(n_neighbors * len(vectors)))
        self.n_neighbors_ = min(int(n_neighbors), len(vectors) - 1)
        densities = self._density(columns, vectors)
        if queries is None:
            rows, own, corrections = columns, drawn[:n_rows], (densities, densities)
        else:
            rows = unit_rows(queries[rng.permutation(len(queries))[:n_rows]])[0]
            own, corrections = np.full(n_rows, -1), (self._density(rows, vectors), densities)
        pair, corrected = count_pairs(rows, None if queries is None else columns, corrections)
        best = best_of_others(rows.astype(np.float32), own, X, np.arange(len(X)))
        self._in_narrow_cone = float(np.sum(columns.mean(axis=0) ** 2)) > NARROW_CONE
        per_query = PairCounts.of(best, MUTUAL if queries is None else 1)
        self._counts = {"pair": pair, "corrected": corrected, "query": per_query}
        self.n_pairs_, self.n_queries_, self.vectors_ = pair.n, n_rows, vectors
        return self

    def _count_left_out(self, X: np.ndarray) -> Self:
        """Count pairs whose texts were both left out, and each text's best of all others."""
        if len(X) < FOLDS:
            raise ValueError(
                f"SimilarityScale got {len(X)} distinct vectors and a calibration, whose fit "
                f"leaves out two fifths of them; expected {FOLDS} or more, better some hundred."
            )
        drawn = np.random.default_rng(0).permutation(len(X))[: self._n_texts]
        counts, best = [], []
        for one, other, is_first, calibration in left_out(self.calibration, X[drawn]):
            rows, columns = (
                unit_rows(mapped(calibration, X[drawn[fold]]))[0] for fold in (one, other)
            )
            counts += count_pairs(rows, columns)
            if is_first:
                counts += count_pairs(rows)
                queries, documents = rows.astype(np.float32), mapped(calibration, X)
                best.append(best_of_others(queries, drawn[one], documents, np.arange(len(X))))
        pair, per_query = reduce(PairCounts.plus, counts), np.concatenate(best)
        self._counts = {"pair": pair, "query": PairCounts.of(per_query, MUTUAL)}
        self.n_pairs_, self.n_queries_ = pair.n, len(per_query)
        return self

    @property
    def _n_texts(self) -> int:
        """Number of texts that have `n_pairs` pairs."""
        return int(np.sqrt(2 * self.n_pairs)) + 1

    def threshold(
        self,
        false_positive_rate: float = 0.01,
        *,
        per: Literal["pair", "query"] = "pair",
        corrected: bool = False,
        extrapolate: bool = False,
    ) -> float:
        """Similarity that a given share of pairs of unrelated texts reaches.

        Parameters
        ----------
        false_positive_rate : float, default=0.01
            Largest share that may pass, below 1. At least 10 of the counted pairs must pass. A
            rate per query must be at least ``1 / (n_queries_ + 1)``, without `queries` twice
            that.
        per : {"pair", "query"}, default="pair"
            Whether it is the share of pairs that pass, or of queries whose best document
            passes.
        corrected : bool, default=False
            Whether the threshold is for the corrected similarity of pairs.
        extrapolate : bool, default=False
            Whether to estimate rates between 1e-6 and 3e-4 from larger ones, see Notes. Per
            query, rates that are too small to count are estimated by Gumbel's law of maxima.

        Returns
        -------
        similarity : float
            The smallest that keeps the rate. Pairs at least as similar count as related.
        """
        if extrapolate and corrected:
            raise ValueError(
                "Got extrapolate=True and corrected=True; expected cosines. Set "
                "corrected=False."
            )
        rate = check_rate(false_positive_rate, "threshold")
        return threshold_of(self._counted(per, corrected), rate, per, extrapolate=extrapolate)

    def p_value(
        self,
        similarity: ArrayLike,
        *,
        per: Literal["pair", "query"] = "pair",
        corrected: bool = False,
    ) -> np.ndarray:
        """Chance that a pair of unrelated texts is at least as similar.

        Parameters
        ----------
        similarity : array-like of shape (n,)
            Cosines, or corrected similarities.
        per : {"pair", "query"}, default="pair"
            "query" is for the best of all documents.
        corrected : bool, default=False
            Whether they are corrected similarities.

        Returns
        -------
        p : ndarray of shape (n,)
            ``(1 + counted pairs that are at least as similar) / (1 + n_pairs_)``: at most the
            rate for similarities that reach its `threshold`. Per query, without `queries`, the
            first 1 is a 2, see Notes.
        """
        counts = self._counted(per, corrected)
        similarity = np.asarray(unmasked(similarity), dtype=np.float64)
        assert_all_finite(similarity, input_name="similarity")
        largest, kind = (2, "corrected similarities") if corrected else (1, "cosines")
        if (beyond := np.abs(similarity) > largest + ROUNDING).any():
            raise ValueError(
                f"similarity has {similarity[beyond].flat[0]:g}; expected {kind}, from "
                f"{-largest} to {largest}. Compute them from vectors of unit length."
            )
        return counts.p_value(similarity)

    def surprisal(
        self,
        similarity: ArrayLike,
        *,
        per: Literal["pair", "query"] = "pair",
        corrected: bool = False,
    ) -> np.ndarray:
        """Minus the decimal logarithm of the p-value: 3 is one pair in a thousand.

        It is the same unit for all encoders.

        Parameters
        ----------
        similarity : array-like of shape (n,)
            Cosines, or corrected similarities.
        per, corrected
            As for `p_value`.

        Returns
        -------
        surprisal : ndarray of shape (n,)

        Examples
        --------
        >>> import numpy as np
        >>> from skcalib import SimilarityScale
        >>> scale = SimilarityScale().fit(np.random.default_rng(0).normal(size=(1000, 16)))
        >>> scale.surprisal([scale.threshold(1e-3)]).round(2)
        array([3.])
        """
        return -np.log10(self.p_value(similarity, per=per, corrected=corrected))

    def equivalent(
        self,
        similarity: float,
        other: SimilarityScale,
        *,
        per: Literal["pair", "query"] = "pair",
    ) -> float:
        """Cosine that is as rare on this scale as a given one is on another.

        Parameters
        ----------
        similarity : float
            A cosine, such as a threshold in use.
        other : SimilarityScale
            The scale of that cosine, fitted on the same texts by another encoder.
        per : {"pair", "query"}, default="pair"
            Whether pairs that pass, or queries whose best document passes, should be as
            frequent as before.

        Returns
        -------
        similarity : float
            Where fewer than one pair in 3,333 passes, both rates are estimated as by
            ``threshold(extrapolate=True)``.

        Examples
        --------
        >>> import numpy as np
        >>> from skcalib import SimilarityScale
        >>> X = np.random.default_rng(0).normal(size=(1000, 16))
        >>> old, new = SimilarityScale().fit(X + 1), SimilarityScale().fit(X)
        >>> threshold = new.equivalent(0.75, old)
        >>> bool(abs(new.surprisal(threshold) - old.surprisal(0.75)) < 0.01)
        True
        """
        counts, p_value = self._counted(per, False), float(other.p_value(similarity, per=per))
        if per == "pair" and p_value < FITTED_P_VALUES[1]:
            rate = line_of(other._counted(per, False)).p_value(similarity)
            return line_of(counts).threshold(rate)
        if p_value < counts.new / (1 + counts.n):
            raise ValueError(
                f"similarity={similarity!r} has the p-value {p_value:.2g} on the other scale; "
                f"this scale has counted {counts.n:,}, too few for that. Fit it on as many "
                "texts as the other."
            )
        return float(counts.threshold(p_value))

    def to_dict(self) -> dict[str, Any]:
        """Return the p-values as plain lists, for JSON, a server and other languages.

        Returns
        -------
        table : dict
            For "pair" and for "query" the number counted, ``n``, and two lists: ``similarity``,
            ascending, and ``p_value``. The p-value of a cosine is that of the last similarity
            that is not larger (1 below the first); it is at most 2 % too large.

        Examples
        --------
        >>> import bisect, json
        >>> import numpy as np
        >>> from skcalib import SimilarityScale
        >>> X = np.random.default_rng(0).normal(size=(1000, 16))
        >>> scale = SimilarityScale().fit(X)
        >>> table = json.loads(json.dumps(scale.to_dict()))["pair"]
        >>> row = bisect.bisect(table["similarity"], 0.7) - 1
        >>> bool(np.isclose(table["p_value"][row], scale.p_value(0.7), rtol=0.02))
        True
        """
        return {per: self._counted(per, False).table() for per in ("pair", "query")}

    @classmethod
    def from_dict(cls, table: dict[str, Any]) -> Self:
        """Make a scale from a table of `to_dict`.

        Parameters
        ----------
        table : dict
            As returned by `to_dict`, or read back from JSON.

        Returns
        -------
        scale : SimilarityScale
            Without vectors, and so without the corrected similarity.
        """
        scale = cls()
        try:
            counts = {per: PairCounts.from_table(table[per]) for per in ("pair", "query")}
        except (KeyError, TypeError, ValueError, IndexError) as error:
            raise ValueError(
                f"from_dict got a {type(table).__name__} that is not a table of to_dict "
                f"({type(error).__name__}: {error}). Pass what to_dict returned."
            ) from error
        scale._counts = counts
        scale.n_pairs_, scale.n_queries_ = counts["pair"].n, counts["query"].n
        return scale

    def neighbor_similarity(self, X: Any) -> np.ndarray:
        """Mean cosine of each text with the nearest fitted texts.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)

        Returns
        -------
        similarity : ndarray of shape (n_samples,)
        """
        return self._unit_and_r(X)[1]

    def corrected(self, A: Any, B: Any) -> np.ndarray:
        """Corrected similarity of the rows of ``A`` with those of ``B``, pair by pair.

        Parameters
        ----------
        A, B : array-like of shape (n_pairs, n_features)

        Returns
        -------
        similarity : ndarray of shape (n_pairs,)
        """
        check_consistent_length(A, B)
        (a, r_a), (b, r_b) = map(self._unit_and_r, (A, B))
        return np.einsum("ij,ij->i", a, b, dtype=np.float64) - (r_a + r_b) / 2

    def index_vectors(self, X: Any) -> np.ndarray:
        """Vectors ``[x / |x|, -r(x) / 2]`` for an index by inner product.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Vectors of the texts to be found.

        Returns
        -------
        vectors : ndarray of shape (n_samples, n_features + 1)
            The inner product with `query_vectors` of q is the corrected similarity plus
            ``r(q) / 2``, which is the same for all texts found.
        """
        unit, r = self._unit_and_r(X)
        return np.column_stack([unit, (-r / 2).astype(unit.dtype)])

    def query_vectors(self, X: Any) -> np.ndarray:
        """Vectors ``[x / |x|, 1]`` to search an index of `index_vectors` with.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Vectors of the queries.

        Returns
        -------
        vectors : ndarray of shape (n_samples, n_features + 1)
        """
        unit = self._unit(X)
        return np.column_stack([unit, np.ones(len(unit), unit.dtype)])

    def _counted(self, per: str, corrected: bool) -> PairCounts:
        check_is_fitted(self)
        if per not in ("pair", "query") or (corrected and per == "query"):
            raise ValueError(
                f"SimilarityScale got per={per!r} and corrected={corrected!r}; expected "
                "per='pair', or per='query' with corrected=False."
            )
        kind = "corrected" if corrected else per
        if kind not in self._counts:
            raise ValueError(
                "This SimilarityScale was made by from_dict and has no vectors, which the "
                "corrected similarity needs. Pickle the fitted scale instead."
            )
        return self._counts[kind]

    def _unit(self, X: Any) -> np.ndarray:
        self._counted("pair", corrected=True)  # raises if there are no vectors
        X = checked_rows(self, X, reset=False)
        return unit_rows(X)[0].astype(X.dtype)

    def _unit_and_r(self, X: Any) -> tuple[np.ndarray, np.ndarray]:
        unit = self._unit(X)
        if self._in_narrow_cone:
            warn(
                "The fitted vectors lie in a narrow cone, as raw vectors do, and the "
                "correction makes similarities worse. Calibrate the vectors with "
                "Whitening(noise='auto')."
            )
        return unit, self._density(unit, self.vectors_)

    def _density(self, unit: np.ndarray, vectors: np.ndarray) -> np.ndarray:
        """Mean cosine of each row with the nearest of the fitted vectors."""
        return neighbor_similarity(unit.astype(np.float32), vectors, self.n_neighbors_)

    def _with_content(self, X: Any, least: int, *, reset: bool) -> np.ndarray:
        """Check rows; leave out zero vectors, similar to nothing, with a warning."""
        X = checked_rows(self, X, reset=reset, ensure_min_samples=least)
        content = X.any(axis=1)
        if content.sum() < least:
            raise ValueError(
                f"SimilarityScale got {content.sum()} vectors that are not zero; expected "
                f"{least} or more."
            )
        warn_of_silent(~content)
        return X[content] if not content.all() else X
