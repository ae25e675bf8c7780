"""One scale of similarity: what a cosine means among the texts at hand."""

from __future__ import annotations

import warnings
from numbers import Integral, Real
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike
from sklearn.base import BaseEstimator
from sklearn.utils import assert_all_finite
from sklearn.utils.validation import check_consistent_length, check_is_fitted, validate_data

from skcalib._base import VersionedState
from skcalib._neighbors.search import density, unit_float32
from skcalib._scale.pairs import PairCounts, count_pairs, n_rows_used
from skcalib._sklearn_compat import Interval, RealNotInt, _fit_context
from skcalib.metrics import unit_rows

__all__ = ["SimilarityScale"]

# Fitted texts among which a share of nearest ones is looked for.
REFERENCE_TEXTS = 10_000
# Pairs that a threshold must let pass for their number to be more than chance.
FEWEST_PAIRS = 10
# Mean cosine from which vectors are not centred, and the correction harms.
NARROW_CONE = 0.2


class SimilarityScale(VersionedState, BaseEstimator):
    """Tell how similar unrelated texts are: thresholds, p-values, and a corrected similarity.

    Nearly all pairs of fitted texts are unrelated. A threshold of the cosine that one pair in
    a thousand reaches lets one in a thousand unrelated pairs pass; the rate is promised for
    texts of the same domain, and is conservative by the share of related pairs among them.

    Texts in a dense region are similar to many others. The corrected similarity
    ``cos(a, b) - (density(a) + density(b)) / 2``, where the density is the mean cosine of a
    text with the nearest fitted ones, is comparable between regions, so that one threshold
    serves all pairs. Fit it on calibrated vectors, of ``Whitening(noise="auto")``: on raw ones
    the correction harms.

    Parameters
    ----------
    n_pairs : int, default=10_000_000
        About how many pairs to count, of texts drawn at random; of few texts all pairs.
    n_neighbors : int or float, default=0.05
        Fitted texts that make a density: a number of nearest ones, or as a float in (0, 1) a
        share of them, estimated on at most 10,000 texts. Few, such as 10, for one-to-one
        matching such as of translations; 1 never.

    Attributes
    ----------
    n_pairs_ : int
        Number of pairs counted.
    mean_cosine_ : float
        Their mean cosine.
    n_neighbors_ : int
        Number of nearest texts in use, among `vectors_`.
    vectors_ : ndarray of shape (n_texts, n_features), float32
        Fitted vectors of unit length, among which densities are looked for.
    n_features_in_ : int
        Number of features seen during fit.
    feature_names_in_ : ndarray of shape (n_features,)
        Names of features seen during fit, when all are strings.

    Notes
    -----
    Thresholds and p-values are exact to 1e-6 in cosine for the pairs counted. A text that is
    equal to a fitted one does not count it in its density.

    The correction is the half of CSLS [1]_ that subtracts means of neighbours, with a share of
    all texts in place of the nearest ten.

    References
    ----------
    .. [1] Conneau et al. (2018), "Word Translation Without Parallel Data", ICLR,
           arXiv:1710.04087, section 2.3.

    Examples
    --------
    >>> import numpy as np
    >>> from skcalib import SimilarityScale
    >>> X = np.random.default_rng(0).normal(size=(2000, 16))
    >>> scale = SimilarityScale().fit(X)
    >>> threshold = scale.threshold(1e-3)
    >>> scale.p_value([threshold]) <= 1e-3
    array([ True])

    An index by inner product ranks by the corrected similarity:

    >>> index, queries = scale.index_vectors(X), scale.query_vectors(X[:3])
    >>> (queries @ index.T).argmax(axis=1)
    array([0, 1, 2])
    """

    _parameter_constraints: dict = {
        "n_pairs": [Interval(Integral, 1, None, closed="left")],
        "n_neighbors": [
            Interval(Integral, 1, None, closed="left"),
            Interval(RealNotInt, 0, 1, closed="neither"),
        ],
    }

    def __init__(self, n_pairs: int = 10_000_000, n_neighbors: int | float = 0.05) -> None:
        self.n_pairs = n_pairs
        self.n_neighbors = n_neighbors

    @_fit_context(prefer_skip_nested_validation=True)
    def fit(self, X: Any, y: Any = None) -> Self:
        """Count the similarities of pairs of texts.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Vectors of distinct texts, two at least.
        y : None
            Ignored.

        Returns
        -------
        self : SimilarityScale
            The fitted estimator.
        """
        self.__dict__.pop("vectors_", None)  # an error below leaves nothing half-fitted
        X = validate_data(self, X, dtype=[np.float64, np.float32], ensure_min_samples=2)
        unit = unit_float32(np.random.default_rng(0).permutation(X))
        share = self.n_neighbors if isinstance(self.n_neighbors, float) else None
        reference = unit if share is None else unit[:REFERENCE_TEXTS].copy()
        k = self.n_neighbors if share is None else max(1, round(share * len(reference)))
        self.n_neighbors_ = min(int(k), len(reference) - 1)
        unit = unit[: n_rows_used(len(unit), self.n_pairs)]
        half_density = density(unit, reference, self.n_neighbors_) / 2
        self._cosine, self._corrected = count_pairs(unit, half_density, self.n_pairs)
        self.n_pairs_ = int(self._cosine.at_least()[0])
        self.mean_cosine_ = self._cosine.mean()
        self.vectors_ = reference
        return self

    def threshold(self, false_positive_rate: float = 0.01, *, corrected: bool = False) -> float:
        """Similarity that a given share of pairs of unrelated texts reaches.

        Parameters
        ----------
        false_positive_rate : float, default=0.01
            Largest share of such pairs that may pass, in (0, 1).
        corrected : bool, default=False
            Whether of the corrected similarity, in place of the cosine.

        Returns
        -------
        similarity : float
            The smallest that keeps the rate: related are pairs at least as similar.

        Raises
        ------
        ValueError
            If the rate is out of its range, or so small that too few pairs tell it.
        """
        counts = self._counts(corrected)
        given: Any = false_positive_rate  # perhaps no number
        rate = float(given) if isinstance(given, Real) else np.nan
        if not 0 < rate < 1:
            raise ValueError(
                f"threshold got false_positive_rate={given!r}; it takes a number between 0 and "
                "1, such as 0.01."
            )
        if rate * self.n_pairs_ < FEWEST_PAIRS:
            needed = FEWEST_PAIRS / rate
            raise ValueError(
                f"threshold got false_positive_rate={rate:g}, of which {self.n_pairs_:,} pairs "
                f"tell nothing; it takes {FEWEST_PAIRS / self.n_pairs_:.1g} or more. For this "
                f"one fit on {np.sqrt(2 * needed) + 1:,.0f} texts or more, with n_pairs="
                f"{needed:,.0f} or more."
            )
        return counts.threshold(rate)

    def p_value(self, similarity: ArrayLike, *, corrected: bool = False) -> np.ndarray:
        """Chance that a pair of unrelated texts is at least as similar.

        Parameters
        ----------
        similarity : array-like of shape (n,)
            Cosines, or corrected similarities.
        corrected : bool, default=False
            Which of them.

        Returns
        -------
        p : ndarray of shape (n,)
            ``(1 + pairs counted that are at least as similar) / (1 + n_pairs_)``; at most the
            rate for similarities from `threshold` of it on.
        """
        similarity = np.asarray(similarity, dtype=np.float64)
        assert_all_finite(similarity, input_name="similarity")
        return self._counts(corrected).p_value(similarity)

    def density(self, X: Any) -> np.ndarray:
        """Mean cosine of each text with the nearest fitted ones.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Vectors.

        Returns
        -------
        density : ndarray of shape (n_samples,)
        """
        return self._unit_and_density(X)[1]

    def corrected(self, A: Any, B: Any) -> np.ndarray:
        """Corrected similarity of the rows of ``A`` with those of ``B``, pair by pair.

        Parameters
        ----------
        A, B : array-like of shape (n_pairs, n_features)
            Vectors.

        Returns
        -------
        similarity : ndarray of shape (n_pairs,)
            ``cos(a, b) - (density(a) + density(b)) / 2``.
        """
        check_consistent_length(A, B)
        (a, density_a), (b, density_b) = map(self._unit_and_density, (A, B))
        return np.einsum("ij,ij->i", a, b, dtype=np.float64) - (density_a + density_b) / 2

    def index_vectors(self, X: Any) -> np.ndarray:
        """Vectors for an index by inner product, one coordinate more than `X` has.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Vectors of the texts to be found.

        Returns
        -------
        vectors : ndarray of shape (n_samples, n_features + 1)
            ``[x / |x|, -density(x) / 2]``. The inner product with `query_vectors` of q is the
            corrected similarity plus ``density(q) / 2``, which is the same for all texts found.
        """
        unit, density = self._unit_and_density(X)
        return np.column_stack([unit, (-density / 2).astype(unit.dtype)])

    def query_vectors(self, X: Any) -> np.ndarray:
        """Vectors to search an index of `index_vectors` with.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Vectors of the queries.

        Returns
        -------
        vectors : ndarray of shape (n_samples, n_features + 1)
            ``[x / |x|, 1]``.
        """
        unit = self._unit(X)
        return np.column_stack([unit, np.ones(len(unit), unit.dtype)])

    def _unit(self, X: Any) -> np.ndarray:
        check_is_fitted(self)
        X = validate_data(self, X, dtype=[np.float64, np.float32], reset=False)
        return unit_rows(X)[0].astype(X.dtype)

    def _unit_and_density(self, X: Any) -> tuple[np.ndarray, np.ndarray]:
        unit = self._unit(X)
        if self.mean_cosine_ > NARROW_CONE:
            warnings.warn(
                f"The mean cosine of the fitted vectors is {self.mean_cosine_:.2f}, as of raw "
                "ones, for which the correction harms. Calibrate by Whitening(noise='auto').",
                UserWarning,
                stacklevel=3,
            )
        return unit, density(unit.astype(np.float32), self.vectors_, self.n_neighbors_)

    def _counts(self, corrected: bool) -> PairCounts:
        check_is_fitted(self)
        return self._corrected if corrected else self._cosine
