"""Eigendecomposition of a covariance."""

import numpy as np
from scipy import linalg
from scipy.linalg import lapack

from skcalib.utils.threads import limit_blas


def rounding_error(values: np.ndarray) -> float:
    """Error of a decomposition with these eigenvalues, or with these columns' variances.

    An eigenvalue below it counts as zero: ``d eps`` times the largest.
    """
    return float(len(values) * np.finfo(np.float64).eps * values.max())


def decompose(covariance: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Eigenvalues in decreasing order, none negative, and eigenvectors of a determined sign.

    LAPACK's ``eigh`` has an error of ``eps`` times the largest eigenvalue. Where columns
    differ much in scale, pivoted Cholesky followed by a one-sided Jacobi SVD keeps the relative
    accuracy of the small ones (Demmel & Veselić, 1992, "Jacobi's method is more accurate than
    QR"), in five to ten times as long. ``covariance`` is overwritten. The eigenvectors are
    columns, and in each the entry of largest magnitude is positive.
    """
    scales = np.diag(covariance)
    # Columns below the rounding error of the largest, such as constant ones, do not count.
    scales = scales[scales > rounding_error(scales)]
    # The error of eigh is then 10,000 times the smallest columns' own rounding errors.
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
