"""Computations that run where the rows of vectors are: in NumPy, on a device, or in dask.

The fitted matrices are always NumPy arrays, so that a whitening fitted on a GPU or a cluster
loads on a machine without one.
"""

from collections.abc import Iterator
from functools import partial
from typing import Any

import numpy as np
from sklearn.utils import assert_all_finite, check_array, gen_batches

from skcalib.calibration.covariance.moments import Moments
from skcalib.calibration.whitening.linear_map import AffineMap
from skcalib.utils.dask import as_floats, check_dask, dask_apply, dask_reduce, is_dask
from skcalib.utils.limits import rows_within
from skcalib.utils.sklearn_compat import check_sample_weight, get_namespace_and_device
from skcalib.utils.vectors import checkable

CALLER = "Whitening"
# Size of a chunk of rows of a tensor in float64, on its device.
TENSOR_BYTES = 64 * 2**20


def check_rows(X: Any) -> Any:
    """Check that ``X`` holds rows, and return them as float32 or float64.

    Tensors stay tensors under scikit-learn's array API dispatch. `moments_of` and `mapped` find
    what is not finite.
    """
    if is_dask(X):
        check_dask(X, CALLER)
        return X
    X = checkable(X, CALLER, tensors=True)
    xp, *_ = get_namespace_and_device(X)
    return check_array(
        X,
        dtype=[xp.float64, xp.float32],
        ensure_all_finite=False,
        estimator=CALLER,
        input_name="X",
    )


def moments_of(X: Any, sample_weight: Any = None) -> Moments:
    """Moments of checked rows, or a ValueError if they are not finite."""
    with np.errstate(over="ignore", invalid="ignore"):
        if is_dask(X):  # a tree of merges on the active scheduler
            moments = dask_reduce(_moments_of_block, Moments.merge, X, sample_weight)
        else:
            weight = check_sample_weight(sample_weight, X)
            of_kind = Moments.from_array if isinstance(X, np.ndarray) else _moments_of_tensor
            moments = of_kind(X, weight)
    if not np.isfinite(moments.quartic):
        raise _not_finite(X, "The moments of X overflow float64")
    return moments


def mapped(X: Any, linear: AffineMap) -> Any:
    """Map rows, lazily for a dask array; or raise a ValueError if they are not finite."""
    if is_dask(X):
        return dask_apply(partial(mapped, linear=linear), X, len(linear.bias))
    with np.errstate(over="ignore", invalid="ignore"):
        if isinstance(X, np.ndarray):
            out = linear.product(X.dtype).apply(X)
        else:
            out = _mapped_tensor(X, linear)
        # One sum is cheap; it may overflow where no entry does, so a closer look decides.
        if not np.isfinite(float(out.sum())) and not np.isfinite(float(abs(out).max())):
            raise _not_finite(X, f"The mapped vectors overflow {out.dtype}")
    return out


def _not_finite(X: Any, overflow: str) -> ValueError:
    """Raise or return the error that says why a result is not finite."""
    if is_dask(X):  # each block was checked
        return ValueError(f"{overflow}. Scale X down.")
    assert_all_finite(X, estimator_name=CALLER, input_name="X")
    remedy = ", or pass it as float64" if str(X.dtype).endswith("float32") else ""
    return ValueError(
        f"{overflow}: the largest magnitude in X is {float(abs(X).max()):.3g}. Scale X "
        f"down{remedy}."
    )


def _moments_of_block(block: Any, weight: Any = None) -> Moments:
    block = as_floats(block)
    if not len(block):
        d = block.shape[1]
        return Moments(0, np.zeros(d), np.zeros((d, d)), np.zeros(d), 0.0)
    return moments_of(block, weight)


# If a device has no float64, such as Apple's GPUs, chunks move to the CPU for it: both share
# their memory, and compensated float32 sums would give other numbers.


def _moments_of_tensor(X: Any, weight: Any) -> Moments:
    xp, _, device = get_namespace_and_device(X)
    place = _device_of_float64(device)
    if weight is not None:
        weight = xp.astype(_on_device(weight, place), xp.float64)
    chunks = (
        (_on_device(X[rows, :], place), None if weight is None else weight[rows])
        for rows in _chunks(X)
    )
    return Moments.from_chunks(chunks, xp).on_cpu()


def _mapped_tensor(X: Any, linear: AffineMap) -> Any:
    xp, _, device = get_namespace_and_device(X)
    product = linear.product(np.dtype("float32" if X.dtype == xp.float32 else "float64"))
    work = getattr(xp, product.W.dtype.name)
    place = device if work == xp.float32 else _device_of_float64(device)
    offset, W, rest = (
        None if array is None else xp.asarray(array, dtype=work, device=place)
        for array in product
    )
    parts = []
    for rows in _chunks(X):
        x = xp.astype(_on_device(X[rows, :], place), work)
        z = (x if offset is None else x - offset) @ W
        z = z if rest is None else z - rest
        parts.append(_on_device(xp.astype(z, X.dtype), device))
    return xp.concat(parts)


def _chunks(X: Any) -> Iterator[slice]:
    return gen_batches(X.shape[0], rows_within(TENSOR_BYTES, X.shape[1]))


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
