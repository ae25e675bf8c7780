"""Mahalanobis distances from a fit, and the one that a share of new vectors exceeds."""

from dataclasses import replace
from functools import reduce
from typing import Any

import numpy as np

from skcalib.calibration.map import AffineMap
from skcalib.calibration.moments import Moments
from skcalib.calibration.whitening.estimator import Whitening
from skcalib.calibration.whitening.solver import WhiteningMap, solve
from skcalib.compat import check_rate
from skcalib.inputs.containers import is_dask
from skcalib.inputs.vectors import device_of_float64, digests, rows_of
from skcalib.process.dask import as_floats, dask_reduce
from skcalib.statistics.conformal import threshold_of

# Folds that stand in for new vectors if there is no formula for leaving one out.
FOLDS = 10


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
    >>> from skcalib.monitoring import mahalanobis
    >>> X = np.random.default_rng(0).normal(size=(1000, 4))
    >>> mahalanobis(Whitening().fit(X), [[9.0, 9.0, 9.0, 9.0]]) > 100
    array([ True])
    """
    linear, X = map_and_rows(whitening, X)
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
    >>> from skcalib.monitoring import mahalanobis, mahalanobis_threshold
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


def map_and_rows(whitening: Whitening, X: Any) -> tuple[WhiteningMap, Any]:
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
    (linear, X), moments = map_and_rows(whitening, X), whitening.moments_
    n, affine = moments.n, mahalanobis_map(linear).affine
    own = gathered(squared_lengths(X, affine))
    expected = mean_length(moments, affine)
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
        own[rows] = gathered(squared_lengths(X[rows], without.affine))
    return own, first


def _digests(X: Any) -> np.ndarray:
    """Return what equal rows share; a dask array is not gathered."""
    if is_dask(X):
        return dask_reduce(lambda rows: digests(as_floats(rows) + 0.0), _joined, X)
    return digests(gathered(X) + 0.0)  # no negative zeros


def _joined(*parts: np.ndarray) -> np.ndarray:
    return np.concatenate(parts)


def mean_length(moments: Moments, affine: AffineMap) -> float:
    """Mean squared length of mapped rows, by their moments about the map's mean."""
    W = affine.projection
    return float(np.sum((moments.scatter @ W) * W) / moments.n)


def gathered(values: Any) -> np.ndarray:
    """Return an array of any library in memory."""
    return np.array(values.cpu() if hasattr(values, "cpu") else values)


def _as_float64(array: Any) -> Any:
    """Return the array in float64, on the CPU if its device has none."""
    if hasattr(array, "astype"):
        return array.astype(np.float64)
    return array.to(device_of_float64(array.device)).double()  # of torch
