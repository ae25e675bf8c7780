"""Rows of vectors, by the kind of array that holds them: NumPy, tensors on a device, dask.

Each kind computes moments, whitens and maps back where its rows are. What is fitted, a few
matrices, always lives in NumPy, so that a whitening fitted beside a GPU or on a cluster loads
on a machine without.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any, NoReturn

import numpy as np
from sklearn.utils import assert_all_finite, check_array, gen_batches

from skcalib._covariance.moments import Moments
from skcalib._dask import as_floats, check_dask, dask_apply, dask_reduce, is_dask
from skcalib._machine.limits import rows_within
from skcalib._sklearn_compat import check_sample_weight, get_namespace_and_device
from skcalib._whitening.linear_map import WhiteningMap

__all__ = ["DaskRows", "NumPyRows", "Rows", "TensorRows", "as_float64", "rows_of"]

CALLER = "Whitening"
# Rows of a tensor in float64, on its device.
TENSOR_BYTES = 64 * 2**20


def rows_of(X: Any, *, ensure_min_samples: int = 1, ensure_all_finite: bool = False) -> Rows:
    """Check that ``X`` holds rows of float32 or float64, and tell how to compute with them.

    Tensors stay tensors under scikit-learn's array API dispatch. The rows of a dask array are
    not counted. ``ensure_all_finite`` looks for NaN and infinity in a pass over ``X``; they
    spread to the moments and to their row's output, where `moments` and `map` find them anyway.
    """
    if is_dask(X):
        check_dask(X, CALLER)
        return DaskRows(X)
    xp, _, device = get_namespace_and_device(X)
    X = check_array(
        X,
        dtype=[xp.float64, xp.float32],
        ensure_min_samples=ensure_min_samples,
        ensure_all_finite=ensure_all_finite,
        estimator=CALLER,
        input_name="X",
    )
    return NumPyRows(X) if "numpy" in xp.__name__ else TensorRows(X, xp, device)


class _RowsInMemory:
    """Mixin that looks at the rows again where a result is not finite, to say why."""

    X: Any
    _sum: Callable[[Any], Moments]
    _map: Callable[[WhiteningMap], Any]

    def moments(self, sample_weight: Any = None) -> Moments:
        """Moments of the rows, or a ValueError where they are not finite."""
        weight = check_sample_weight(sample_weight, self.X)
        with np.errstate(over="ignore", invalid="ignore"):
            moments = self._sum(weight)
        if not np.isfinite(moments.quartic):
            self._explain("The moments of X overflow float64")
        return moments

    def map(self, linear: WhiteningMap) -> Any:
        """Whitened rows in the dtype of ``X``, or a ValueError where they are not finite."""
        with np.errstate(over="ignore", invalid="ignore"):
            out = self._map(linear)
            # One sum is cheap; it may overflow where no entry does, so a closer look decides.
            if not np.isfinite(float(out.sum())) and not np.isfinite(float(abs(out).max())):
                self._explain(f"The whitened vectors overflow {out.dtype}")
        return out

    def _explain(self, overflow: str) -> NoReturn:
        assert_all_finite(self.X, estimator_name=CALLER, input_name="X")
        raise ValueError(
            f"{overflow}: the largest magnitude in X is {float(abs(self.X).max()):.3g}. Scale "
            "X down, or pass it as float64."
        )


@dataclass(frozen=True)
class NumPyRows(_RowsInMemory):
    """Rows of a NumPy array, in chunks and several threads."""

    X: np.ndarray

    def _sum(self, weight: np.ndarray | None) -> Moments:
        return Moments.from_array(self.X, weight)

    def _map(self, linear: WhiteningMap) -> np.ndarray:
        return linear.product(self.X.dtype).apply(self.X)

    def invert(self, linear: WhiteningMap) -> np.ndarray:
        """Whitened rows mapped back, as far as the kept axes determine them."""
        X = self.X.astype(np.float64, copy=False) @ linear.back_projection + linear.mean
        return X.astype(self.X.dtype)


@dataclass(frozen=True)
class TensorRows(_RowsInMemory):
    """Rows of an array of another namespace (torch), in chunks on its device.

    Where a device has no float64, as Apple's GPUs, chunks are brought to the CPU for whatever
    needs it: they share its memory, and compensated float32 sums would not be the same numbers.
    """

    X: Any
    xp: Any
    device: Any

    def _sum(self, weight: Any) -> Moments:
        place = _device_of_float64(self.device)
        if weight is not None:
            weight = self.xp.astype(_on_device(weight, place), self.xp.float64)
        chunks = (
            (_on_device(self.X[rows, :], place), None if weight is None else weight[rows])
            for rows in self._chunks()
        )
        return Moments.from_chunks(chunks, self.xp)

    def _map(self, linear: WhiteningMap) -> Any:
        X, xp = self.X, self.xp
        product = linear.product(np.dtype("float32" if X.dtype == xp.float32 else "float64"))
        work = getattr(xp, product.W.dtype.name)
        place = self.device if work == xp.float32 else _device_of_float64(self.device)
        offset, W, rest = (
            None if array is None else xp.asarray(array, dtype=work, device=place)
            for array in product
        )
        parts = []
        for rows in self._chunks():
            x = xp.astype(_on_device(X[rows, :], place), work)
            z = (x if offset is None else x - offset) @ W
            z = z if rest is None else z - rest
            parts.append(_on_device(xp.astype(z, X.dtype), self.device))
        return xp.concat(parts)

    def invert(self, linear: WhiteningMap) -> Any:
        """Whitened rows mapped back, in their namespace and dtype and on their device."""
        Z, xp, place = self.X, self.xp, _device_of_float64(self.device)
        back = xp.asarray(linear.back_projection, dtype=xp.float64, device=place)
        mean = xp.asarray(linear.mean, dtype=xp.float64, device=place)
        X = xp.astype(_on_device(Z, place), xp.float64) @ back + mean
        return _on_device(xp.astype(X, Z.dtype), self.device)

    def _chunks(self) -> Iterator[slice]:
        return gen_batches(self.X.shape[0], rows_within(TENSOR_BYTES, self.X.shape[1]))


def as_float64(array: Any) -> Any:
    """Return the array in float64, on the CPU if its device has none."""
    if hasattr(array, "astype"):
        return array.astype(np.float64)
    return array.to(_device_of_float64(array.device)).double()  # of torch


def _device_of_float64(device: Any) -> Any:
    """Return the device, or the CPU in its place if it has no float64."""
    return "cpu" if getattr(device, "type", None) == "mps" else device


def _on_device(array: Any, device: Any) -> Any:
    """Return the array on a device; only torch's arrays are ever on another one."""
    return array.to(device) if hasattr(array, "to") else array


@dataclass(frozen=True)
class DaskRows:
    """Rows of a dask array: each block stays on its worker, and rows are never gathered."""

    X: Any

    def moments(self, sample_weight: Any = None) -> Moments:
        """Moments of the rows: a tree of merges on the active scheduler."""
        moments = dask_reduce(_moments_of_block, Moments.merge, self.X, sample_weight)
        if not np.isfinite(moments.quartic):
            raise ValueError(
                "X contains NaN or infinity, or its moments overflow float64. Drop such "
                "rows, or scale X down."
            )
        return moments

    def map(self, linear: WhiteningMap) -> Any:
        """Whitened rows, lazy, as float32 or float64."""
        return dask_apply(partial(_in_block, NumPyRows.map, linear), self.X, linear.width)

    def invert(self, linear: WhiteningMap) -> Any:
        """Whitened rows mapped back, lazy, as float32 or float64."""
        invert = partial(_in_block, NumPyRows.invert, linear)
        return dask_apply(invert, self.X, len(linear.mean))


def _moments_of_block(block: Any, weight: np.ndarray | None) -> Moments:
    block = as_floats(block)
    if not len(block):
        d = block.shape[1]
        return Moments(0, np.zeros(d), np.zeros((d, d)), np.zeros(d), 0.0)
    weight = check_sample_weight(weight, block)
    with np.errstate(over="ignore", invalid="ignore"):  # checked after the merge
        return Moments.from_array(block, weight)


def _in_block(method: Any, linear: WhiteningMap, block: np.ndarray) -> np.ndarray:
    # Not a lambda: dask gives equal calls equal names only if it can read their arguments.
    return method(NumPyRows(block), linear)


Rows = NumPyRows | TensorRows | DaskRows
