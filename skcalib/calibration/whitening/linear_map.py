"""The linear map of a whitening, and the precision that its product needs."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from typing import NamedTuple

import numpy as np

from skcalib.calibration.covariance.noise import Regularized
from skcalib.utils.limits import rows_within
from skcalib.utils.threads import map_row_ranges

# Largest accepted growth of a rounding error from the input of a product to its output. On
# whitened BERT vectors in float32 the worst of a million entries then differs from float64 by
# less than 1e-5.
MAX_GROWTH = 4.0

# Centered rows in each thread: what a core's own cache holds.
CHUNK_BYTES = 2 * 2**20


@dataclass(frozen=True, eq=False)
class AffineMap:
    """``x -> (x - mean) W + bias``, ready to apply, and how rounding errors grow in it."""

    mean: np.ndarray  # (d,)
    projection: np.ndarray  # (d, width), W
    bias: np.ndarray  # (width,)
    column_variance: np.ndarray  # (d,), of the input
    mean_square: float  # of an entry of the output
    in_float64: bool = False  # in any case

    def then(self, after: AffineMap) -> AffineMap:
        """Combine both maps into one."""
        if len(after.mean) != len(self.bias):
            raise ValueError(
                f"A step returns {len(self.bias)} features, but the next expects "
                f"{len(after.mean)}. Give the steps in the order in which they were fitted."
            )
        W = after.projection
        bias = (self.bias - after.mean) @ W + after.bias
        return replace(
            self, projection=self.projection @ W, bias=bias, mean_square=after.mean_square
        )

    @cached_property
    def growth(self) -> float:
        """Growth of a rounding error in ``(x - mean) W``, to the worst column of the output.

        An error of eps |c_j| in an entry becomes eps sqrt(sum_j var(c_j) W_ji^2) in column i.
        """
        return self._relative_to_output(self.column_variance @ self.projection**2)

    @cached_property
    def uncentered_growth(self) -> float:
        """Growth of a rounding error in ``x W + (bias - mean W)``, as for `growth`."""
        shift = self.bias - self.mean @ self.projection
        second_moment = self.column_variance + self.mean**2
        return self._relative_to_output(second_moment @ self.projection**2 + shift**2)

    def _relative_to_output(self, error2: np.ndarray) -> float:
        return float(np.sqrt(error2.max() / self.mean_square))

    @property
    def float32_is_safe(self) -> bool:
        """Whether a product with W in float32 keeps the digits of centered float32 rows."""
        return not self.in_float64 and self.growth <= MAX_GROWTH

    def product(self, dtype: np.dtype) -> Product:
        """How to map rows of this dtype, float32 or float64, without losing digits."""
        work = dtype if self.float32_is_safe else np.dtype(np.float64)
        if dtype == work and self.uncentered_growth <= MAX_GROWTH:
            offset, rest = None, self.mean  # saves a pass over the rows
        else:
            # Once the rounded mean is subtracted, an entry is as small as the spread and exact
            # to its own last digit. The rest of the mean, about eps of it, goes through W: it
            # is too small to cancel digits there.
            offset = self.mean.astype(work)
            rest = self.mean - offset
        rest = (rest @ self.projection - self.bias).astype(work)
        W = self.projection.astype(work, copy=False)
        return Product(offset, W, rest if rest.any() else None)


class Product(NamedTuple):
    """The same computed as ``(x - offset) W - rest``, in the precision of ``W``."""

    offset: np.ndarray | None  # (d,), the mean rounded; None to subtract all of it later
    W: np.ndarray  # (d, width)
    rest: np.ndarray | None  # (width,), ``(mean - offset) W - bias``; None where it is zero

    def apply(self, X: np.ndarray) -> np.ndarray:
        """Map the rows of ``X``, in chunks and several threads, in its dtype."""
        n, d = X.shape
        out = np.empty((n, self.W.shape[1]), dtype=X.dtype)
        step = rows_within(CHUNK_BYTES, d, self.W.itemsize)

        def apply_to(chunks: Iterator[slice]) -> None:
            n_centered = 0 if self.offset is None else min(step, n)
            centered = np.empty((n_centered, d), dtype=self.W.dtype)
            for rows in chunks:
                x, z = X[rows], out[rows]
                if self.offset is not None:
                    x = np.subtract(x, self.offset, out=centered[: len(x)])
                np.matmul(x, self.W, out=z)
                if self.rest is not None:
                    z -= self.rest

        map_row_ranges(apply_to, n, step, working_bytes=self.W.itemsize * step * d)
        return out


@dataclass(frozen=True, eq=False)
class WhiteningMap:
    """``x -> (x - mean) W`` with ``W = U g(Λ)``, by axes."""

    mean: np.ndarray  # (d,)
    basis: np.ndarray  # (d, rank), eigenvectors U of the covariance, by falling eigenvalue
    variance: np.ndarray  # (rank,), eigenvalues of the sample's covariance
    regularized: Regularized  # the same after shrinkage, Λ, and the parameters in use
    n_components: int  # requested axes; may exceed the rank
    method: str  # what follows ``U g(Λ)``: nothing, ``Uᵀ`` or a random rotation

    @property
    def rank(self) -> int:
        """Number of axes the sample determines."""
        return len(self.variance)

    @property
    def kept(self) -> int:
        """Number of axes kept."""
        return min(self.rank, self.n_components)

    @property
    def width(self) -> int:
        """Number of columns of the output."""
        return len(self.basis) if self.method == "zca" else self.n_components

    @property
    def surplus(self) -> int:
        """Number of columns of the output that are zero because they exceed the rank."""
        return self.n_components - self.kept if self.method == "pca" else 0

    @cached_property
    def gain(self) -> np.ndarray:
        """g(Λ) of the axes kept."""
        return self.regularized.gain()[: self.kept]

    @cached_property
    def affine(self) -> AffineMap:
        """The map, with W of shape (d, width)."""
        output2 = self.variance[: self.kept] * self.gain**2
        return AffineMap(
            mean=self.mean,
            projection=self._scaled(self.gain),
            bias=np.zeros(self.width),
            column_variance=self.basis**2 @ self.variance,
            mean_square=output2.sum() / (self.width - self.surplus),  # surplus columns are zero
        )

    @property
    def inverse(self) -> AffineMap:
        """The map back, as far as the axes kept determine it, by the pseudo-inverse of W.

        In float64, since strong axes would cover the digits of the others.
        """
        back, like_any = self._scaled(1 / self.gain).T, np.ones(self.width)
        return AffineMap(np.zeros(self.width), back, self.mean, like_any, 1.0, in_float64=True)

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
