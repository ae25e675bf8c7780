"""Mahalanobis distances from a fit."""

from typing import Any

import numpy as np

from skcalib.calibration.map import LinearMap
from skcalib.calibration.moments import Moments
from skcalib.calibration.whitening import Whitening
from skcalib.inputs.vectors import checked_rows


def mahalanobis(whitening: Whitening, X: Any) -> Any:
    """Squared Mahalanobis distance from the mean of a fit; its average there is about the rank.

    Parameters
    ----------
    whitening : Whitening
        Fitted.
    X : array-like of shape (n_samples, n_features)
        Vectors, as for its `transform`.

    Returns
    -------
    distance : ndarray of shape (n_samples,), float64
        ``Σ_i ((x - mean_) u_i)² / Λ_i`` over all axes, regardless of `power` and `noise`. The
        axes that `n_components` drops share their mean eigenvalue. Vectors of the fit are
        nearer than others: for a threshold, take a quantile of vectors that were left out.

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
    check_whitening(whitening)
    X = checked_rows(whitening, X, reset=False)
    return squared_lengths(X, mahalanobis_map(whitening))


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


def squared_lengths(X: np.ndarray, linear: LinearMap) -> np.ndarray:
    """Squared lengths of mapped rows, in float64: float32 overflows for far vectors."""
    Z = linear.apply(X).astype(np.float64)
    return (Z * Z).sum(axis=1)


def mahalanobis_map(whitening: Whitening) -> LinearMap:
    """Map whose output has the squared Mahalanobis distance as its squared length.

    The axes that a whitening drops share their mean eigenvalue, so that what lies outside the
    kept space counts as well. With their own eigenvalues, sampling error would hide it.
    """
    variance, basis = whitening.moments_.spectrum
    shrinkage, kept = whitening.shrinkage_, len(whitening.components_)
    eigenvalues = (1 - shrinkage) * variance + shrinkage * variance.mean()
    eigenvalues = eigenvalues[: whitening.rank_]
    if (dropped := eigenvalues[kept:]).size:
        dropped[:] = dropped.mean()
    W = basis[:, : whitening.rank_] / np.sqrt(eigenvalues)
    return LinearMap(whitening.mean_, W, np.zeros(whitening.rank_))


def mean_length(moments: Moments, linear: LinearMap) -> float:
    """Mean squared length of mapped rows, by their moments about the map's mean."""
    W = linear.projection
    return float(np.sum((moments.scatter @ W) * W) / moments.n)
