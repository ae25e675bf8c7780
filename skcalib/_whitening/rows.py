"""Rows of vectors, by the kind of array that holds them: NumPy, tensors on a device, dask.

Each kind computes moments, whitens and maps back where its rows are. What is fitted, a few
matrices, always lives in NumPy, so that a whitening fitted beside a GPU or on a cluster loads
on a machine without.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial, reduce
from typing import Any, NoReturn

import numpy as np
from sklearn.utils import assert_all_finite, check_array, gen_batches

from skcalib._covariance.moments import Moments, chunk_rows
from skcalib._dask import as_floats, check_dask, dask_apply, dask_reduce, is_dask
from skcalib._machine.limits import rows_within
from skcalib._machine.threads import map_row_ranges
from skcalib._sklearn_compat import check_sample_weight, get_namespace_and_device
from skcalib._whitening.linear_map import WhiteningMap

__all__ = ["DaskRows", "NumPyRows", "Rows", "TensorRows", "as_float64", "rows_of"]

CALLER = "Whitening"
# Centred rows of `NumPyRows.map` in each thread: what a core's own cache holds.
MAP_BYTES = 2 * 2**20
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
    """Raises an error that explains a result that is not finite."""

    X: Any
    _summed: Callable[[Any], Moments]
    _mapped: Callable[[WhiteningMap], Any]

    def moments(self, sample_weight: Any = None) -> Moments:
        """Moments of the rows, or a ValueError where they are not finite."""
        weight = check_sample_weight(sample_weight, self.X)
        with np.errstate(over="ignore", invalid="ignore"):
            moments = self._summed(weight)
        if not np.isfinite(moments.quartic):
            self._explain("The moments of X overflow float64")
        return moments

    def map(self, linear: WhiteningMap) -> Any:
        """Whitened rows in the dtype of ``X``, or a ValueError where they are not finite."""
        with np.errstate(over="ignore", invalid="ignore"):
            out = self._mapped(linear)
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

    def _summed(self, weight: np.ndarray | None) -> Moments:
        n, d = self.X.shape
        step = min(chunk_rows(d), n)
        job = partial(Moments.from_array, self.X, weight)
        parts = map_row_ranges(job, n, step, working_bytes=8 * d * (2 * step + 3 * d))
        return reduce(Moments.merge, parts)

    def _mapped(self, linear: WhiteningMap) -> np.ndarray:
        X, product = self.X, linear.product(self.X.dtype)
        out = np.empty((len(X), linear.width), dtype=X.dtype)
        step = rows_within(MAP_BYTES, X.shape[1], product.W.itemsize)

        def whiten(chunks: Iterator[slice]) -> None:
            n_rows = 0 if product.offset is None else min(step, len(X))
            buffer = np.empty((n_rows, X.shape[1]), dtype=product.W.dtype)
            for chunk in chunks:
                product.apply(X[chunk], out[chunk], buffer)

        working_bytes = product.W.itemsize * step * X.shape[1]
        map_row_ranges(whiten, len(X), step, working_bytes=working_bytes)
        return out

    def invert(self, linear: WhiteningMap) -> np.ndarray:
        """Whitened rows mapped back, as far as the kept axes determine them."""
        X = self.X.astype(np.float64, copy=False) @ linear.back_projection + linear.mean
        return X.astype(self.X.dtype)


@dataclass(frozen=True)
class TensorRows(_RowsInMemory):
    """Rows of an array of another namespace (torch), summed and mapped on its device.

    Where a device has no float64, as Apple's GPUs, chunks are brought to the CPU for whatever
    needs it: they share its memory, and compensated float32 sums would not be the same numbers.
    """

    X: Any
    xp: Any
    device: Any

    def _summed(self, weight: Any) -> Moments:
        xp, place = self.xp, _device_of_float64(self.device)
        chunks, w = [*self._chunks()], None
        if weight is not None:
            w = xp.astype(_on_device(weight, place), xp.float64)
            # All chunks share an origin, the mean of the first. If that is the heaviest, the
            # loss is at most their number, in units in the last place (see `GROUP`).
            chunks.sort(key=lambda rows: -float(xp.sum(w[rows])))
        parts = ((_on_device(self.X[c, :], place), None if w is None else w[c]) for c in chunks)
        return Moments.from_group(parts, xp)

    def _mapped(self, linear: WhiteningMap) -> Any:
        X, xp = self.X, self.xp
        single = X.dtype == xp.float32
        product = linear.product(np.dtype(np.float32 if single else np.float64))
        work = X.dtype if product.W.dtype == np.float32 else xp.float64
        place = self.device if work == X.dtype else _device_of_float64(self.device)
        offset, W, rest = (
            None if array is None else xp.asarray(array, dtype=work, device=place)
            for array in product
        )
        parts = []
        for chunk in self._chunks():
            x = xp.astype(_on_device(X[chunk, :], place), work)
            z = (x if offset is None else x - offset) @ W
            z = z if rest is None else z - rest
            parts.append(_on_device(xp.astype(z, X.dtype), self.device))
        return parts[0] if len(parts) == 1 else xp.concat(parts)

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
        return NumPyRows(block)._summed(weight)


def _in_block(
    method: Callable[[NumPyRows, WhiteningMap], Any], linear: WhiteningMap, block: np.ndarray
) -> np.ndarray:
    # Not a lambda: dask gives equal calls equal names only if it can read their arguments.
    return method(NumPyRows(block), linear)


Rows = NumPyRows | TensorRows | DaskRows
