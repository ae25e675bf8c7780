"""Moments and whitened rows of arrays of other namespaces (torch), on their device.

The sums are float64 on the device; what is fitted, a few matrices, lives in NumPy, so that an
estimator fitted beside a GPU loads on a machine without. Where a device has no float64, as
Apple's GPUs, chunks are brought to the CPU for whatever needs it: they share its memory, and
compensated float32 sums would not be the same numbers.
"""

from __future__ import annotations

from functools import reduce
from typing import Any

import numpy as np

from skcalib._moments import Moments
from skcalib._row_threads import row_chunks

__all__ = ["tensor_apply", "tensor_invert", "tensor_moments"]

CHUNK_BYTES = 64 * 2**20  # of float64, on the device


def tensor_moments(X, weight, xp, device) -> Moments:
    """Moments of the rows of ``X``, summed on its device.

    All chunks share the first one's mean as origin: the loss is at most the number of chunks,
    in units in the last place (see `skcalib._moments.GROUP`).

    Parameters
    ----------
    X : array of shape (n, d)
        Of the namespace ``xp``, float32 or float64.
    weight : array of shape (n,) or None
    xp : module
    device : device
        Of `X`.
    """
    device = _device_of_float64(device)
    if weight is not None and X.shape[0] > _chunk_rows(X):
        # No bound with weights: the first chunk may hardly count. Each its own origin, then.
        return reduce(
            Moments.merge,
            [tensor_moments(X[c, :], weight[c], xp, device) for c in _chunks(X)],
        )
    origin: Any = None
    n, first, scatter, cubic, quartic = 0, 0.0, 0.0, 0.0, 0.0  # type: Any, Any, Any, Any, float
    for chunk in _chunks(X):
        x = xp.astype(_moved(X[chunk, :], device), xp.float64)
        w = xp.ones(x.shape[0], dtype=xp.float64, device=device)
        if weight is not None:
            w = xp.astype(_moved(weight[chunk], device), xp.float64)
        if origin is None:
            heaviest = x[int(xp.argmax(w)), :]
            total = float(xp.sum(w)) or 1.0
            origin = heaviest + w @ (x - heaviest) / total
        c = x - origin
        q = xp.sum(c * c, axis=1)
        n += x.shape[0] if weight is None else float(xp.sum(w))
        first = first + w @ c
        cubic = cubic + (w * q) @ c
        quartic += float((w * q) @ q)
        scatter = scatter + (c * w[:, None]).T @ c
    # Copies: on the CPU NumPy would share the tensors' memory.
    origin, first, scatter, cubic = (
        np.array(_to_numpy(a)) for a in (origin, first, scatter, cubic)
    )
    return Moments.from_sums(n, origin, first, scatter, cubic, quartic)


def tensor_apply(linear, X, xp, device):
    """Whitened rows of ``X``, of its namespace, device and dtype.

    The rules are `WhiteningMap.apply`'s.
    """
    work = X.dtype if linear.float32_is_safe else xp.float64
    place = device if work == X.dtype else _device_of_float64(device)
    mean = xp.asarray(linear.mean, dtype=work, device=place)
    rest = linear.mean - _to_numpy(mean).astype(np.float64)
    rest = xp.asarray(rest, dtype=work, device=place)
    projection = xp.asarray(linear.projection, dtype=work, device=place)
    parts = []
    for chunk in _chunks(X):
        centred = (xp.astype(_moved(X[chunk, :], place), work) - mean) - rest
        parts.append(_moved(xp.astype(centred @ projection, X.dtype), device))
    return parts[0] if len(parts) == 1 else xp.concat(parts)


def tensor_invert(linear, Z, xp, device):
    """Vectors whose whitened ones are ``Z``, of its namespace, device and dtype."""
    place = _device_of_float64(device)
    back = xp.asarray(linear.back_projection, dtype=xp.float64, device=place)
    mean = xp.asarray(linear.mean, dtype=xp.float64, device=place)
    X = xp.astype(_moved(Z, place), xp.float64) @ back + mean
    return _moved(xp.astype(X, Z.dtype), device)


def _device_of_float64(device):
    """``device``, or the CPU in its place if it has no float64."""
    return "cpu" if getattr(device, "type", None) == "mps" else device


def _moved(array, device):
    """Return the array on ``device``; only torch's arrays are ever on another one."""
    return array.to(device) if hasattr(array, "to") else array


def _chunks(X):
    return row_chunks(slice(0, X.shape[0]), _chunk_rows(X))


def _chunk_rows(X) -> int:
    return max(64, CHUNK_BYTES // (8 * X.shape[1]))


def _to_numpy(array) -> np.ndarray:
    if hasattr(array, "cpu"):  # torch; others convert by the buffer protocol or DLPack
        array = array.cpu()
    return np.asarray(array)
