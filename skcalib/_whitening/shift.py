"""How far new samples lie from those that a whitening was fitted on."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from skcalib._covariance.moments import Moments
from skcalib._whitening.linear_map import WhiteningMap

__all__ = ["Shift", "mahalanobis_map", "shift_between"]


@dataclass(frozen=True)
class Shift:
    """How far a sample of new vectors lies from those that a whitening was fitted on.

    Parameters
    ----------
    mean_distance : float
        Distance of the means in standard deviations: the root of its square over the trace of
        the fitted covariance, minus what chance adds, ``1 / n_fitted + 1 / n_new``.
    mahalanobis_ratio : float
        Mean squared Mahalanobis distance of the new samples over that of the fitted ones. It
        is above 1 for samples of the same kind too, by about ``n / (n - d)``.
    """

    mean_distance: float
    mahalanobis_ratio: float

    @property
    def is_shifted(self) -> bool:
        """Whether the means lie 0.15 standard deviations apart, or more.

        Halves of STS-B by genre are 0.29 to 0.57 apart, with two encoders and in four
        languages; random halves are at most 0.03.
        """
        return self.mean_distance >= 0.15


def mahalanobis_map(linear: WhiteningMap) -> WhiteningMap:
    """Map whose output has the squared Mahalanobis distance as its squared length.

    The dropped axes share their mean eigenvalue, so that what lies outside the kept space
    counts as well. With their own eigenvalues, sampling error would hide it.
    """
    eigenvalues = linear.regularized.eigenvalues.copy()
    if (dropped := eigenvalues[linear.kept :]).size:
        dropped[:] = dropped.mean()
    exact = replace(linear.regularized, eigenvalues=eigenvalues, power=1.0, noise=0.0)
    return replace(linear, regularized=exact, n_components=linear.rank, method="pca")


def shift_between(linear: WhiteningMap, fitted: Moments, new: Moments) -> Shift:
    """Measure how far new samples lie from fitted ones, by the moments of both."""
    if new.n < 2:
        raise ValueError(
            f"shift got n_samples={new.n}; it needs two or more, better a few hundred."
        )
    W = mahalanobis_map(linear).affine.projection
    delta = new.mean - fitted.mean
    scatter = np.sum((new.scatter @ W) * W) / new.n  # of new samples about their own mean
    expected = np.sum((fitted.scatter @ W) * W) / fitted.n
    total = np.trace(fitted.covariance())
    square = delta @ delta / total - 1 / fitted.n - 1 / new.n
    return Shift(
        mean_distance=float(np.sqrt(max(square, 0.0))),
        mahalanobis_ratio=float((scatter + np.sum((delta @ W) ** 2)) / expected),
    )
