"""Vectors that differ from those of a fit: single ones by distance, samples by a test."""

from dataclasses import dataclass, replace
from functools import reduce
from typing import Any

import numpy as np

from skcalib.calibration.covariance.linear_map import AffineMap
from skcalib.calibration.covariance.moments import Moments
from skcalib.calibration.whitening.estimator import Whitening
from skcalib.calibration.whitening.solver import WhiteningMap, solve
from skcalib.utils.conformal import threshold_of
from skcalib.utils.sklearn_compat import check_rate
from skcalib.utils.vectors import device_of_float64, rows_of

# Folds that stand in for new vectors if there is no formula for leaving one out.
FOLDS = 10
# A p-value below which chance is ruled out, so that a call may be refused.
CERTAIN = 1e-6


@dataclass(frozen=True)
class Shift:
    """How far a sample of new vectors lies from those that a whitening was fitted on.

    Parameters
    ----------
    mean_distance : float
        Distance of the means in standard deviations: the root of the squared distance over the
        trace of the fitted covariance, minus what chance adds, ``1 / n_fitted + 1 / n_new``.
    mahalanobis_ratio : float
        Mean squared Mahalanobis distance of the new samples over that of the fitted ones. It is
        above 1 even for samples of the same kind, about ``n / (n - d)``.
    p_value : float
        Share of random splits of all samples, fitted and new, whose parts differ as much in
        mean or Mahalanobis distance. It is uniform if nothing has changed and samples are
        independent; halves of pairs, or of chapters, are not, and differ by more.
    """

    mean_distance: float
    mahalanobis_ratio: float
    p_value: float

    @property
    def is_shifted(self) -> bool:
        """Whether `p_value` is below 0.01; `mean_distance` measures the size of the shift."""
        return self.p_value < 0.01


def mahalanobis(whitening: Whitening, X: Any) -> Any:
    """Squared Mahalanobis distance from the mean of a fit; its average there is about the rank.

    Parameters
    ----------
    whitening : Whitening
        Fitted.
    X : array-like or dask array of shape (n_samples, n_features)
        Vectors, as for its `transform`.

    Returns
    -------
    distance : ndarray of shape (n_samples,), float64
        ``Σ_i ((x - mean_) u_i)² / Λ_i`` over all axes, regardless of `power` and `noise`. The
        axes that `n_components` drops share their mean eigenvalue. The array is of the kind
        that `transform` returns.

    Examples
    --------
    >>> import numpy as np
    >>> from skcalib import Whitening
    >>> from skcalib.inspection import mahalanobis
    >>> X = np.random.default_rng(0).normal(size=(1000, 4))
    >>> mahalanobis(Whitening().fit(X), [[9.0, 9.0, 9.0, 9.0]]) > 100
    array([ True])
    """
    linear, X = _checked(whitening, X)
    return squared_lengths(X, mahalanobis_map(linear).affine)


def mahalanobis_threshold(
    whitening: Whitening, X: Any, false_positive_rate: float = 0.01
) -> float:
    """Squared Mahalanobis distance that a given share of new vectors exceeds.

    It is a quantile of the distances of the fitted vectors, each after a fit without it: by a
    formula if all axes are kept, else in ten folds.

    Parameters
    ----------
    whitening : Whitening
        Fitted.
    X : array-like or dask array of shape (n_samples, n_features)
        All vectors of the fit. (For new ones, take a quantile of `mahalanobis`.)
    false_positive_rate : float, default=0.01
        Share of new vectors of the same kind that may exceed it, at least
        ``1 / (n_samples + 1)``.

    Returns
    -------
    threshold : float

    Raises
    ------
    ValueError
        If `X` are other vectors than those of the fit, or too few for the rate.

    Examples
    --------
    >>> import numpy as np
    >>> from skcalib import Whitening
    >>> from skcalib.inspection import mahalanobis, mahalanobis_threshold
    >>> X = np.random.default_rng(0).normal(size=(3000, 50))
    >>> whitening = Whitening().fit(X[:500])
    >>> threshold = mahalanobis_threshold(whitening, X[:500], 0.05)
    >>> float(np.mean(mahalanobis(whitening, X[500:]) > threshold).round(2))
    0.05
    """
    rate = check_rate(false_positive_rate, "mahalanobis_threshold")
    distances = held_out_distances(whitening, X)
    n_alone = np.isposinf(distances).sum()
    hint = f" {n_alone} of them span an axis alone: set noise='auto'." if n_alone else ""
    return threshold_of(distances, rate, "fitted vectors", hint)


def shift(whitening: Whitening, X: Any) -> Shift:
    """Measure how far a sample of new vectors lies from those of a fit.

    `Whitening.recentered` corrects a mean that has moved.

    Parameters
    ----------
    whitening : Whitening
        Fitted.
    X : array-like or dask array of shape (n_samples, n_features)
        New vectors, two or more, as the encoder returns them.

    Returns
    -------
    shift : Shift
        With ``mean_distance``, in standard deviations; ``mahalanobis_ratio``, of the new to the
        fitted samples; ``p_value``, of no change; and the verdict ``is_shifted``.

    Raises
    ------
    ValueError
        If `X` are vectors that this whitening has mapped.

    Notes
    -----
    The p-value is Šidák's, of the smaller of two: of the distance of the means, by a gamma
    distribution with its moments over random splits [1]_, and of the mean Mahalanobis distance,
    by the covariance of all vectors and Student's t.

    References
    ----------
    .. [1] Himeno & Yamada (2014), "Estimations for some functions of covariance matrix in high
           dimension under non-normality and its applications", Journal of Multivariate Analysis
           130.

    Examples
    --------
    >>> import numpy as np
    >>> from skcalib import Whitening
    >>> from skcalib.inspection import shift
    >>> X = np.random.default_rng(0).normal(size=(2000, 4))
    >>> whitening = Whitening().fit(X[:1000])
    >>> shift(whitening, X[1000:]).is_shifted, shift(whitening, X[1000:] + 1).is_shifted
    (False, True)
    """
    linear, X = _checked(whitening, X)
    old, new = whitening.moments_, Moments.of(X)
    if new.n < 2:
        raise ValueError(
            f"shift got n_samples={new.n}; expected two or more, better a few hundred."
        )
    chance, delta = 1 / old.n + 1 / new.n, new.mean - old.mean
    both = old.merge(new)
    of_means = p_of_means(delta, chance, both)
    _refuse_mapped(old, linear, new, chance)
    least = min(of_means, p_of_distances(X, new, both))
    p_value = least * (2 - least)  # 1 - (1 - least)², without its rounding
    affine = mahalanobis_map(linear).affine
    square = delta @ delta / np.trace(old.covariance()) - chance
    about_old = replace(new, scatter=new.scatter + new.n * np.outer(delta, delta))
    ratio = _mean_length(about_old, affine) / _mean_length(old, affine)
    return Shift(float(np.sqrt(max(square, 0.0))), float(ratio), float(p_value))


def _checked(whitening: Whitening, X: Any) -> tuple[WhiteningMap, Any]:
    """Return the map of a fitted whitening by axes, and checked rows."""
    whitening.linear_map()  # raises, or warns, if it was fitted on too few samples
    return whitening.map_, rows_of(whitening, X, reset=False)


def squared_lengths(X: Any, linear: AffineMap) -> Any:
    """Squared lengths of mapped rows, in float64: float32 overflows for far vectors."""
    Z = _as_float64(linear.apply(X))
    return (Z * Z).sum(axis=1)


def mahalanobis_map(linear: WhiteningMap) -> WhiteningMap:
    """Map whose output has the squared Mahalanobis distance as its squared length.

    The dropped axes share their mean eigenvalue, so that what lies outside the kept space
    counts as well. With their own eigenvalues, sampling error would hide it.
    """
    linear = linear.determined()
    eigenvalues = linear.regularized.eigenvalues.copy()
    if (dropped := eigenvalues[linear.kept :]).size:
        dropped[:] = dropped.mean()
    exact = replace(
        linear.regularized, eigenvalues=eigenvalues, power=1.0, noise=0.0, centering=1.0
    )
    return replace(linear, regularized=exact, n_components=linear.rank, method="pca")


def held_out_distances(whitening: Whitening, X: Any) -> np.ndarray:
    """Distance of each fitted row after a fit on others; infinite if they do not span it."""
    (linear, X), moments = _checked(whitening, X), whitening.moments_
    n, affine = moments.n, mahalanobis_map(linear).affine
    own = _gathered(squared_lengths(X, affine))
    expected = _mean_length(moments, affine)
    if len(own) != n or not np.isclose(own.mean(), expected, rtol=1e-3):
        raise ValueError(
            f"mahalanobis_threshold got {len(own)} vectors at a mean distance of "
            f"{own.mean():.4g}; expected the {n:.10g} of the fit, at {expected:.4g}. For new "
            "vectors, take a quantile of mahalanobis(whitening, X)."
        )
    if linear.kept >= linear.rank:
        # Without row c, the covariance is (n - 1) / (n - 2) times this, minus a multiple of
        # c cᵀ; the mean moves by c / (n - 1).
        own *= (n - 2) / (n - 1)
        taken = (1 - linear.regularized.shrinkage) * n / ((n - 1) * (n - 2)) * own
        left = np.where(taken < 1 - 1e-9, 1 - taken, 0.0)
        with np.errstate(divide="ignore"):
            return (n / (n - 1)) ** 2 * own / left
    folds = [slice(k, None, FOLDS) for k in range(min(FOLDS, len(own)))]
    parts = [Moments.of(X[rows]) for rows in folds]
    for k, rows in enumerate(folds):
        others = reduce(Moments.merge, parts[:k] + parts[k + 1 :])
        without = mahalanobis_map(solve(others, **whitening.parameters_))
        own[rows] = _gathered(squared_lengths(X[rows], without.affine))
    return own


def p_of_means(delta: np.ndarray, chance: float, both: Moments) -> float:
    """Share of random splits of a sample whose means differ by as much as ``delta``.

    The squared difference over ``chance``, the sum of 1 / n of the parts, is about a weighted
    sum of χ², the weights being the eigenvalues of the covariance S: mean tr S, variance
    2 tr S², third moment 8 tr S³. A gamma distribution has these three.
    """
    from scipy.stats import gamma

    n, S = max(both.n, 4), both.covariance()
    trace, squares = np.trace(S), np.sum(S * S)
    # Unbiased for tr Σ², whatever the distribution (Himeno & Yamada).
    unbiased = (n - 1) * (n - 2) * squares + trace**2 - n * both.quartic / (n - 1)
    unbiased *= (n - 1) / (n * (n - 2) * (n - 3))
    deviation = np.sqrt(2 * max(unbiased, squares / n))
    shape = 4 / (8 * np.sum((S @ S) * S) / deviation**3) ** 2
    z = (delta @ delta / chance - trace) / deviation
    return float(gamma.sf(shape + z * np.sqrt(shape), shape))


def p_of_distances(X: Any, new: Moments, both: Moments) -> float:
    """Share of random splits whose part differs as much in mean Mahalanobis distance."""
    from scipy.stats import t

    affine = solve(both, shrinkage="auto").affine
    distances = _gathered(squared_lengths(X, affine))
    error = np.sqrt(distances.var(ddof=1) / new.n * (both.n - new.n) / (both.n - 1))
    error = max(error, 1e-9 * distances.mean())  # all are equal in fewer rows than axes
    difference = distances.mean() - _mean_length(both, affine)
    return float(2 * t.sf(abs(difference) / error, new.n - 1))


def _refuse_mapped(old: Moments, linear: WhiteningMap, new: Moments, chance: float) -> None:
    """Raise a ValueError if rows have the mean and the axes of this whitening's output."""
    W, kept = linear.affine.projection, linear.affine.bias
    if W.shape[1] != len(W) or not new.scatter.any():
        return
    if p_of_means(old.mean, chance, old) > CERTAIN:
        return
    mean = new.mean
    if kept.any():  # a share of the mean, whose length a later scaling may have changed
        mean = mean - kept * (mean @ kept / (kept @ kept))
    if p_of_means(mean, chance, new) > CERTAIN:
        outputs, inputs = W.T @ old.scatter @ W, old.scatter
        likeness = [np.sum(new.scatter * S) / np.linalg.norm(S) for S in (outputs, inputs)]
        if likeness[0] > 1.1 * likeness[1]:
            raise ValueError(
                "shift got vectors with the mean and the axes of this whitening's output: they "
                "are calibrated already. Pass the vectors that the encoder returns."
            )


def _mean_length(moments: Moments, affine: AffineMap) -> float:
    """Mean squared length of mapped rows, by their moments about the map's mean."""
    W = affine.projection
    return float(np.sum((moments.scatter @ W) * W) / moments.n)


def _gathered(values: Any) -> np.ndarray:
    """Return an array of any library in memory."""
    return np.array(values.cpu() if hasattr(values, "cpu") else values)


def _as_float64(array: Any) -> Any:
    """Return the array in float64, on the CPU if its device has none."""
    if hasattr(array, "astype"):
        return array.astype(np.float64)
    return array.to(device_of_float64(array.device)).double()  # of torch
