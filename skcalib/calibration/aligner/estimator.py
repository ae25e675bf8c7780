"""SpaceAligner: vectors of one model as vectors of another."""

from dataclasses import dataclass
from numbers import Integral
from typing import Any, Self

import numpy as np
from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin
from sklearn.utils.validation import check_consistent_length, check_is_fitted

from skcalib.base import FloatTransformer, VersionedState, from_scratch, warn
from skcalib.calibration.aligner.ridge import HeldOut, Ridge, held_out
from skcalib.calibration.map import AffineMap
from skcalib.calibration.moments import check_size
from skcalib.compat import Interval, _fit_context
from skcalib.inputs.vectors import check_vectors, checked_rows, warn_of_lengths, warn_of_silent

ENOUGH = 0.5  # share of neighbors kept below which `fit` warns
LEAST = 3  # pairs of a fit
FEW = 400  # pairs below which a learning curve shows little
MOST_MORE = 10  # times the pairs, beyond which a learning curve is not extrapolated


@dataclass(eq=False, repr=False)
class SpaceAligner(
    ClassNamePrefixFeaturesOutMixin, FloatTransformer, VersionedState, BaseEstimator
):
    """Translate vectors of one model into the space of another, by pairs of both.

    Fit it on the vectors of the same texts by two models: `X` of the one to translate from, `y`
    of the one to translate to. As the last step after a new model it sends queries into an old
    index; on stored vectors of an old model it moves an old index into the new space. The map,
    ``x -> (x - x_mean_) coef_ + y_mean_``, is a ridge regression, whose penalty has the least
    leave-one-out error, scaled so that translated vectors vary as much as those of `y`. Both
    models may have any width.

    Where texts form groups, such as intents or topics, 1,600 pairs keep the scores within a
    point. Where the same thing must be found again, 3,000 may be too few: see `kept_`.

    Parameters
    ----------
    n_components : int or None, default=None
        Rank of the map; None for the full rank, which keeps the most neighbors.

    Attributes
    ----------
    kept_ : float
        Share of a new text's ten nearest texts among a thousand that stay when its vector is
        translated, estimated from pairs that were left out, see Notes. `fit` warns below 0.5.
    alpha_ : float
        Penalty in use.
    n_pairs_ : int
        Number of distinct pairs with content.
    coef_ : ndarray of shape (n_features, n_features_out)
    x_mean_ : ndarray of shape (n_features,)
        Mean of `X`.
    y_mean_ : ndarray of shape (n_features_out,)
        Mean of `y`.
    n_features_in_, feature_names_in_
        Number of features seen during fit, and their names when all are strings.

    See Also
    --------
    SimilarityScale.equivalent : Move a threshold from one model to another.
    skcalib.monitoring.provenance : Which model stored vectors come from.

    Notes
    -----
    The output is in the space of `y`, with its mean and its total variance, but its vectors are
    not of unit length: compare them by cosine, or add scikit-learn's ``Normalizer()`` as a last
    step before an index by inner product. Pass vectors as they are stored, and in the same form
    to `fit` and `transform`: all of unit length, or none.

    Predictions of a regression vary less than what they predict, especially along the axes of
    `y` that are hard to predict, which distinguish near texts. With the variances v of `y`
    along its axes, and those p of predictions for pairs that were left out, ``coef_`` is that
    of the regression times ``(v / p)^(1/4)`` along each axis, and one factor for all, which
    makes the total variances equal. The full ratio keeps hardly more neighbors, and loses more
    of what a regression gains on groups.

    `kept_` compares neighbors by cosine among 1,000 of the fitted texts, evenly spaced, each
    predicted by the fit without it and without the text that it is compared with, in closed
    form. Of n texts, if there are fewer, the n / 100 nearest count, at least one. It is
    cautious with few pairs: up to .2 below the truth with a hundred, .1 with 300, and within a
    few points from 1,000 on; with 20 it may be twice the truth. In a larger index the ten
    nearest are closer to each other, so fewer of them stay. Pass one of several near-copies:
    with 300 pairs, of which half are copies of the others, it was .8 where .3 stay, and the
    penalty was too small.

    The number of pairs that keep half is extrapolated from the gain of all pairs over half of
    them, as if a multiple of ``1 / sqrt(n)`` were missing to a limit. From 400 pairs on, it was
    right within a factor of two in all eight cases in which half were kept later.

    Pairs that are repeated count once, and those with a zero vector are left out, as of texts
    without content.

    References
    ----------
    .. [1] Golub, Heath & Wahba (1979), "Generalized Cross-Validation as a Method for Choosing a
           Good Ridge Parameter", Technometrics 21(2).
    .. [2] Mukherjee & Zhu (2011), "Reduced Rank Ridge Regression and Its Kernel Extensions",
           Statistical Analysis and Data Mining 4(6).

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

    n_components: int | None = None

    _parameter_constraints = {
        "n_components": [Interval(Integral, 1, None, closed="left"), None],
    }
    _state_version = 2

    @_fit_context(prefer_skip_nested_validation=True)
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
            If `X` and `y` differ in length, have fewer than three distinct pairs, or one of
            them does not vary.

        Warns
        -----
        UserWarning
            If the pairs do not belong together, or if `kept_` is below 0.5; then it says how
            many pairs would help.
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
        if self.n_components is not None and self.n_components > Y.shape[1]:
            raise ValueError(
                f"n_components={self.n_components} exceeds the {Y.shape[1]} columns of y. Give "
                "an int up to that, or None for the full rank."
            )
        check_size(X.shape[1])
        X, Y = _distinct(X, Y)
        ridge = Ridge.fit(X, Y, self.n_components)
        held = held_out(ridge, X, Y)
        _warn_of_loss(held, X, Y, self.n_components)
        self.kept_, self.alpha_, self.n_pairs_ = held.kept, ridge.alpha, len(X)
        self._mean_square = float(np.sum(ridge.variance) + ridge.x_mean @ ridge.x_mean)
        self.linear_ = ridge.linear
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

    def linear_map(self) -> AffineMap:
        """Return the map that `transform` applies.

        Returns
        -------
        linear : AffineMap
            With ``mean``, ``projection`` (`coef_`) and ``bias`` (`y_mean_`).
        """
        check_is_fitted(self)
        return self.linear_

    @property
    def coef_(self) -> np.ndarray:
        """Weights, of shape (n_features, n_features_out)."""
        return self.linear_.projection

    @property
    def x_mean_(self) -> np.ndarray:
        """Mean of the vectors to translate from."""
        return self.linear_.mean

    @property
    def y_mean_(self) -> np.ndarray:
        """Mean of the vectors to translate to."""
        return self.linear_.bias

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
    """Return distinct pairs with content; refuse too few, and vectors that are all equal."""
    content = X.any(axis=1) & (Y.any(axis=1) | (Y.shape[1] == 1))
    warn_of_silent(~content)
    first = {X[i].tobytes() + Y[i].tobytes(): i for i in reversed(np.flatnonzero(content))}
    rows = np.sort([*first.values()])
    if len(rows) < LEAST:
        raise ValueError(
            f"Got {len(rows)} distinct pairs with content; expected {LEAST} or more, better "
            "1,000. Pass the vectors of more texts."
        )
    if len(rows) < len(X):
        X, Y = X[rows], Y[rows]
    for name, vectors in (("X", X), ("y", Y)):
        if (vectors == vectors[0]).all():
            raise ValueError(
                f"All {len(rows)} vectors of {name} are equal: there is nothing to translate. "
                "Pass vectors of different texts."
            )
    return X, Y


def _warn_of_loss(
    held: HeldOut, X: np.ndarray, Y: np.ndarray, n_components: int | None
) -> None:
    """Warn if pairs do not belong together, or if too few neighbors stay."""
    n = len(X)
    # A rank among others is uniform, with a variance of 1/12, if a pair is drawn at random.
    if held.matched < 0.5 + 4 / np.sqrt(12 * held.n):
        few = f", or {n} pairs are too few" if n < FEW else ""
        warn(
            f"The pairs do not belong together{few}: a translated vector is hardly nearer to "
            f"its own vector in y than to those of other texts ({100 * held.matched:.0f} % of "
            "these are farther; 50 % by chance). Check that X and y have the same texts in the "
            "same order."
        )
        return
    if held.kept >= ENOUGH:
        return
    warn(
        f"Of a text's nearest neighbors {100 * held.kept:.0f} % stay when its vector is "
        f"translated (kept_), estimated from {n:,} pairs. {_hope(held, X, Y, n_components)}"
    )


def _hope(held: HeldOut, X: np.ndarray, Y: np.ndarray, n_components: int | None) -> str:
    """Say how many pairs would help, by the gain from half of them to all."""
    n = len(X)
    if n < FEW:
        return "It may be too low with so few. Pass 1,000 pairs."
    halves = [(X[i::2], Y[i::2]) for i in range(2)]
    before = np.mean([held_out(Ridge.fit(*h, n_components), *h).kept for h in halves])
    # What is kept lacks a limit by about a multiple of 1 / √n: √2 times as much with half of
    # the pairs.
    lack = max(held.kept - before, 0) / (np.sqrt(2) - 1)
    over = held.kept + lack - ENOUGH  # of the limit
    if over <= 0 or (times := (lack / over) ** 2) > MOST_MORE:
        expected = f"{MOST_MORE} times as many will not do: encode the texts with one model"
    else:
        place = 10 ** (len(f"{times * n:.0f}") - 2)  # two digits
        expected = f"half takes about {int(np.ceil(times * n / place) * place):,}"
    return f"By the gain from {n // 2:,} pairs to {n:,}, {expected}."
