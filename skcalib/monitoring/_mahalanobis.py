"""Mahalanobis distances from a fit."""

from dataclasses import replace
from typing import Any

import numpy as np

from skcalib.calibration.map import AffineMap
from skcalib.calibration.moments import Moments
from skcalib.calibration.whitening.estimator import Whitening
from skcalib.calibration.whitening.solver import WhiteningMap
from skcalib.inputs.vectors import device_of_float64, rows_of


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
        that `transform` returns. Vectors of the fit are nearer than others: for a threshold,
        take a quantile of vectors that were left out.

    Raises
    ------
    TypeError
        If `whitening` is no `Whitening`.

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


def map_and_rows(whitening: Whitening, X: Any) -> tuple[WhiteningMap, Any]:
    """Return the map of a fitted whitening by axes, and checked rows."""
    check_whitening(whitening)
    return whitening.map_, rows_of(whitening, X, reset=False)


def check_whitening(whitening: Any) -> None:
    """Raise an error unless this is a fitted `Whitening`; warn if it was fitted on few rows."""
    if not isinstance(whitening, Whitening):
        kind = whitening if isinstance(whitening, type) else type(whitening)
        raise TypeError(
            f"Got a {kind.__name__}; expected a fitted Whitening, and vectors before it. Of a "
            "pipeline of an encoder and a Whitening pass pipeline[-1], and vectors of "
            "pipeline[:-1].transform(texts)."
        )
    whitening.linear_map()


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
