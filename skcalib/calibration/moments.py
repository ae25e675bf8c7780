"""Mean, scatter matrix and spectrum of a sample, in float64, by parts that merge exactly.

Each chunk is centered about its own mean, and two parts join by the pairwise update of Chan,
Golub & LeVeque (1983), which only adds positive semi-definite terms. So a large common mean
costs no digits, and any split of the rows gives the same result up to rounding.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, fields
from functools import partial, reduce
from typing import Any

import numpy as np
from scipy import linalg
from sklearn.utils.validation import check_array

from skcalib.inputs.vectors import refuse_not_finite
from skcalib.process.forks import cached_property
from skcalib.process.threads import limit_blas, map_row_ranges, rows_within

# Working copy of a chunk: large enough for BLAS at full speed, small enough for the cache.
CHUNK_BYTES = 6 * 2**20
FAN_IN = 8  # moments of dask's blocks that one task merges


@dataclass(frozen=True)
class Moments:
    """Sums over a sample of ``c = x - mean`` and ``q = |c|²``."""

    n: int  # number of samples
    mean: np.ndarray  # (d,)
    scatter: np.ndarray  # (d, d), ``Σ c cᵀ``
    cubic: np.ndarray  # (d,), ``Σ q c``; only needed to move ``quartic`` to another mean
    quartic: float  # ``Σ q²``
    single: bool = False  # whether some samples came as float32

    @classmethod
    def of(cls, X: np.ndarray) -> Moments:
        """Moments of checked rows, float32 or float64, in chunks and several threads."""
        n, d = X.shape
        if not n:  # an empty block of a dask array
            return cls(0, np.zeros(d), np.zeros((d, d)), np.zeros(d), 0.0)
        step = min(rows_within(CHUNK_BYTES, d), n)

        def moments_of(chunks: Iterable[slice]) -> Moments:
            return reduce(cls.merge, (cls._of_chunk(X[rows]) for rows in chunks))

        with np.errstate(over="ignore", invalid="ignore"):
            working_bytes = 8 * d * (2 * step + 3 * d)
            parts = map_row_ranges(moments_of, n, step, working_bytes=working_bytes)
            moments = reduce(cls.merge, parts)
        if not np.isfinite(moments.quartic):
            refuse_not_finite(X, "The moments of X overflow float64")
        return moments

    @classmethod
    def of_dask(cls, X: Any) -> Moments:
        """Moments of a dask array, on its cluster: those of its blocks, merged in a tree."""
        import dask

        check = partial(
            check_array, dtype=[np.float64, np.float32], ensure_min_samples=0, input_name="X"
        )
        of_block = dask.delayed(lambda block: cls.of(check(block)), pure=True)
        join = dask.delayed(partial(reduce, cls.merge), pure=True)
        parts = [of_block(block) for block in X.rechunk({1: -1}).to_delayed().ravel()]
        while len(parts) > 1:
            parts = [join(parts[i : i + FAN_IN]) for i in range(0, len(parts), FAN_IN)]
        return parts[0].compute()

    @classmethod
    def _of_chunk(cls, x: np.ndarray) -> Moments:
        # Differences from one of the rows keep the digits below a large common mean, and keep
        # a constant column constant.
        row = x[0].astype(np.float64)
        c = x - row
        offset = c.sum(axis=0) / len(x)
        c -= offset
        q = np.sum(c * c, axis=1)
        # The product of one array with itself is a syrk in NumPy.
        return cls(
            len(x), row + offset, c.T @ c, q @ c, float(q @ q), bool(x.dtype == np.float32)
        )

    def merge(self, other: Moments) -> Moments:
        """Moments of both samples together."""
        n = self.n + other.n
        heavy, light = (self, other) if self.n >= other.n else (other, self)
        mean = heavy.mean + (light.mean - heavy.mean) * (light.n / (n or 1))
        delta = other.mean - self.mean
        cubic_a, quartic_a = self._about(mean)
        cubic_b, quartic_b = other._about(mean)
        scatter = (delta * (self.n * other.n / (n or 1)))[:, None] * delta
        scatter += self.scatter
        scatter += other.scatter
        cubic, quartic = cubic_a + cubic_b, quartic_a + quartic_b
        return Moments(n, mean, scatter, cubic, quartic, self.single or other.single)

    def _about(self, mean: np.ndarray) -> tuple[np.ndarray, float]:
        """``cubic`` and ``quartic`` about another mean."""
        shift = mean - self.mean
        s2, trace = float(shift @ shift), float(self.scatter.diagonal().sum())
        pulled = self.scatter @ shift
        cubic = self.cubic - 2 * pulled - (trace + self.n * s2) * shift
        along = float(shift @ (self.cubic - pulled))
        return cubic, self.quartic - 4 * along + s2 * (2 * trace + self.n * s2)

    @property
    def column_scale(self) -> np.ndarray:
        """Square root of the variance of each column plus the median variance.

        It equals massive columns out; those below the median keep their proportions.
        """
        positive = self.variances[self.variances > 0]
        return np.sqrt(self.variances + (np.median(positive) if len(positive) else 1.0))

    @cached_property
    def scaled(self) -> Moments:
        """Moments after a division by `column_scale`; their ``quartic`` is not known."""
        scale = self.column_scale
        scatter = self.scatter / scale / scale[:, None]
        return Moments(self.n, self.mean / scale, scatter, self.cubic, np.nan, self.single)

    def rounding(self, axes: np.ndarray) -> np.ndarray:
        """Variance that rounding may cause along each column of ``axes``, unit vectors."""
        if not self.single:
            return np.zeros(axes.shape[1])
        u = np.finfo(np.float32).eps / 2  # an entry x has an error of at most u |x|
        return (self.mean**2 + np.diag(self.scatter) / self.n) @ (u * axes) ** 2

    @cached_property
    def mean_square(self) -> float:
        """Mean of ``|x|²``."""
        return float(np.trace(self.scatter) / (self.n or 1) + self.mean @ self.mean)

    @property
    def variances(self) -> np.ndarray:
        """Unbiased variance of each column."""
        return self.scatter.diagonal() / (self.n - 1)

    @property
    def is_centered(self) -> bool:
        """Whether the mean is zero to the rounding of float32."""
        return bool(self.mean @ self.mean <= 1e-10 * self.scatter.trace() / self.n)

    def covariance(self) -> np.ndarray:
        """Unbiased covariance, ``scatter / (n - 1)``."""
        return self.scatter / (self.n - 1)

    @cached_property
    def spectrum(self) -> tuple[np.ndarray, np.ndarray]:
        """Eigenvalues and eigenvectors of the covariance, as `decompose` returns them."""
        spectrum = decompose(self.covariance())
        for array in spectrum:
            array.flags.writeable = False
        return spectrum

    def __getstate__(self) -> dict[str, Any]:
        # Without the spectrum, which `Axes` hold.
        return {field.name: getattr(self, field.name) for field in fields(self)}


def rounding_error(values: np.ndarray) -> float:
    """Error of a decomposition with these eigenvalues: ``d eps`` times the largest."""
    return float(len(values) * np.finfo(np.float64).eps * values.max())


def decompose(covariance: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Eigenvalues in decreasing order, none negative, and eigenvectors of a determined sign.

    The eigenvectors are columns, and in each the entry of largest magnitude is positive.
    """
    # Where columns differ much in scale, small eigenvalues keep their digits if the columns
    # come by falling variance.
    order = np.argsort(-np.diag(covariance), kind="stable")
    # One BLAS thread: on shared cores, threads waited for each other a hundred times as long.
    with limit_blas(1):
        variance, basis = linalg.eigh(
            covariance[np.ix_(order, order)], driver="evd", overwrite_a=True
        )
        # Rounding leaves the zero eigenvalues of a singular matrix on either side of zero.
        variance, basis = np.maximum(variance[::-1], 0.0), basis[np.argsort(order), ::-1]
        null = np.flatnonzero(variance <= rounding_error(variance))
        if len(null) > 1:
            # Rounding also decides the axes S of the null space, and shrinkage keeps them. The
            # pivoted QR of S S', whose Q is S times that of S', depends on the space alone, so
            # that equal samples get equal vectors.
            space = basis[:, null]
            rotation, *_ = linalg.qr(space.T, mode="economic", pivoting=True)
            variance[null], basis[:, null] = 0.0, space @ rotation
    largest = basis[np.abs(basis).argmax(axis=0), np.arange(len(basis))]
    return variance, basis * np.where(largest < 0, -1.0, 1.0)
