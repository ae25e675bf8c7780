"""SpaceAligner: vectors of one model as vectors of another."""

from typing import Any, Self

import numpy as np
from scipy.stats import rankdata
from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin
from sklearn.linear_model import Ridge, RidgeCV
from sklearn.model_selection import KFold, cross_val_predict
from sklearn.utils.validation import check_consistent_length, check_is_fitted

from skcalib.base import FloatTransformer, VersionedState, from_scratch, warn
from skcalib.calibration.map import LinearMap
from skcalib.calibration.moments import check_size
from skcalib.inputs.vectors import (
    check_vectors,
    checked_rows,
    first_of_equal,
    unit_rows,
    warn_of_lengths,
    warn_of_silent,
)

# Penalties, as multiples of the mean eigenvalue of the scatter.
PENALTIES = 10.0 ** np.arange(-4, 2.01, 0.5)
# Variances below this lose digits, or are 0.
TINY = np.finfo(np.float64).tiny / np.finfo(np.float64).eps
LEAST = 6  # pairs of a fit
# With fewer, results may get much worse, and neither neighbors nor the width show whether.
FEW = 500
TEXTS = 2000  # whose neighbors are compared, at most
NEAREST = 0.01  # share of the texts that are neighbors: ten of a thousand


class SpaceAligner(
    ClassNamePrefixFeaturesOutMixin, FloatTransformer, VersionedState, BaseEstimator
):
    """Translate vectors of one model into the space of another, by pairs of both.

    Fit it on the vectors of the same texts by two models: `X` of the one to translate from, `y`
    of the one to translate to. As the last step after a new model it sends queries into an old
    index; on stored vectors of an old model it moves an old index into the new space. The map
    is that of scikit-learn's ``RidgeCV``. Both models may have any width.

    Attributes
    ----------
    kept_ : float
        Share of a text's nearest texts by `y` that stay when its vector is translated, for
        texts that were left out, see Notes.
    alpha_ : float
        Penalty in use.
    n_pairs_ : int
        Number of distinct pairs with content.
    linear_ : LinearMap
        With ``mean``, ``projection`` and ``bias``.
    n_features_in_, feature_names_in_
        Number of features seen during fit, and their names when all are strings.

    See Also
    --------
    SimilarityScale.equivalent : Move a threshold from one model to another.
    skcalib.monitoring.provenance : Which model stored vectors come from.

    Notes
    -----
    The output is in the space of `y`, but its vectors are not of unit length: compare them by
    cosine, or add scikit-learn's ``Normalizer()`` as a last step before an index by inner
    product. Pass vectors as they are stored, and in the same form to `fit` and `transform`: all
    of unit length, or none.

    For `kept_`, each half of the pairs is translated by a fit on the other half. Of up to 2,000
    texts, the nearest hundredth by cosine count, at least one. With all pairs more stay, by .06
    on average with a hundred pairs and .02 with a thousand. It holds for texts like those of
    the pairs: after a fit on a few topics, it says nothing of others. Pass one of several
    near-copies.

    Neighbors do not show how much worse results get; the number of pairs does, also for narrow
    vectors. With fewer than 500, 66 % of fits (of MiniLM and e5 on six sets) lost
    more than a point of R-precision to the old model, up to 33, and `fit` warns. With 500
    or more, 21 % did, up to 3.5; with 1,000 or more, up to 1.9.

    Pairs that are repeated count once, and those with a zero vector are left out, as of texts
    without content.

    Examples
    --------
    >>> import numpy as np
    >>> from skcalib import SpaceAligner
    >>> rng = np.random.default_rng(0)
    >>> meaning = rng.normal(size=(600, 5))
    >>> new = meaning @ rng.normal(size=(5, 12)) + 1
    >>> old = meaning @ rng.normal(size=(5, 8)) + 2
    >>> aligner = SpaceAligner().fit(new[:500], old[:500])
    >>> np.allclose(aligner.transform(new[500:]), old[500:], atol=0.01)
    True
    >>> aligner.kept_ > 0.9
    True
    """

    _parameter_constraints: dict[str, Any] = {}
    _state_version = 4

    @from_scratch
    def fit(self, X: Any, y: Any = None) -> Self:
        """Learn the map from pairs.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Vectors of texts by the model to translate from, in an array or a memory map.
        y : array-like of shape (n_samples, n_features_out)
            Vectors of the same texts, in the same order, by the model to translate to.

        Returns
        -------
        self : SpaceAligner

        Raises
        ------
        ValueError
            If `X` and `y` differ in length, have fewer than six distinct pairs, or one of them
            does not vary.

        Warns
        -----
        UserWarning
            If the pairs do not belong together, or are fewer than 500.
        """
        X = checked_rows(self, X, reset=True, ensure_min_samples=LEAST)
        if y is None:
            raise ValueError(
                "SpaceAligner requires y to be passed, but the target y is None. Pass the "
                "vectors of the same texts by the model to translate to."
            )
        Y = check_vectors(y, name="y", dtype=[np.float64, np.float32], ensure_2d=False)
        Y = Y[:, None] if Y.ndim == 1 else Y
        check_consistent_length(X, Y)
        check_size(X.shape[1])
        X, Y = _distinct(X, Y)
        with np.errstate(over="ignore"):
            variance, spread = X.var(axis=0), (Y**2).sum() * (X**2).sum()
        if not np.isfinite(spread):
            raise ValueError("The products of X and y overflow float64. Scale them down.")
        if not variance.max() > TINY:
            raise ValueError("The squares of X underflow float64. Scale X to about 1.")
        ridge = RidgeCV(PENALTIES * len(X) * variance.mean()).fit(X, Y)
        self.kept_ = _left_out(X, Y, ridge.alpha_)
        if len(X) < FEW:
            warn(
                f"{len(X)} pairs do not show what is lost: of fits on fewer than {FEW}, two of "
                "three lost more than a point of R-precision, up to 33. Pass 1,000 pairs or "
                "more, or encode all texts with one model."
            )
        self.alpha_, self.n_pairs_ = float(ridge.alpha_), len(X)
        self._mean_square = float((X**2).sum(axis=1).mean())
        W = ridge.coef_.reshape(Y.shape[1], -1).T
        self.linear_ = LinearMap(X.mean(axis=0), W, Y.mean(axis=0))
        return self

    def transform(self, X: Any) -> np.ndarray:
        """Translate vectors.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Of the model to translate from. Pass a large memory map in blocks.

        Returns
        -------
        X_new : ndarray of shape (n_samples, n_features_out)
            float32 for float32 input and float64 otherwise. Compare them by cosine with vectors
            of the other model.
        """
        check_is_fitted(self)
        X = checked_rows(self, X, reset=False)
        warn_of_lengths(X, self._mean_square)
        return self.linear_.apply(X)

    def linear_map(self) -> LinearMap:
        """Return the map that `transform` applies.

        Returns
        -------
        linear : LinearMap
            With ``mean``, ``projection`` and ``bias``.
        """
        check_is_fitted(self)
        return self.linear_

    @property
    def _n_features_out(self) -> int:
        return len(self.linear_.bias)

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "linear_")

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.required = True
        tags.target_tags.multi_output = True
        tags.target_tags.single_output = False
        return tags


def _distinct(X: np.ndarray, Y: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return distinct pairs with content in float64; refuse too few, and vectors all equal."""
    content = X.any(axis=1) & (Y.any(axis=1) | (Y.shape[1] == 1))
    warn_of_silent(~content)
    X, Y = X[content].astype(np.float64), Y[content].astype(np.float64)
    # With a constant, rows of one direction have one length. Copies differ by rounding.
    scaled = [np.ones((len(X), 1))]
    for A in (X, Y) if len(X) else ():
        centered = A - A.mean(axis=0)
        scaled.append(centered / (np.abs(centered).max() or 1.0))
    rows = first_of_equal(np.hstack(scaled))
    X, Y = X[rows], Y[rows]
    if len(X) < LEAST:
        raise ValueError(
            f"Got {len(X)} distinct pairs with content; expected {LEAST} or more, better "
            "1,000. Pass the vectors of more texts."
        )
    for name, vectors in (("X", X), ("y", Y)):
        if (vectors == vectors[0]).all():
            raise ValueError(
                f"All {len(X)} vectors of {name} are equal: there is nothing to translate. "
                "Pass vectors of different texts."
            )
    return X, Y


def _left_out(X: np.ndarray, Y: np.ndarray, alpha: float) -> float:
    """Translate each half by a fit on the other; return the share of neighbors that stay.

    Warn if a text's own vector is hardly nearer than those of other texts.
    """
    halves = KFold(2, shuffle=True, random_state=0)
    moved = cross_val_predict(Ridge(alpha / 2), X, Y, cv=halves).reshape(Y.shape)
    some = np.random.default_rng(0).permutation(len(Y))[:TEXTS]
    moved, stored = unit_rows(moved[some])[0], unit_rows(Y[some])[0]
    cosines = moved @ stored.T
    # A rank among others is uniform, with a variance of 1/12, if a pair is drawn at random.
    nearer = rankdata(cosines, axis=1).diagonal() - 1
    share, n = float(nearer.mean() / (len(some) - 1)), len(some)
    if share < 0.5 + 4 / np.sqrt(12 * n):
        warn(
            "The pairs do not belong together, or are too few: a translated vector is hardly "
            f"nearer to its own vector in y than to those of other texts ({100 * share:.0f} % "
            "of these are farther; 50 % by chance). Check that X and y have the same texts in "
            "the same order."
        )
    k = max(1, round(NEAREST * n))
    return float((_nearest(cosines, k) & _nearest(stored @ stored.T, k)).sum() / (k * n))


def _nearest(cosines: np.ndarray, k: int) -> np.ndarray:
    """Mask of the k largest entries of each row, which are not its own."""
    np.fill_diagonal(cosines, -np.inf)
    mask = np.zeros(cosines.shape, bool)
    np.put_along_axis(mask, np.argpartition(-cosines, k - 1, axis=1)[:, :k], True, axis=1)
    return mask
