"""Eigendecomposition of a covariance, and the linear maps it gives."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from scipy import linalg
from scipy.linalg import lapack

from skcalib._noise import whitening_gain
from skcalib._row_threads import (
    chunk_rows,
    map_row_ranges,
    row_chunks,
    with_blas_threads,
)

__all__ = ["WhiteningMap", "decompose"]

# Largest growth of a rounding error, from the input of a product to its output, at which
# the product will do. On whitened BERT vectors in float32 the worst of a million entries then
# differs from float64 by less than 1e-5.
MAX_GROWTH = 4.0

# Centred rows in hand during `WhiteningMap.apply`: what a core's own cache holds.
APPLY_BYTES = 2 * 2**20

# Ratio of column variances from which the covariance counts as graded. An error of
# ``eps |Σ|``, the most that eigh promises, is that many times larger than the smallest
# columns' own rounding errors.
GRADED = 1e4


def decompose(covariance: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Eigenvalues in falling order, none negative, and eigenvectors of a determined sign.

    Where columns differ much in scale, the error of LAPACK's ``eigh``, ``eps`` times the
    largest eigenvalue, drowns the smaller ones. Pivoted Cholesky followed by a one-sided
    Jacobi SVD keeps their relative accuracy, which then depends on the correlations only
    [1]_; it takes five to ten times as long, and elsewhere gains nothing.

    Parameters
    ----------
    covariance : ndarray of shape (d, d)
        Overwritten.

    Returns
    -------
    variance : ndarray of shape (d,)
    basis : ndarray of shape (d, d)
        Eigenvectors in columns; in each the entry of largest magnitude is positive.

    References
    ----------
    .. [1] Demmel & Veselić (1992), "Jacobi's method is more accurate than QR", SIAM Journal
           on Matrix Analysis and Applications 13(4).
    """
    scales = np.diag(covariance)
    # Columns below the rounding error of the largest (constant ones) decide nothing.
    scales = scales[scales > len(scales) * np.finfo(np.float64).eps * scales.max()]
    graded = scales.size > 0 and scales.max() > GRADED * scales.min()
    # One thread: an eigendecomposition is a long row of small parallel regions, and on a
    # machine that shares its cores BLAS threads waiting for each other cost a hundredfold
    # (2.1 s against 0.02 s at d = 384). Alone, two threads are no faster at these sizes.
    variance, basis = with_blas_threads(1, _jacobi if graded else _eigh, covariance)
    largest = basis[np.abs(basis).argmax(axis=0), np.arange(len(basis))]
    return variance, basis * np.where(largest < 0, -1.0, 1.0)


def _eigh(covariance: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    if len(covariance) == 1:  # for which SciPy 1.11 gives LAPACK too little work space
        return np.maximum(covariance[0], 0.0), np.ones((1, 1))
    variance, basis = linalg.eigh(covariance, driver="evd", overwrite_a=True)
    # Rounding leaves the zero eigenvalues of a singular matrix on either side of zero.
    variance, basis = np.maximum(variance[::-1], 0.0), basis[:, ::-1]
    null = np.flatnonzero(variance <= len(variance) * np.finfo(np.float64).eps * variance[0])
    if len(null) > 1:
        # Axes of the null space are rounding too, but shrinkage keeps them: replace them by
        # axes that depend on the space alone, so that equal samples get equal vectors: those
        # of the pivoted QR of its projection S S', whose Q is S times that of S'.
        space = basis[:, null]
        rotation, *_ = linalg.qr(space.T, mode="economic", pivoting=True)
        variance[null], basis[:, null] = 0.0, space @ rotation
    return variance, basis


def _jacobi(covariance: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    d = len(covariance)
    # P' Σ P = L L', down to where nothing positive is left: L's singular values are the
    # square roots of the eigenvalues, its left singular vectors their axes.
    # A transpose of a symmetric matrix in C order is the matrix in Fortran's.
    factor, pivots, rank, _ = lapack.dpstrf(covariance.T, lower=1, tol=0.0, overwrite_a=1)
    factor = np.tril(factor)
    factor[:, rank:] = 0.0
    values, axes, _, scale, _, info = lapack.dgejsv(factor, joba=0, jobu=1, jobv=3)
    if info:
        raise linalg.LinAlgError(f"LAPACK's dgejsv did not converge (info={info}).")
    basis = np.empty((d, d))
    basis[pivots - 1] = axes
    return (values * (scale[0] / scale[1])) ** 2, basis


@dataclass(frozen=True, eq=False)
class WhiteningMap:
    """``x -> (x - mean) W`` with ``W = U g(Λ)``, ready to apply.

    ``g(λ) = λ^(-power/2) λ / (λ + noise λ̄)``, where λ̄ is the mean eigenvalue: whitening,
    times a Wiener filter for noise of that variance in every direction.

    Attributes
    ----------
    mean : ndarray of shape (d,)
    basis : ndarray of shape (d, rank)
        Eigenvectors U of the covariance, by falling eigenvalue.
    variance : ndarray of shape (rank,)
        Eigenvalues of the sample's covariance.
    regularised : ndarray of shape (rank,)
        The same after shrinkage, Λ.
    total_variance : float
        Trace of the sample's covariance, d λ̄.
    shrinkage : float
    power : float
    noise : float
    n_components : int
        Number of axes asked for; it may exceed the rank.
    rotates_back : bool
        Whether W goes back to the input space by ``Uᵀ`` ("zca").
    """

    mean: np.ndarray
    basis: np.ndarray
    variance: np.ndarray
    regularised: np.ndarray
    total_variance: float
    shrinkage: float
    power: float
    noise: float
    n_components: int
    rotates_back: bool

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
        return len(self.basis) if self.rotates_back else self.n_components

    @property
    def surplus(self) -> int:
        """Number of columns of the output that are zero for want of rank."""
        return 0 if self.rotates_back else self.n_components - self.kept

    @cached_property
    def gain(self) -> np.ndarray:
        """g(Λ) of the axes kept."""
        eigenvalues = self.regularised[: self.kept]
        floor = self.noise * self.total_variance / len(self.basis)
        return whitening_gain(eigenvalues, floor, self.power)

    @cached_property
    def projection(self) -> np.ndarray:
        """W, of shape (d, width)."""
        return self._scaled(self.gain)

    @property
    def back_projection(self) -> np.ndarray:
        """Pseudo-inverse of W, of shape (width, d)."""
        return self._scaled(1 / self.gain).T

    def _scaled(self, factors: np.ndarray) -> np.ndarray:
        """``U diag(factors)``, its surplus columns zero; times ``Uᵀ`` for "zca"."""
        basis = self.basis[:, : self.kept]
        scaled = basis * factors
        if self.rotates_back:
            return scaled @ basis.T
        return np.pad(scaled, ((0, 0), (0, self.surplus)))

    @cached_property
    def growth(self) -> float:
        """Growth of a rounding error in ``(x - mean) W``.

        An entry c_j of a centred vector carries an error of eps |c_j|, which W turns into
        eps sqrt(sum_j var(c_j) W_ji^2) in column i of the output; beside a typical column.
        """
        return self._beside_output(self._column_variance @ self.projection**2)

    @cached_property
    def uncentred_growth(self) -> float:
        """The same in ``x W - mean W``."""
        shift = self.mean @ self.projection
        second_moment = self._column_variance + self.mean**2
        return self._beside_output(second_moment @ self.projection**2 + shift**2)

    @cached_property
    def _column_variance(self) -> np.ndarray:
        return self.basis**2 @ self.variance

    def _beside_output(self, error2: np.ndarray) -> float:
        output2 = self.variance[: self.kept] * self.gain**2
        return float(np.sqrt(error2.max() * (self.width - self.surplus) / output2.sum()))

    @property
    def float32_is_safe(self) -> bool:
        """Whether a product with W in float32 keeps the digits of centred float32 rows."""
        return self.growth <= MAX_GROWTH

    def apply(self, X: np.ndarray) -> np.ndarray:
        """Whitened rows of ``X``, float32 or float64 as they are."""
        work = X.dtype if self.float32_is_safe else np.dtype(np.float64)
        projection = self.projection.astype(work, copy=False)
        # The mean in two parts. Less the first, of the working precision, an entry is as small
        # as the spread and exact to its own last digit; the rest, some eps of the mean, is
        # small enough to go through W and cancel nothing. Where the whole is small enough, the
        # first part is none, which spares a pass over X.
        direct = X.dtype == work and self.uncentred_growth <= MAX_GROWTH
        mean = np.zeros_like(self.mean, dtype=work) if direct else self.mean.astype(work)
        rest = ((self.mean - mean) @ self.projection).astype(work)
        out = np.empty((len(X), self.width), dtype=X.dtype)
        step = chunk_rows(X.shape[1], work.itemsize, APPLY_BYTES)

        def whiten(rows: slice) -> None:
            shape = (0 if direct else min(step, rows.stop - rows.start), X.shape[1])
            buffer = np.empty(shape, dtype=work)
            for chunk in row_chunks(rows, step):
                centred = X[chunk]
                if not direct:
                    centred = np.subtract(centred, mean, out=buffer[: len(centred)])
                if work == out.dtype:
                    np.matmul(centred, projection, out=out[chunk])
                else:
                    out[chunk] = centred @ projection
                if rest.any():
                    out[chunk] -= rest

        map_row_ranges(whiten, len(X), working_bytes=work.itemsize * step * X.shape[1])
        return out

    def invert(self, Z: np.ndarray) -> np.ndarray:
        """Vectors whose whitened ones are ``Z``, as far as the kept axes determine them."""
        Z64 = Z.astype(np.float64, copy=False)
        return (Z64 @ self.back_projection + self.mean).astype(Z.dtype)
