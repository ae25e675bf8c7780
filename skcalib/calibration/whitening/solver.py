"""From moments to a whitening: shrinkage, noise, numerical rank and the dimensions kept."""

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Self

import numpy as np

from skcalib.calibration.covariance.moments import Moments
from skcalib.calibration.covariance.noise import Regularization
from skcalib.calibration.covariance.spectrum import rounding_error
from skcalib.calibration.whitening.linear_map import WhiteningMap
from skcalib.utils.base import warn

# Samples per feature below which whitening amplifies sampling error. With 5, the smallest
# estimate of equal eigenvalues is (1 - sqrt(1/5))^2 = 0.3 of their value (Marchenko & Pastur).
SAMPLES_PER_FEATURE = 5


@dataclass(frozen=True, eq=False)
class FittedWhitening:
    """Moments of a sample, the parameters of the fit, and the map that follows from both."""

    moments: Moments
    parameters: dict[str, Any]  # of `Whitening`, validated

    @cached_property
    def map(self) -> WhiteningMap:
        """The map, solved at first use: a stream of batches needs no decomposition for each."""
        linear = solve(self.moments, **self.parameters)
        warn_of_few_samples(self.moments.n, linear)
        return linear

    def recentered(self, mean: np.ndarray) -> Self:
        """Return the same with another mean."""
        moved = replace(self, moments=replace(self.moments, mean=mean))
        vars(moved)["map"] = replace(self.map, mean=mean)
        return moved

    @property
    def components(self) -> np.ndarray:
        """Axes kept, in rows, then a row of zeros for each surplus column."""
        basis = self.map.basis[:, : self.map.kept]
        return np.pad(basis.T, ((0, self.map.surplus), (0, 0)))

    @property
    def variance(self) -> np.ndarray:
        """Variance along each of `components`."""
        return np.pad(self.map.variance[: self.map.kept], (0, self.map.surplus))

    @property
    def variance_ratio(self) -> np.ndarray:
        """The same as a share of the total."""
        return self.variance / self.map.regularized.total

    def __getstate__(self) -> dict[str, Any]:
        # New instances are without what they compute at first use.
        solved = {"map": replace(self.map)} if "map" in vars(self) else {}
        return {**vars(self), "moments": replace(self.moments), **solved}


def solve(
    moments: Moments,
    *,
    n_components: int | float | None = None,
    method: str = "pca",
    tol: float | None = None,
    **strength: Any,
) -> WhiteningMap:
    """Decide which axes to keep, for parameters of `Whitening` that are validated.

    ``strength`` are those of a `Regularization`. Samples that are too few, or all equal, raise
    a ValueError.
    """
    n = moments.n
    if n <= 1:
        raise ValueError(
            f"Whitening has seen n_samples={n:.6g}; a covariance needs at least 2. Fit on more "
            "samples. A sample_weight counts repetitions, and zero leaves a sample out: "
            "multiply shares by the sample size."
        )
    variance, basis = moments.spectrum
    regularized = Regularization(**strength).of(moments, variance)
    eigenvalues = regularized.eigenvalues
    if tol is None:
        least = np.maximum(rounding_error(eigenvalues), moments.rounding(basis))
    else:
        least = tol * eigenvalues[0]
    axes = np.flatnonzero(eigenvalues > least)
    if regularized.shrinkage == 0 and isinstance(n, int):
        axes = axes[: n - 1]  # centering uses up one sample
    rank = len(axes)
    if rank == 0:
        raise ValueError(
            f"All {n} samples are equal: there is no direction to whiten. "
            "Fit on samples that differ."
        )
    return WhiteningMap(
        mean=moments.mean,
        basis=np.ascontiguousarray(basis[:, axes]),
        variance=variance[axes],
        regularized=replace(regularized, eigenvalues=eigenvalues[axes]),
        n_components=_n_kept(n_components, rank, variance[axes] / variance.sum()),
        method=method,
    )


def warn_of_few_samples(n: int | float, linear: WhiteningMap) -> None:
    """Warn if a map suffers from too few samples."""
    d, used = len(linear.mean), linear.regularized
    bare = used.noise == 0 and used.shrinkage == 0 and used.power > 0
    if linear.surplus:
        consequence = (
            f"have rank {linear.rank}, below n_components={linear.n_components}: the surplus "
            "columns are zero"
        )
    elif bare and n < SAMPLES_PER_FEATURE * d:
        consequence = (
            f"are fewer than {SAMPLES_PER_FEATURE} for each feature, and have rank "
            f"{linear.rank}: weak directions are mostly sampling error, which whitening "
            "amplifies, and those outside the sample are dropped"
        )
    else:
        return
    warn(
        f"n_samples={n:.10g} of n_features={d} {consequence}. Set noise='auto', or fit on "
        f"{SAMPLES_PER_FEATURE * d} samples or more."
    )


def _n_kept(n_components: int | float | None, rank: int, share: np.ndarray) -> int:
    """Resolve `n_components` to a number of axes."""
    if n_components is None:
        return rank
    if n_components >= 1:
        return int(n_components)
    return min(rank, int(np.searchsorted(np.cumsum(share), n_components)) + 1)
