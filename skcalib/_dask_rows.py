"""Rows of dask arrays: mapped lazily, or brought to disk, a few blocks at a time."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from tempfile import TemporaryFile

import numpy as np

__all__ = ["as_floats", "check_dask", "dask_apply", "on_disk"]

BLOCKS_AT_A_TIME = 8  # computed together, so that several workers have something to do


def check_dask(X, caller: str) -> None:
    """Raise a ValueError for a dask collection that is not a two-dimensional array."""
    import dask.array as da

    if not isinstance(X, da.Array) or X.ndim != 2:
        shape = f" of shape {X.shape}" if isinstance(X, da.Array) else ""
        raise ValueError(
            f"{caller} got a {type(X).__name__} of dask{shape}; it takes arrays of shape "
            "(n_samples, n_features). Convert a frame by to_dask_array()."
        )


def as_floats(block) -> np.ndarray:
    """Return the block as float32 or float64."""
    block = np.asarray(block)
    return block if block.dtype in (np.float32, np.float64) else block.astype(np.float64)


def dask_apply(function, X, width: int):
    """Lazy ``function(rows)`` of ``width`` columns, block by block of a dask array's rows."""
    import dask

    dtype = _float_dtype(X)
    X = X.rechunk({1: -1})
    return X.map_blocks(
        _call,
        # A node of the graph of its own, so that it is sent once, not with every block.
        dask.delayed(function, pure=True),
        chunks=(X.chunks[0], (width,)),
        dtype=dtype,
        meta=np.empty((0, 0), dtype=dtype),
    )


def _call(block, function):
    return function(as_floats(block))


@contextmanager
def on_disk(X) -> Iterator[np.ndarray]:
    """Give the rows of a dask array as a memory map of a temporary file, gone afterwards.

    Each block is computed once, which may mean encoding its texts, and no more than
    `BLOCKS_AT_A_TIME` of them are in memory. The file is in the folder that `tempfile`
    chooses; the environment variable TMPDIR names another.
    """
    import dask

    dtype = _float_dtype(X)
    parts = X.rechunk({1: -1}).to_delayed().ravel().tolist()
    n_rows = 0
    with TemporaryFile(prefix="skcalib-") as file:
        for start in range(0, len(parts), BLOCKS_AT_A_TIME):
            for block in dask.compute(*parts[start : start + BLOCKS_AT_A_TIME]):
                np.ascontiguousarray(block, dtype=dtype).tofile(file)
                n_rows += len(block)
        shape = (n_rows, X.shape[1])
        yield np.memmap(file, dtype, "r", shape=shape) if n_rows else np.empty(shape, dtype)


def _float_dtype(X) -> np.dtype:
    return X.dtype if X.dtype in (np.float32, np.float64) else np.dtype(np.float64)
