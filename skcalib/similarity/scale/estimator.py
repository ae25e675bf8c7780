"""A scale of similarity: how rare a cosine is among pairs of unrelated texts."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass
from functools import reduce
from numbers import Integral
from typing import Any, Literal, Self

import numpy as np
from numpy.typing import ArrayLike
from sklearn.base import BaseEstimator, clone
from sklearn.utils.metadata_routing import UNUSED
from sklearn.utils.validation import check_is_fitted

from skcalib.base import VersionedState, from_scratch
from skcalib.compat import (
    HasMethods,
    Interval,
    _fit_context,
    check_rate,
)
from skcalib.cosines import best_of_others
from skcalib.inputs.vectors import (
    check_finite,
    checked_rows,
    distinct_vectors,
    unit_rows,
    unmasked,
    warn_of_silent,
)
from skcalib.similarity.scale.left_out import FOLDS, learns, left_out, mapped, warn_if_fitted
from skcalib.similarity.scale.pairs import FITTED_P_VALUES, PairCounts, count_pairs
from skcalib.similarity.scale.rates import line_of, threshold_of

# A new stored text that passes makes two pass: itself, and its nearest text.
MUTUAL = 2
ROUNDING = 1e-5  # of a cosine in float32


@dataclass(eq=False, repr=False)
class SimilarityScale(VersionedState, BaseEstimator):
    """Measure how similar unrelated texts are: thresholds and p-values.

    Nearly all pairs of fitted texts are unrelated. So a similarity that one in a thousand of
    them reaches is reached by one in a thousand unrelated pairs of the same domain. A rate is
    per pair or, with ``per="query"``, per query without an answer, whose best pair counts.

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

    Attributes
    ----------
    calibration_ : transformer or None
        The calibration, fitted on all texts.
    n_pairs_ : int
        Number of pairs counted.
    n_queries_ : int
        Number of queries whose best document was counted.
    n_features_in_, feature_names_in_
        Number of features seen during fit, and their names when all are strings.

    Notes
    -----
    Thresholds and p-values are exact to 1e-6 for the pairs counted. ``extrapolate=True``
    assumes that Fisher's z [1]_ of the cosine is a straight line in the logarithm of the rate,
    and fits it at rates where duplicates hardly matter. A line that is off by more than 0.1
    decades raises a ValueError.

    Rates per query are exact for any number of `queries` (conformal prediction [2]_) if these
    are like future queries and no document answers them. If some are answered, the threshold is
    stricter. Without `queries`, the documents stand in for them, which is right if queries are
    like documents. The most similar documents are often each other's best, so that a new one
    makes two pass, and a rate needs ``2 / rate - 1`` documents.

    References
    ----------
    .. [1] Fisher (1915), "Frequency Distribution of the Values of the Correlation Coefficient
           in Samples from an Indefinitely Large Population", Biometrika 10 (4).
    .. [2] Vovk, Gammerman & Shafer (2005), "Algorithmic Learning in a Random World", Springer.

    Examples
    --------
    >>> import numpy as np
    >>> from skcalib import SimilarityScale
    >>> X = np.random.default_rng(0).normal(size=(2000, 16))
    >>> scale = SimilarityScale().fit(X)
    >>> threshold = scale.threshold(1e-3)
    >>> bool(scale.p_value(threshold) <= 1e-3), float(scale.surprisal(threshold).round(2))
    (True, 3.0)
    """

    calibration: Any = None
    _: KW_ONLY
    n_pairs: int = 10_000_000

    _parameter_constraints = {
        "calibration": [HasMethods(["fit", "transform"]), None],
        "n_pairs": [Interval(Integral, 1, None, closed="left")],
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
            Vectors of queries, for pairs of a query and a text of `X`; equal ones count once.
            For ``per="query"`` pass queries that no text of `X` answers.

        Returns
        -------
        self : SimilarityScale
        """
        X = self._with_content(X, 2, reset=True)
        if queries is not None:
            queries = distinct_vectors(self._with_content(queries, 1, reset=False))
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
        columns = unit_rows(X[drawn[:n_columns]])[0]
        if queries is None:
            rows, own, pair = columns, drawn[:n_rows], count_pairs(columns)
        else:
            rows = unit_rows(queries[rng.permutation(len(queries))[:n_rows]])[0]
            own, pair = np.full(n_rows, -1), count_pairs(rows, columns)
        best = best_of_others(rows.astype(np.float32), own, X, np.arange(len(X)))
        per_query = PairCounts.of(best, MUTUAL if queries is None else 1)
        self._counts = {"pair": pair, "query": per_query}
        self.n_pairs_, self.n_queries_ = pair.n, n_rows
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
            counts.append(count_pairs(rows, columns))
            if is_first:
                counts += [count_pairs(rows)] if len(rows) > 1 else []
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
        extrapolate : bool, default=False
            Whether to estimate rates between 1e-6 and 3e-4 from larger ones, see Notes. Per
            query, rates that are too small to count are estimated by Gumbel's law of maxima.

        Returns
        -------
        similarity : float
            The smallest that keeps the rate. Pairs at least as similar count as related.
        """
        rate = check_rate(false_positive_rate, "threshold")
        return threshold_of(self._counted(per), rate, per, extrapolate=extrapolate)

    def p_value(
        self,
        similarity: ArrayLike,
        *,
        per: Literal["pair", "query"] = "pair",
    ) -> np.ndarray:
        """Chance that a pair of unrelated texts is at least as similar.

        Parameters
        ----------
        similarity : array-like of shape (n,)
            Cosines.
        per : {"pair", "query"}, default="pair"
            "query" is for the best of all documents.

        Returns
        -------
        p : ndarray of shape (n,)
            ``(1 + counted pairs that are at least as similar) / (1 + n_pairs_)``: at most the
            rate for similarities that reach its `threshold`. Per query, without `queries`, the
            first 1 is a 2, see Notes.
        """
        counts = self._counted(per)
        similarity = np.asarray(unmasked(similarity), dtype=np.float64)
        check_finite(similarity, "similarity")
        if (beyond := np.abs(similarity) > 1 + ROUNDING).any():
            raise ValueError(
                f"similarity has {similarity[beyond].flat[0]:g}; expected cosines, from -1 to "
                "1. Compute them from vectors of unit length."
            )
        return counts.p_value(similarity)

    def surprisal(
        self,
        similarity: ArrayLike,
        *,
        per: Literal["pair", "query"] = "pair",
    ) -> np.ndarray:
        """Minus the decimal logarithm of the p-value: 3 is one pair in a thousand.

        It is the same unit for all encoders.

        Parameters
        ----------
        similarity : array-like of shape (n,)
            Cosines.
        per
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
        return -np.log10(self.p_value(similarity, per=per))

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
        counts, p_value = self._counted(per), float(other.p_value(similarity, per=per))
        if per == "pair" and p_value < FITTED_P_VALUES[1]:
            rate = line_of(other._counted(per)).p_value(similarity)
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
        return {per: self._counted(per).table() for per in ("pair", "query")}

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

    def _counted(self, per: str) -> PairCounts:
        check_is_fitted(self)
        if per not in ("pair", "query"):
            raise ValueError(
                f"SimilarityScale got per={per!r}; expected per='pair' or per='query'."
            )
        return self._counts[per]

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
