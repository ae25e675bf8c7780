"""Vectors that differ from those of a fit: single ones by distance, samples by a test."""

from dataclasses import dataclass, replace
from functools import reduce
from typing import Any

import numpy as np
from scipy.sparse import csr_array
from scipy.stats import rankdata

from skcalib.calibration.map import AffineMap
from skcalib.calibration.moments import Moments
from skcalib.calibration.whitening.estimator import Whitening
from skcalib.calibration.whitening.solver import WhiteningMap, solve
from skcalib.compat import check_rate
from skcalib.inputs.vectors import (
    device_of_float64,
    digests,
    distinct_vectors,
    is_dask,
    rows_of,
)
from skcalib.process.dask import as_floats, dask_reduce
from skcalib.statistics.conformal import threshold_of

# Folds that stand in for new vectors if there is no formula for leaving one out.
FOLDS = 10
SPLITS = 999  # at random, so that the least p-value is 0.001
# Standard errors, along the widest axis, by which a mean is farther from zero than on average
# only by a chance of exp(-5² / 2) (the concentration of a Gaussian vector's length).
CERTAIN = 5


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
        mean or Mahalanobis distance. If nothing has changed, it is below a rate in at most this
        share of cases, for any distribution of independent samples, also if each was copied any
        number of times. Near-copies, and halves of pairs or of chapters, are not independent,
        and differ by more.
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

    It is a quantile of the distances of the fitted vectors, each after a fit without it and its
    copies: by a formula if all axes are kept without shrinkage, else in ten folds. If vectors
    repeat, it is the larger one of the quantiles of all vectors and of the distinct ones.
    Near-copies are not recognized, and more new vectors exceed it then.

    Parameters
    ----------
    whitening : Whitening
        Fitted.
    X : array-like or dask array of shape (n_samples, n_features)
        All vectors of the fit. (For new ones, take a quantile of `mahalanobis`.)
    false_positive_rate : float, default=0.01
        Share of new vectors of the same kind that may exceed it, at least
        ``1 / (n_distinct_samples + 1)``.

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
    distances, first = held_out_distances(whitening, X)
    n_alone = np.isposinf(distances[first]).sum()
    hint = f" {n_alone} of them span an axis alone: set noise='auto'." if n_alone else ""
    kind = "distinct fitted vectors"
    return max(
        threshold_of(sample, rate, kind, hint) for sample in (distances[first], distances)
    )


def shift(whitening: Whitening, X: Any, fitted: Any) -> Shift:
    """Measure how far a sample of new vectors lies from those of a fit.

    `Whitening.recentered` corrects a mean that has moved.

    Parameters
    ----------
    whitening : Whitening
        Fitted.
    X : array-like or dask array of shape (n_samples, n_features)
        New vectors, two different ones or more, as the encoder returns them.
    fitted : array-like or dask array of shape (n_fitted, n_features)
        Vectors of the fit, or some thousand of them drawn at random.

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
    The p-value is that of a permutation test with 999 random splits, so that it is 0.001 at
    least. Its statistic is the smaller one of the p-values of the distance of the means and of
    the difference in mean Mahalanobis distance by the covariance of all vectors (Westfall and
    Young's min-P [1]_). If vectors repeat, it is the larger one of those of all vectors and of
    the distinct ones. `X` and `fitted` are held in memory.

    References
    ----------
    .. [1] Westfall & Young (1993), "Resampling-Based Multiple Testing", Wiley.

    Examples
    --------
    >>> import numpy as np
    >>> from skcalib import Whitening
    >>> from skcalib.inspection import shift
    >>> X = np.random.default_rng(0).normal(size=(2000, 4))
    >>> old, new = X[:1000], X[1000:]
    >>> whitening = Whitening().fit(old)
    >>> shift(whitening, new, old).is_shifted, shift(whitening, new + 1, old).is_shifted
    (False, True)
    """
    linear, X = _checked(whitening, X)
    X, fitted = _gathered(X), _gathered(rows_of(whitening, fitted, reset=False))
    old, new = whitening.moments_, Moments.of(X)
    samples = [fitted, X], [distinct_vectors(rows) for rows in (fitted, X)]
    n_distinct = len(samples[1][1])
    if n_distinct < 2:
        raise ValueError(
            f"shift got n_samples={len(X)}, {n_distinct} of them different; expected two "
            "different ones or more, better a few hundred. If the texts differ, the encoder "
            "gives all of them one vector."
        )
    chance, delta = 1 / old.n + 1 / new.n, new.mean - old.mean
    _refuse_mapped(old, linear, new, chance)
    repeats = len(samples[1][0]) + n_distinct < len(fitted) + len(X)
    p_value = max(p_of_no_change(*rows) for rows in samples[: 1 + repeats])
    affine = mahalanobis_map(linear).affine
    square = delta @ delta / np.trace(old.covariance()) - chance
    about_old = replace(new, scatter=new.scatter + new.n * np.outer(delta, delta))
    ratio = _mean_length(about_old, affine) / _mean_length(old, affine)
    return Shift(float(np.sqrt(max(square, 0.0))), float(ratio), p_value)


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


def held_out_distances(whitening: Whitening, X: Any) -> tuple[np.ndarray, np.ndarray]:
    """Distance of each fitted row after a fit on others, and places of the rows that differ.

    Its copies are left out as well. It is infinite if the others do not span it.
    """
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
    _, first, row, copies = np.unique(_digests(X), True, True, True)
    if linear.kept >= linear.rank and linear.regularized.shrinkage == 0:
        # Without a row c and its copies, k in all, the covariance is (n - 1) / (n - k - 1)
        # times this, minus a multiple of c cᵀ; the mean moves by k c / (n - k).
        k = copies[row]
        left, free = np.maximum(n - k, 1), np.maximum(n - k - 1, 1)
        own *= free / (n - 1)
        taken = k * n / (left * free) * own
        rest = np.where((taken < 1 - 1e-9) & (n - k > 1), 1 - taken, 0.0)
        with np.errstate(divide="ignore"):
            return (n / left) ** 2 * own / rest, first
    folds = [np.flatnonzero(row % FOLDS == fold) for fold in range(min(FOLDS, len(first)))]
    parts = [Moments.of(X[rows]) for rows in folds]
    for fold, rows in enumerate(folds):
        others = reduce(Moments.merge, parts[:fold] + parts[fold + 1 :])
        without = mahalanobis_map(solve(others, **whitening.parameters_))
        own[rows] = _gathered(squared_lengths(X[rows], without.affine))
    return own, first


def _digests(X: Any) -> np.ndarray:
    """Return what equal rows share; a dask array is not gathered."""
    if is_dask(X):
        return dask_reduce(lambda rows: digests(as_floats(rows) + 0.0), _joined, X)
    return digests(_gathered(X) + 0.0)  # no negative zeros


def _joined(*parts: np.ndarray) -> np.ndarray:
    return np.concatenate(parts)


def p_of_no_change(old: np.ndarray, new: np.ndarray) -> float:
    """Share of random splits of all rows whose parts differ as much as these."""
    n_old, n = len(old), len(old) + len(new)
    both = np.vstack([old, new], dtype=np.float64)
    moments = Moments.of(both)
    distances = squared_lengths(both, solve(moments, shrinkage="auto").affine)
    columns = np.column_stack([both - moments.mean, distances - distances.mean()])
    part = np.arange(n_old, n) if len(new) < n_old else np.arange(n_old)
    rng = np.random.default_rng(0)
    drawn = (rng.choice(n, len(part), replace=False, shuffle=False) for _ in range(SPLITS))
    chosen = np.concatenate([part, *drawn])
    starts = np.arange(0, len(chosen) + 1, len(part))
    splits = csr_array((np.ones(len(chosen)), chosen, starts), shape=(1 + SPLITS, n))
    sums = splits @ columns
    # Of one part, whose size is fixed, the difference to the other grows with them.
    statistics = np.column_stack([(sums[:, :-1] ** 2).sum(axis=1), np.abs(sums[:, -1])])
    least = rankdata(-statistics, method="max", axis=0).min(axis=1)
    return float(np.mean(least <= least[0]))


def _refuse_mapped(old: Moments, linear: WhiteningMap, new: Moments, chance: float) -> None:
    """Raise a ValueError if rows have the mean and the axes of this whitening's output."""
    W, kept = linear.affine.projection, linear.affine.bias
    if W.shape[1] != len(W) or not new.scatter.any():
        return

    def is_zero(mean: np.ndarray, sample: Moments) -> bool:
        variance = chance * sample.spectrum[0]
        most = np.sqrt(variance.sum()) + CERTAIN * np.sqrt(variance[0])
        return bool(np.linalg.norm(mean) <= most)

    if is_zero(old.mean, old):
        return
    mean = new.mean
    if kept.any():  # a share of the mean, whose length a later scaling may have changed
        mean = mean - kept * (mean @ kept / (kept @ kept))
    if is_zero(mean, new):
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
