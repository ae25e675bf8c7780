"""Mean, scatter matrix and spectrum of a sample, in float64, by parts that merge exactly.

Each chunk is centered about its own mean, and two parts join by the pairwise update of Chan,
Golub & LeVeque (1983), which only adds positive semi-definite terms. So a large common mean
costs no digits, and any split of the rows gives the same result up to rounding.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import dataclass, fields, replace
from functools import reduce
from typing import Any

import numpy as np
from scipy import linalg
from scipy.linalg import lapack
from sklearn.utils import gen_batches

from skcalib.compat import get_namespace_and_device, to_numpy
from skcalib.inputs.containers import is_dask
from skcalib.inputs.vectors import (
    check_sample_weight,
    device_of_float64,
    on_device,
    refuse_not_finite,
)
from skcalib.process.dask import as_floats, dask_reduce
from skcalib.process.forks import cached_property
from skcalib.process.threads import limit_blas, map_row_ranges, rows_within

# Size of the working copy of a chunk: large enough for BLAS to run at full speed and for
# merges not to count, small enough for the last-level cache and not to matter in memory.
CHUNK_BYTES = 6 * 2**20
# Size of a chunk of rows of a tensor in float64, on its device.
TENSOR_BYTES = 64 * 2**20


def chunk_rows(n_features: int) -> int:
    """Rows of a chunk."""
    return rows_within(CHUNK_BYTES, n_features)


@dataclass(frozen=True)
class Moments:
    """Sums over a sample of ``c = x - mean`` and ``q = |c|²``, each term times its weight."""

    n: int | float  # number of samples, or the sum of their weights
    mean: np.ndarray  # (d,)
    scatter: np.ndarray  # (d, d), ``Σ c cᵀ``
    cubic: np.ndarray  # (d,), ``Σ q c``; only needed to move ``quartic`` to another mean
    quartic: float  # ``Σ q²``
    single: bool = False  # whether some samples came as float32

    @classmethod
    def of(cls, X: Any, sample_weight: Any = None) -> Moments:
        """Moments of checked rows: an array, a tensor (on its device) or a dask array.

        Rows that are not finite raise a ValueError that names the fault.
        """
        check_size(X.shape[1])
        is_array = isinstance(X, np.ndarray)
        with np.errstate(over="ignore", invalid="ignore"):
            if not is_array and is_dask(X):  # a tree of merges on the active scheduler
                moments = dask_reduce(_moments_of_block, cls.merge, X, sample_weight)
            else:
                if sample_weight is not None:
                    sample_weight = check_sample_weight(sample_weight, X)
                of_kind = cls.from_array if is_array else cls.from_tensor
                moments = of_kind(X, sample_weight)
        if not np.isfinite(moments.quartic):
            refuse_not_finite(X, "The moments of X overflow float64")
        return moments

    @classmethod
    def from_array(cls, X: np.ndarray, weight: np.ndarray | None = None) -> Moments:
        """Moments of the rows of ``X``, of any float dtype, in chunks and several threads.

        ``weight`` is how many times each row counts.
        """

        def moments_of(chunks: Iterable[slice]) -> Moments:
            pairs = ((X[rows], None if weight is None else weight[rows]) for rows in chunks)
            return cls.from_chunks(pairs)

        n, d = X.shape
        step = min(chunk_rows(d), n)
        parts = map_row_ranges(moments_of, n, step, working_bytes=8 * d * (2 * step + 3 * d))
        return reduce(cls.merge, parts)

    @classmethod
    def from_tensor(cls, X: Any, weight: Any = None) -> Moments:
        """Moments of the rows of a tensor, on its device or, without float64 there, on the CPU.

        Apple's GPUs have none, but share their memory with the CPU; compensated float32 sums
        would give other numbers.
        """
        xp, _, device = get_namespace_and_device(X)
        place = device_of_float64(device)
        if weight is not None:
            weight = xp.astype(on_device(weight, place), xp.float64)
        chunks = (
            (on_device(X[rows, :], place), None if weight is None else weight[rows])
            for rows in gen_batches(X.shape[0], rows_within(TENSOR_BYTES, X.shape[1]))
        )
        found = cls.from_chunks(chunks, xp)
        arrays: Any = found.mean, found.scatter, found.cubic
        mean, scatter, cubic = (to_numpy(array, xp) for array in arrays)
        return replace(found, mean=mean, scatter=scatter, cubic=cubic)

    @classmethod
    def from_chunks(cls, chunks: Iterable[tuple[Any, Any]], xp: Any = np) -> Moments:
        """Moments of chunks, pairs of rows and of their float64 weights or None.

        Their arrays are NumPy's or those of the array API namespace ``xp``, on one device.
        """
        return reduce(cls.merge, (cls._of_chunk(x, w, xp) for x, w in chunks))

    @classmethod
    def _of_chunk(cls, x: Any, w: Any, xp: Any) -> Moments:
        # Differences from one of the rows keep the digits below a large common mean, and keep
        # a constant column constant.
        row = xp.asarray(x[0 if w is None else int(xp.argmax(w)), :], dtype=xp.float64)
        c, n = x - row, x.shape[0] if w is None else float(xp.sum(w))
        offset = (xp.sum(c, axis=0) if w is None else w @ c) / (n or 1)
        c -= offset
        q = xp.sum(c * c, axis=1)
        wq = q if w is None else w * q
        cubic, quartic = wq @ c, float(wq @ q)
        if w is not None:
            c *= xp.sqrt(w)[:, None]
        # The product of one array with itself is a syrk in NumPy.
        return cls(n, row + offset, c.T @ c, cubic, quartic, x.dtype != xp.float64)

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

    def _about(self, mean: Any) -> tuple[Any, float]:
        """``cubic`` and ``quartic`` about another mean."""
        shift = mean - self.mean
        s2, trace = float(shift @ shift), float(self.scatter.diagonal().sum())
        pulled = self.scatter @ shift
        cubic = self.cubic - 2 * pulled - (trace + self.n * s2) * shift
        along = float(shift @ (self.cubic - pulled))
        return cubic, self.quartic - 4 * along + s2 * (2 * trace + self.n * s2)

    def rounding(self, axes: np.ndarray) -> np.ndarray:
        """Variance that rounding may cause along each column of ``axes``, all of unit length.

        An entry x of a float32 sample has an error of at most u |x|, where u is half of eps.
        """
        if not self.single:
            return np.zeros(axes.shape[1])
        u = np.finfo(np.float32).eps / 2
        return (self.mean**2 + np.diag(self.scatter) / self.n) @ (u * axes) ** 2

    @property
    def are_enough(self) -> bool:
        """Whether there are more than one sample: weights may sum to 1 up to rounding."""
        return bool(self.n > 1 and not np.isclose(self.n, 1))

    @cached_property
    def mean_square(self) -> float:
        """Mean of ``|x|²``."""
        return float(np.trace(self.scatter) / (self.n or 1) + self.mean @ self.mean)

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
        return {field.name: getattr(self, field.name) for field in fields(self)}


def _moments_of_block(block: Any, weight: Any = None) -> Moments:
    block = as_floats(block)
    if not len(block):
        d = block.shape[1]
        return Moments(0, np.zeros(d), np.zeros((d, d)), np.zeros(d), 0.0)
    return Moments.of(block, weight)


def rounding_error(values: np.ndarray) -> float:
    """Error of a decomposition with these eigenvalues, or with these columns' variances.

    An eigenvalue below it counts as zero: ``d eps`` times the largest.
    """
    return float(len(values) * np.finfo(np.float64).eps * values.max())


def decompose(covariance: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Eigenvalues in decreasing order, none negative, and eigenvectors of a determined sign.

    LAPACK's ``eigh`` has an error of ``eps`` times the largest eigenvalue. Where columns differ
    much in scale, pivoted Cholesky followed by a one-sided Jacobi SVD keeps the relative
    accuracy of the small ones (Demmel & Veselić, 1992, "Jacobi's method is more accurate than
    QR"), but takes five to ten times as long. ``covariance`` is overwritten. The eigenvectors
    are columns, and in each the entry of largest magnitude is positive.
    """
    scales = np.diag(covariance)
    # Columns below the rounding error of the largest, such as constant ones, do not count.
    scales = scales[scales > rounding_error(scales)]
    # Beyond this ratio, the error of eigh is 10,000 times the smallest column's rounding error.
    graded = scales.size > 0 and scales.max() > 1e4 * scales.min()
    # One BLAS thread: an eigendecomposition has many small parallel regions. On a machine that
    # shares its cores, BLAS's threads waited for each other a hundred times as long as one
    # worked (2.1 s against 0.02 s at d = 384). Two alone are no faster at these sizes.
    with limit_blas(1):
        variance, basis = (_jacobi if graded else _eigh)(covariance)
    largest = basis[np.abs(basis).argmax(axis=0), np.arange(len(basis))]
    return variance, basis * np.where(largest < 0, -1.0, 1.0)


def _eigh(covariance: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    if len(covariance) == 1:  # SciPy 1.11 gives LAPACK too little work space here
        return np.maximum(covariance[0], 0.0), np.ones((1, 1))
    variance, basis = linalg.eigh(covariance, driver="evd", overwrite_a=True)
    # Rounding leaves the zero eigenvalues of a singular matrix on either side of zero.
    variance, basis = np.maximum(variance[::-1], 0.0), basis[:, ::-1]
    null = np.flatnonzero(variance <= rounding_error(variance))
    if len(null) > 1:
        # Rounding also decides the axes S of the null space, and shrinkage keeps them. The
        # pivoted QR of the projection S S' gives axes that depend on the space alone, so
        # that equal samples get equal vectors. Its Q is S times the Q of S'.
        space = basis[:, null]
        rotation, *_ = linalg.qr(space.T, mode="economic", pivoting=True)
        variance[null], basis[:, null] = 0.0, space @ rotation
    return variance, basis


def _jacobi(covariance: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    d = len(covariance)
    # P' Σ P = L L', up to the numerical rank. The singular values of L are the square roots
    # of the eigenvalues, its left singular vectors the eigenvectors. LAPACK takes matrices in
    # Fortran order, which for a symmetric one is the transpose.
    factor, pivots, rank, _ = lapack.dpstrf(covariance.T, lower=1, tol=0.0, overwrite_a=1)
    factor = np.tril(factor)
    factor[:, rank:] = 0.0
    values, axes, _, scale, _, info = lapack.dgejsv(factor, joba=0, jobu=1, jobv=3)
    if info:
        raise linalg.LinAlgError(f"LAPACK's dgejsv did not converge (info={info}).")
    basis = np.empty((d, d))
    basis[pivots - 1] = axes
    return (values * (scale[0] / scale[1])) ** 2, basis


def check_size(n_features: int, what: str = "a covariance") -> None:
    """Raise a ValueError if square matrices of this size cannot fit into this machine.

    Without the check the system might grant the memory and kill the process later.
    """
    try:
        memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, ValueError, OSError):  # not known here
        return
    n_bytes = 8 * n_features**2
    if 4 * n_bytes > memory:
        raise ValueError(
            f"X has {n_features} features; {what} needs four matrices of {n_features} x "
            f"{n_features}, of {n_bytes / 1e9:,.0f} GB each, and this machine has "
            f"{memory / 1e9:,.0f} GB. Reduce the features first, for instance by TruncatedSVD."
        )
