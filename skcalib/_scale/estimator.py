"""A scale of similarity: how rare a cosine is among pairs of unrelated texts."""

from __future__ import annotations

from numbers import Integral, Real
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike
from sklearn.base import BaseEstimator
from sklearn.utils import assert_all_finite
from sklearn.utils.validation import check_consistent_length, check_is_fitted, validate_data

from skcalib._base import VersionedState, warn
from skcalib._neighbors.search import neighbor_similarity
from skcalib._scale.pairs import FITTED_P_VALUES, PairCounts, count_pairs
from skcalib._sklearn_compat import Interval, RealNotInt, _fit_context
from skcalib._vectors import unit_rows, unmasked

__all__ = ["SimilarityScale"]

# Largest number of fitted texts of which a share are neighbors.
REFERENCE_TEXTS = 10_000
# Pairs that a threshold must let pass for an estimate of its rate.
FEWEST_PAIRS = 10
# What ``extrapolate=True`` needs: the smallest rate that was compared with the observed one on
# real texts, pairs of which 30 are at the lower end of the line, and the error of the line.
LEAST_EXTRAPOLATED, EXTRAPOLATED_PAIRS, LARGEST_ERROR = 1e-6, 100_000, 0.1
# Squared length of the mean of unit vectors above which they are not centered.
NARROW_CONE = 0.2


class SimilarityScale(VersionedState, BaseEstimator):
    """Measure how similar unrelated texts are: thresholds, p-values, a corrected similarity.

    Nearly all pairs of fitted texts are unrelated, so the similarity that one pair in a
    thousand reaches is a threshold that one in a thousand unrelated pairs passes. The rate
    holds only for texts of the same domain; related pairs among the fitted texts make it
    conservative.

    Texts in a dense region are similar to many others. The corrected similarity
    ``cos(a, b) - (r(a) + r(b)) / 2``, where the `neighbor_similarity` r of a text is its mean
    cosine with the nearest fitted ones, is comparable between regions: one threshold fits all
    pairs. Fit on vectors of ``Whitening(noise="auto")``; do not correct raw ones.

    Parameters
    ----------
    n_pairs : int, default=10_000_000
        Pairs to count, those of 4,473 texts drawn at random; if there are fewer, all pairs.
    n_neighbors : int or float, default=0.05
        Number of nearest fitted texts that are a text's neighbors; or, as a float in (0, 1), a
        share of the fitted texts, at most 10,000 of them. Use 10 for matching one to one, such
        as translations.

    Attributes
    ----------
    n_pairs_ : int
        Number of pairs counted.
    n_neighbors_ : int
        Number of nearest texts in use, among `vectors_`.
    vectors_ : ndarray of shape (n_texts, n_features), float32
        Fitted vectors of unit length, among which neighbors are searched.
    n_features_in_, feature_names_in_
        Number of features seen during fit, and their names when all are strings.

    Notes
    -----
    Thresholds and p-values are exact to 1e-6 for the pairs counted. A text that is equal to a
    fitted one does not count it as a neighbor. The correction is that of CSLS [1]_ with a
    share of all texts instead of ten.

    Duplicates among the fitted texts count like all pairs, so they raise the threshold of a
    small rate. With ``extrapolate=True`` Fisher's z [2]_ of the cosine is a straight line in
    the logarithm of the rate, fitted at rates where duplicates hardly count. A line that is off
    by 0.1 decades is refused.

    References
    ----------
    .. [1] Conneau et al. (2018), "Word Translation Without Parallel Data", ICLR,
           arXiv:1710.04087, section 2.3.
    .. [2] Fisher (1915), "Frequency Distribution of the Values of the Correlation Coefficient
           in Samples from an Indefinitely Large Population", Biometrika 10 (4).

    Examples
    --------
    >>> import numpy as np
    >>> from skcalib import SimilarityScale
    >>> X = np.random.default_rng(0).normal(size=(2000, 16))
    >>> scale = SimilarityScale().fit(X)
    >>> scale.p_value([scale.threshold(1e-3)]) <= 1e-3
    array([ True])

    An index by inner product ranks by the corrected similarity:

    >>> products = scale.query_vectors(X[:3]) @ scale.index_vectors(X).T
    >>> corrected = products - scale.neighbor_similarity(X[:3])[:, None] / 2
    >>> np.allclose(corrected[:, 5], scale.corrected(X[:3], X[[5, 5, 5]]))
    True
    """

    _parameter_constraints: dict = {
        "n_pairs": [Interval(Integral, 1, None, closed="left")],
        "n_neighbors": [
            Interval(Integral, 1, None, closed="left"),
            Interval(RealNotInt, 0, 1, closed="neither"),
        ],
    }

    _state_version = 4

    def __init__(self, n_pairs: int = 10_000_000, n_neighbors: int | float = 0.05) -> None:
        self.n_pairs = n_pairs
        self.n_neighbors = n_neighbors

    @_fit_context(prefer_skip_nested_validation=True)
    def fit(self, X: Any, y: Any = None) -> Self:
        """Count the similarities of pairs of texts.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Vectors of distinct texts, at least two.
        y : None
            Ignored.

        Returns
        -------
        self : SimilarityScale
        """
        self.__dict__.pop("vectors_", None)  # an error below leaves nothing half-fitted
        X = validate_data(self, X, dtype=[np.float64, np.float32], ensure_min_samples=2)
        k, n_counted = self.n_neighbors, int(np.sqrt(2 * self.n_pairs)) + 1
        n_fitted = REFERENCE_TEXTS if k < 1 else len(X)
        drawn = np.random.default_rng(0).permutation(len(X))
        unit = unit_rows(X[drawn[: max(n_fitted, n_counted)]])[0]
        vectors = unit[:n_fitted].astype(np.float32)
        if k < 1:
            k = max(1, round(k * len(vectors)))
        self.n_neighbors_ = min(int(k), len(vectors) - 1)
        unit = unit[:n_counted]
        self.n_pairs_ = len(unit) * (len(unit) - 1) // 2
        r = neighbor_similarity(unit.astype(np.float32), vectors, self.n_neighbors_)
        self._counts = count_pairs(unit, [np.zeros(len(unit)), r])
        self._in_narrow_cone = float(np.sum(unit.mean(axis=0) ** 2)) > NARROW_CONE
        self.vectors_ = vectors
        return self

    def threshold(
        self,
        false_positive_rate: float = 0.01,
        *,
        corrected: bool = False,
        extrapolate: bool = False,
    ) -> float:
        """Similarity that a given share of pairs of unrelated texts reaches.

        Parameters
        ----------
        false_positive_rate : float, default=0.01
            Largest share of such pairs that may pass, below 1. A rate so small that fewer than
            10 of the counted pairs would pass raises a ValueError.
        corrected : bool, default=False
            Whether the threshold is for the corrected similarity.
        extrapolate : bool, default=False
            Whether to estimate rates from 3e-4 to 1e-6 from those at 3e-3 to 3e-4, so that
            duplicates among the fitted texts hardly raise the threshold: see Notes.

        Returns
        -------
        similarity : float
            The smallest that keeps the rate. Pairs at least as similar count as related.
        """
        counts = self._counted(corrected)
        rate = checked_rate(false_positive_rate)
        if extrapolate and rate < FITTED_P_VALUES[1]:
            return self._extrapolated(counts, rate, corrected)
        least = FEWEST_PAIRS / self.n_pairs_
        if rate < least:
            told = "no rate"
            if least < 1:  # rounded up, so that it is accepted
                digits = 10.0 ** (1 - np.floor(np.log10(least)))
                told = f"rates from {np.ceil(least * digits) / digits:.2g} to 1"
            raise ValueError(
                f"threshold got false_positive_rate={false_positive_rate!r}; {self.n_pairs_:,} "
                f"pairs are enough for {told}. Set extrapolate=True, or fit a SimilarityScale "
                "on more texts: 1e-5 needs 1,415, and more than 4,473 need more n_pairs."
            )
        return float(counts.threshold(rate))

    def _extrapolated(self, counts: PairCounts, rate: float, corrected: bool) -> float:
        if corrected:
            raise ValueError("extrapolate=True needs cosines. Set corrected=False.")
        if rate < LEAST_EXTRAPOLATED or self.n_pairs_ < EXTRAPOLATED_PAIRS:
            raise ValueError(
                f"threshold got false_positive_rate={rate:g} and extrapolate=True with "
                f"{self.n_pairs_:,} pairs; it needs {EXTRAPOLATED_PAIRS:,}, of 448 texts, and "
                f"a rate of at least {LEAST_EXTRAPOLATED:g}. Fit on more texts, or ask for a "
                "larger rate."
            )
        similarity, error = counts.extrapolated(rate)
        if error > LARGEST_ERROR:
            raise ValueError(
                f"No threshold for {rate:g} can be estimated from the fitted pairs: the line "
                f"through their rates from 3e-3 to 3e-4 is off by {error:.2g} decades, as when "
                "one text in ten has many copies. Fit on texts of the same kind without "
                "duplicates."
            )
        return similarity

    def p_value(self, similarity: ArrayLike, *, corrected: bool = False) -> np.ndarray:
        """Chance that a pair of unrelated texts is at least as similar.

        Parameters
        ----------
        similarity : array-like of shape (n,)
            Cosines, or corrected similarities.
        corrected : bool, default=False
            Whether they are corrected similarities.

        Returns
        -------
        p : ndarray of shape (n,)
            ``(1 + counted pairs that are at least as similar) / (1 + n_pairs_)``: at most the
            rate for similarities from its `threshold` up.
        """
        counts = self._counted(corrected)
        similarity = np.asarray(unmasked(similarity), dtype=np.float64)
        assert_all_finite(similarity, input_name="similarity")
        return counts.p_value(similarity)

    def neighbor_similarity(self, X: Any) -> np.ndarray:
        """Mean cosine of each text with the nearest fitted ones.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Vectors.

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
            Vectors.

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

    def _counted(self, corrected: bool) -> PairCounts:
        check_is_fitted(self)
        return self._counts[bool(corrected)]

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "vectors_")

    def _unit(self, X: Any) -> np.ndarray:
        check_is_fitted(self)
        X = validate_data(self, X, dtype=[np.float64, np.float32], reset=False)
        return unit_rows(X)[0].astype(X.dtype)

    def _unit_and_r(self, X: Any) -> tuple[np.ndarray, np.ndarray]:
        unit = self._unit(X)
        if self._in_narrow_cone:
            warn(
                "The fitted vectors lie in a narrow cone, as raw ones do: the correction makes "
                "them worse. Calibrate them by Whitening(noise='auto')."
            )
        return unit, neighbor_similarity(
            unit.astype(np.float32), self.vectors_, self.n_neighbors_
        )


def checked_rate(given: Any) -> float:
    """Return a rate as a float; raise a ValueError for what is none."""
    if not isinstance(given, Real) or not 0 < float(given) < 1:
        raise ValueError(
            f"threshold got false_positive_rate={given!r}; it expects a number above 0 and "
            "below 1, such as 0.01 for 1 %."
        )
    return float(given)
