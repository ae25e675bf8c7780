"""From moments to a whitening: shrinkage, noise, numerical rank and the dimensions kept."""

from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np

from skcalib.base import warn
from skcalib.calibration.map import AffineMap
from skcalib.calibration.moments import Moments, rounding_error
from skcalib.calibration.noise import (
    Regularization,
    Regularized,
    warn_of_massive_column,
)
from skcalib.process.forks import cached_property

# Samples per feature below which whitening amplifies sampling error. With 5, the smallest
# estimate of equal eigenvalues is (1 - sqrt(1/5))^2 = 0.3 of their value (Marchenko & Pastur).
SAMPLES_PER_FEATURE = 5


@dataclass(frozen=True, eq=False)
class WhiteningMap:
    """``x -> (x - c mean) W`` with ``W = U g(Λ)``, by axes."""

    mean: np.ndarray  # (d,)
    basis: np.ndarray  # (d, m), eigenvectors U of the covariance, by falling eigenvalue
    variance: np.ndarray  # (m,), eigenvalues of the sample's covariance
    regularized: Regularized  # the same after shrinkage, Λ, and the parameters in use
    rank: int  # number of axes that the sample determines: m, or less where g passes all axes
    n_components: int  # requested axes; may exceed m
    method: str  # what follows ``U g(Λ)``: nothing, ``Uᵀ`` or a random rotation

    @property
    def kept(self) -> int:
        """Number of axes kept."""
        return min(len(self.variance), self.n_components)

    def determined(self) -> "WhiteningMap":
        """Return the same with the axes that the sample determines only."""
        axes = slice(self.rank)
        eigenvalues = self.regularized.eigenvalues[axes]
        return replace(
            self,
            basis=self.basis[:, axes],
            variance=self.variance[axes],
            regularized=replace(self.regularized, eigenvalues=eigenvalues),
        )

    @property
    def width(self) -> int:
        """Number of columns of the output."""
        return len(self.basis) if self.method == "zca" else self.n_components

    @property
    def surplus(self) -> int:
        """Number of columns of the output that are zero because there is no axis for them."""
        return self.n_components - self.kept if self.method == "pca" else 0

    @cached_property
    def gain(self) -> np.ndarray:
        """g(Λ) of the axes kept."""
        return self.regularized.gain()[: self.kept]

    @property
    def components(self) -> np.ndarray:
        """Axes kept, in rows, then a row of zeros for each surplus column."""
        return np.pad(self.basis[:, : self.kept].T, ((0, self.surplus), (0, 0)))

    @property
    def variance_kept(self) -> np.ndarray:
        """Variance along each of `components`."""
        return np.pad(self.variance[: self.kept], (0, self.surplus))

    @property
    def column_variance(self) -> np.ndarray:
        """Variance of the columns of the sample, (d,)."""
        return self.basis**2 @ self.variance

    @cached_property
    def affine(self) -> AffineMap:
        """Return the map, with W of shape (d, width)."""
        output2, W = self.variance[: self.kept] * self.gain**2, self._scaled(self.gain)
        return AffineMap(
            mean=self.mean,
            projection=W,
            bias=self._of_mean(W),
            column_variance=self.column_variance,
            mean_square=output2.sum() / (self.width - self.surplus),  # surplus columns are zero
        )

    @property
    def inverse(self) -> AffineMap:
        """The map back, as far as the axes kept determine it, by the pseudo-inverse of W.

        In float64, since strong axes would hide the digits of weak ones.
        """
        back = self._scaled(1 / self.gain).T
        mapped = self._of_mean(self._scaled(self.gain))
        return AffineMap(mapped, back, self.mean)

    def _of_mean(self, W: np.ndarray) -> np.ndarray:
        """Return the image of the mean: zero, unless a share of it is kept."""
        return (1 - self.regularized.centering) * (self.mean @ W)

    def _scaled(self, factors: np.ndarray) -> np.ndarray:
        """``U diag(factors)``, its surplus columns zero, or rotated by the method."""
        basis = self.basis[:, : self.kept]
        scaled = basis * factors
        if self.method == "zca":
            return scaled @ basis.T
        if self.method == "rotated":
            drawn = np.random.default_rng(0).normal(size=(self.width, self.width))
            return scaled @ np.linalg.qr(drawn).Q[: self.kept]
        return np.pad(scaled, ((0, 0), (0, self.surplus)))

    def __getstate__(self) -> dict[str, Any]:
        # Cached properties are not pickled.
        return {field.name: getattr(self, field.name) for field in fields(self)}


def solve(
    moments: Moments,
    *,
    n_components: int | float | None = None,
    method: str = "pca",
    tol: float | None = None,
    **strength: Any,
) -> WhiteningMap:
    """Decide which axes to keep, for validated parameters of `Whitening`.

    ``strength`` has the parameters of a `Regularization`. Too few samples, or samples that are
    all equal, raise a ValueError.
    """
    n = moments.n
    if not moments.are_enough:
        raise ValueError(
            f"Whitening has seen n_samples={n:.6g}; a covariance needs at least 2. Fit on more "
            "samples. A sample_weight counts repetitions, and zero leaves a sample out: "
            "multiply weights that sum to 1 by the sample size."
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
    if regularized.passes_all:
        # A direction without variance in this sample may have some in the next.
        axes = np.arange(len(basis))
    return WhiteningMap(
        mean=moments.mean,
        basis=np.ascontiguousarray(basis[:, axes]),
        variance=variance[axes],
        regularized=replace(regularized, eigenvalues=eigenvalues[axes]),
        rank=rank,
        n_components=_n_kept(n_components, len(axes), variance[axes] / variance.sum()),
        method=method,
    )


def warn_of_sample(n: int | float, linear: WhiteningMap) -> None:
    """Warn if a map suffers from too few samples, or one column holds most of the variance.

    The message is the same for all fits of a search, so that Python shows it once.
    """
    d, used = len(linear.mean), linear.regularized
    warn_of_massive_column(linear.column_variance)
    is_bare = used.noise == used.shrinkage == used.level == 0 and used.power > 0
    enough = SAMPLES_PER_FEATURE * d
    if linear.surplus:
        fault = (
            f"The samples have a lower rank than n_components={linear.n_components}: the "
            "surplus columns are zero."
        )
    elif is_bare and n < enough:
        fault = (
            f"There are fewer than {SAMPLES_PER_FEATURE} samples for each of {d} features: "
            "weak directions are mostly sampling error, which whitening amplifies, and "
            "directions outside the sample are dropped."
        )
    else:
        return
    warn(f"{fault} Set noise='auto', or fit on {enough} samples or more.")


def _n_kept(n_components: int | float | None, n_axes: int, share: np.ndarray) -> int:
    """Resolve `n_components` to a number of axes."""
    if n_components is None:
        return n_axes
    if n_components >= 1:
        return int(n_components)
    return min(n_axes, int(np.searchsorted(np.cumsum(share), n_components)) + 1)
