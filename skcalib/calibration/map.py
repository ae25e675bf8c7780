"""An affine map of rows, in memory, on a device or in dask, and the precision that it needs.

The fitted matrices are always NumPy arrays, so that a whitening fitted on a GPU or a cluster
loads on a machine without one.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from sklearn.utils import gen_batches

from skcalib.calibration.moments import TENSOR_BYTES
from skcalib.compat import get_namespace_and_device
from skcalib.inputs.containers import is_dask
from skcalib.inputs.vectors import device_of_float64, on_device, refuse_not_finite
from skcalib.process.dask import dask_apply
from skcalib.process.forks import cached_property
from skcalib.process.threads import map_row_ranges, rows_within

# Largest accepted growth of a rounding error from the input of a product to its output. With
# it, the worst of a million entries of whitened BERT vectors in float32 differs from float64 by
# less than 1e-5.
MAX_GROWTH = 4.0

# Centered rows in each thread: what a core's own cache holds.
CHUNK_BYTES = 2 * 2**20


@dataclass(frozen=True, eq=False)
class AffineMap:
    """Linear map of a step, ``x -> (x - mean) W + bias``, and how rounding errors grow in it.

    A step of your own returns it from a method ``linear_map()``, by `of_sample`.

    Parameters
    ----------
    mean : ndarray of shape (n_features,), float64
        Subtracted from the input.
    projection : ndarray of shape (n_features, n_components), float64
        W.
    bias : ndarray of shape (n_components,), float64
    column_variance : ndarray of shape (n_features,) or None, default=None
        Mean square of each column of ``x - mean``, over the fitted sample. If it is None, the
        precision that the map needs is unknown, and it is computed in float64.
    mean_square : float or None, default=None
        Mean square of an entry of the output.
    """

    mean: np.ndarray
    projection: np.ndarray
    bias: np.ndarray
    column_variance: np.ndarray | None = None
    mean_square: float | None = None

    @classmethod
    def of_sample(
        cls, mean: Any, projection: Any, bias: Any = None, covariance: Any = None
    ) -> AffineMap:
        """Return the map of a step, and what its sample says of rounding errors.

        Parameters
        ----------
        mean : array-like of shape (n_features,)
        projection : array-like of shape (n_features, n_components)
        bias : array-like of shape (n_components,), default=None
            None for zeros.
        covariance : array-like of shape (n_features, n_features) or (n_features,), default=None
            Mean products of the columns of ``x - mean``, over the fitted sample; or their mean
            squares alone, if the columns are uncorrelated or no more is known.

        Returns
        -------
        linear : AffineMap

        Examples
        --------
        >>> import numpy as np
        >>> from skcalib.calibration import AffineMap
        >>> X = np.random.default_rng(0).normal(size=(100, 3)) + 5
        >>> scales = np.diag([1.0, 2.0, 0.5])
        >>> linear = AffineMap.of_sample(X.mean(axis=0), scales, covariance=np.cov(X.T))
        >>> np.allclose(linear.apply(X), (X - X.mean(axis=0)) @ scales)
        True
        """
        mean, W = np.asarray(mean, np.float64), np.asarray(projection, np.float64)
        bias = np.zeros(W.shape[1]) if bias is None else np.asarray(bias, np.float64)
        if covariance is None:
            return cls(mean, W, bias)
        S = np.asarray(covariance, np.float64)
        squares = S @ W**2 if S.ndim == 1 else np.einsum("ij,ij->j", S @ W, W)
        variance = S if S.ndim == 1 else np.diag(S).copy()
        return cls(mean, W, bias, variance, float(np.mean(squares + bias**2)))

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
        It is infinite if the variances are unknown.
        """
        if self.column_variance is None:
            return np.inf
        return self._relative_to_output(self.column_variance @ self.projection**2)

    @cached_property
    def uncentered_growth(self) -> float:
        """Growth of a rounding error in ``x W + (bias - mean W)``, as for `growth`."""
        if self.column_variance is None:
            return np.inf
        shift = self.bias - self.mean @ self.projection
        second_moment = self.column_variance + self.mean**2
        return self._relative_to_output(second_moment @ self.projection**2 + shift**2)

    def _relative_to_output(self, error2: np.ndarray) -> float:
        if not self.mean_square:
            return np.inf
        return float(np.sqrt(error2.max() / self.mean_square))

    @property
    def float32_is_safe(self) -> bool:
        """Whether a product with W in float32 keeps the digits of centered float32 rows."""
        return self.growth <= MAX_GROWTH

    def apply(self, X: Any) -> Any:
        """Map checked rows: an array, a tensor on its device, or a dask array lazily.

        A result that is not finite raises a ValueError that names the fault.
        """
        is_array = isinstance(X, np.ndarray)
        if not is_array and is_dask(X):
            return dask_apply(self.apply, X, len(self.bias))
        with np.errstate(over="ignore", invalid="ignore"):
            out = self._of_array(X) if is_array else self._of_tensor(X)
            # One sum is cheap. It may overflow although no entry does, so the maximum decides.
            xp = np if is_array else get_namespace_and_device(X)[0]
            if not np.isfinite(float(xp.sum(out))) and not np.isfinite(float(xp.max(abs(out)))):
                refuse_not_finite(X, f"The mapped vectors overflow {out.dtype}")
        return out

    def _of_array(self, X: np.ndarray) -> np.ndarray:
        """Map the rows of an array, in chunks and several threads."""
        offset, W, bias = self._terms(is_single=X.dtype == np.float32)
        n, d = X.shape
        out = np.empty((n, W.shape[1]), dtype=X.dtype)
        step = rows_within(CHUNK_BYTES, d, W.itemsize)

        def map_rows(chunks: Iterable[slice]) -> None:
            centered = np.empty((min(step, n), d), dtype=W.dtype)
            for rows in chunks:
                x, z = X[rows], out[rows]
                np.matmul(np.subtract(x, offset, out=centered[: len(x)]), W, out=z)
                z += bias

        map_row_ranges(map_rows, n, step, working_bytes=W.itemsize * step * d)
        return out

    def _of_tensor(self, X: Any) -> Any:
        """Map the rows of a tensor on its device, or on the CPU if only that has float64."""
        xp, _, device = get_namespace_and_device(X)
        terms = self._terms(is_single=X.dtype == xp.float32)
        work = getattr(xp, terms[1].dtype.name)
        place = device if work == xp.float32 else device_of_float64(device)
        offset, W, bias = (xp.asarray(term, dtype=work, device=place) for term in terms)
        parts = []
        for rows in gen_batches(X.shape[0], rows_within(TENSOR_BYTES, X.shape[1])):
            x = xp.astype(on_device(X[rows, :], place), work)
            parts.append(on_device(xp.astype((x - offset) @ W + bias, X.dtype), device))
        return xp.concat(parts)

    def _terms(self, is_single: bool) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return m, W and b of ``(x - m) W + b``, in the precision that keeps all digits.

        Once the rounded mean m is subtracted, an entry is as small as the spread and exact to
        its own last digit. The rest of the mean, about eps of it, goes through W: it is too
        small to cancel digits there.
        """
        work = np.float32 if is_single and self.float32_is_safe else np.float64
        m, W = self.mean.astype(work), self.projection
        b = self.bias - (self.mean - m) @ W
        return m, W.astype(work, copy=False), b.astype(work)
