"""Ridge regression of vectors on vectors, and what it predicts for pairs that it has not seen.

One eigendecomposition gives the map for every penalty, and its leave-one-out errors (Golub,
Heath & Wahba, 1979, "Generalized Cross-Validation as a Method for Choosing a Good Ridge
Parameter", Technometrics 21(2)). All sums are in float64, over chunks of the rows.

Predictions vary less than the vectors do, and least along axes that are hard to predict. This
has the least squared error. But then the mean that all vectors share weighs too much in a
cosine, and weak axes, which tell near texts apart, too little. So predictions are scaled, by
axis, to the geometric mean of both spreads, and as a whole to that of the vectors.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from sklearn.utils import gen_batches

from skcalib.calibration.map import AffineMap
from skcalib.calibration.moments import chunk_rows, decompose, rounding_error
from skcalib.inputs.vectors import unit_rows
from skcalib.process.forks import cached_property

# Penalties, as multiples of the mean eigenvalue of the scatter.
PENALTIES = 10.0 ** np.arange(-4, 2.01, 0.5)
# Variances below this lose digits, or are 0.
TINY = np.finfo(np.float64).tiny / np.finfo(np.float64).eps
# Neighbors are compared among this many texts, or among all if there are fewer.
TEXTS = 1000
NEAREST = 0.01  # share of the texts that are neighbors: ten of a thousand


@dataclass(frozen=True, eq=False)
class Ridge:
    """A regression of Y on X, solved by axes, and how its predictions are scaled."""

    x_mean: np.ndarray  # (d,)
    y_mean: np.ndarray  # (k,)
    axes: np.ndarray  # (d, d), eigenvectors of the scatter of X, over the roots of λ + alpha
    inner: np.ndarray  # (d, k), products of these axes with Y
    alpha: float
    variance: np.ndarray  # (d,), of the columns of X
    output: np.ndarray  # (k, k), what centered predictions are multiplied by

    @classmethod
    def fit(cls, X: np.ndarray, Y: np.ndarray, n_components: int | None = None) -> "Ridge":
        """Solve, with the penalty of the least leave-one-out error."""
        (n, d), means = X.shape, (_mean(X), _mean(Y))
        k = Y.shape[1]
        scatter, products, of_output = np.zeros((d, d)), np.zeros((d, k)), np.zeros((k, k))
        with np.errstate(over="ignore", invalid="ignore"):
            for x, y in _centered(X, Y, *means):
                scatter += x.T @ x
                products += x.T @ y
                of_output += y.T @ y
        if not all(np.isfinite(sums).all() for sums in (scatter, products, of_output)):
            raise ValueError("The products of X and y overflow float64. Scale them down.")
        variance = np.diag(scatter) / n
        if not variance.max() > TINY:
            raise ValueError("The squares of X underflow float64. Scale X to about 1.")
        values, basis = decompose(scatter)  # which overwrites it
        penalties = PENALTIES * values.sum() / d
        projected = basis.T @ products

        def left_out(z: np.ndarray, y: np.ndarray, penalty: float) -> np.ndarray:
            # The error of a pair that was left out is its residual over 1 - leverage.
            scaled = z / (values + penalty)
            left = 1 - 1 / n - np.einsum("ij,ij->i", scaled, z)
            return (y - scaled @ projected) / left[:, None]

        errors = np.zeros(len(penalties))
        for x, y in _centered(X, Y, *means):
            z = x @ basis
            errors += [np.sum(left_out(z, y, penalty) ** 2) for penalty in penalties]
        alpha = float(penalties[errors.argmin()])
        of_predicted = np.zeros((k, k))
        for x, y in _centered(X, Y, *means):
            predicted = y - left_out(x @ basis, y, alpha)
            of_predicted += predicted.T @ predicted
        axes = basis / np.sqrt(values + alpha)
        inner = axes.T @ products
        output = _spread(of_predicted, of_output)
        if n_components is not None:
            # The leading axes of the fitted values, where the penalty counts as further rows
            # (Mukherjee & Zhu, 2011, equation 5).
            P = np.linalg.svd(inner, full_matrices=False)[2][:n_components].T
            output = P @ P.T @ output
        return cls(*means, axes, inner, alpha, variance, output)

    @cached_property
    def linear(self) -> AffineMap:
        """Return the map, with W of shape (d, k)."""
        W = self.axes @ self.inner @ self.output
        # (axes axesᵀ)⁻¹ is the scatter plus alpha: the mean square is a bound, without it.
        squares = np.sum(self.variance @ W**2) + np.sum(self.y_mean**2)
        return AffineMap(
            self.x_mean, W, self.y_mean, self.variance, float(squares / len(self.y_mean))
        )


class HeldOut(NamedTuple):
    """What happens to pairs that are left out of a fit."""

    kept: float  # share of a text's nearest neighbors that stay
    matched: float  # share of other texts' vectors that are farther than the text's own
    n: int  # number of texts that were compared


def held_out(ridge: Ridge, X: np.ndarray, Y: np.ndarray) -> HeldOut:
    """Compare the neighbors of translated vectors with those of the vectors themselves.

    Neither the text i that asks nor the candidate j is in the fit. Its prediction of y_i is
    ``y_i - a e_i - b e_j`` with the residuals e, the leverages h, ``a = (1 - h_jj) / D``,
    ``b = h_ij / D`` and ``D = (1 - h_ii)(1 - h_jj) - h_ij²``. If only i were left out,
    predictions would lean to the candidates, on which they were fitted.
    """
    n = len(X)
    rows = np.linspace(0, n - 1, min(n, TEXTS)).astype(int)
    z = (X[rows] - ridge.x_mean) @ ridge.axes
    y, mean = Y[rows].astype(np.float64), ridge.y_mean
    e = y - mean - z @ ridge.inner
    H = z @ z.T + 1 / n
    left = 1 - np.diag(H)
    D = np.outer(left, left) - H**2
    np.fill_diagonal(D, left)  # where i is j, it is left out once
    a, b = left / D, H / D
    np.fill_diagonal(a, 1 / left)
    np.fill_diagonal(b, 0)
    full, e = mean + (y - mean) @ ridge.output, e @ ridge.output
    unit = unit_rows(y)[0]
    # Cosines of all predictions with all candidates, from the products of y and e.
    e_full, own = e @ full.T, np.einsum("ij,ij->i", e, e)
    cosines = full @ unit.T - a * (e @ unit.T) - b * np.einsum("ij,ij->i", e, unit)
    squares = (full**2).sum(axis=1)[:, None] + a**2 * own[:, None] + b**2 * own
    squares += 2 * (a * b * (e @ e.T) - a * np.diag(e_full)[:, None] - b * e_full.T)
    cosines /= np.sqrt(np.maximum(squares, np.finfo(float).tiny))
    matched = (cosines < np.diag(cosines)[:, None]).sum() + 0.5 * (
        (cosines == np.diag(cosines)[:, None]).sum() - len(rows)
    )
    k = max(1, round(NEAREST * len(rows)))
    kept = _nearest(cosines, k) & _nearest(unit @ unit.T, k)
    m = len(rows)
    return HeldOut(float(kept.sum() / (k * m)), float(matched / (m * (m - 1))), m)


def _nearest(cosines: np.ndarray, k: int) -> np.ndarray:
    """Mask of the k largest entries of each row, which are not its own."""
    np.fill_diagonal(cosines, -np.inf)
    mask = np.zeros(cosines.shape, bool)
    np.put_along_axis(mask, np.argpartition(-cosines, k - 1, axis=1)[:, :k], True, axis=1)
    return mask


def _spread(of_predicted: np.ndarray, of_output: np.ndarray) -> np.ndarray:
    """Matrix that spreads predictions, from their scatter and that of the vectors, (k, k)."""
    values, basis = decompose(of_output.copy())
    predicted = np.einsum("ij,ij->j", basis, of_predicted @ basis)
    varies = (values > rounding_error(values)) & (predicted > rounding_error(predicted))
    scales = np.where(varies, (values / np.where(varies, predicted, 1)) ** 0.25, 1)
    spread = predicted @ scales**2
    scales *= np.sqrt(values.sum() / spread) if spread > 0 else 1
    return (basis * scales) @ basis.T


def _mean(X: np.ndarray) -> np.ndarray:
    # Differences from a row keep the digits below a large common mean.
    origin, total = X[0].astype(np.float64), np.zeros(X.shape[1])
    for rows in gen_batches(len(X), chunk_rows(X.shape[1])):
        total += (X[rows] - origin).sum(axis=0)
    return origin + total / len(X)


def _centered(
    X: np.ndarray, Y: np.ndarray, x_mean: np.ndarray, y_mean: np.ndarray
) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    for rows in gen_batches(len(X), chunk_rows(X.shape[1] + Y.shape[1])):
        yield X[rows] - x_mean, Y[rows] - y_mean
