"""Moments of dask arrays, block by block where the blocks are."""

from __future__ import annotations

import numpy as np

from skcalib._dask_rows import as_floats
from skcalib._moments import Moments

__all__ = ["dask_moments"]

FAN_IN = 8  # moments merged by one task


def dask_moments(X, weight=None) -> Moments:
    """Moments of the rows of a dask array: a tree of merges on the active scheduler.

    No task holds more than a block of rows, and only moments travel between workers. A
    worker that dies takes nothing along: its blocks are computed again.

    Parameters
    ----------
    X : dask array of shape (n, d)
        Unknown chunk sizes and empty blocks are fine.
    weight : array-like or dask array of shape (n,), or None
        How many times each row counts.
    """
    import dask
    import dask.array as da

    X = X.rechunk({1: -1})
    blocks = X.to_delayed().ravel()
    if weight is None:
        weights = [None] * len(blocks)
    else:
        if not isinstance(weight, da.Array):
            weight = da.from_array(np.asarray(weight, dtype=np.float64), chunks=-1)
        if not np.array_equal(weight.chunks, X.chunks[:1], equal_nan=True):
            weight = weight.rechunk(X.chunks[:1])
        weights = weight.to_delayed().ravel()
    moments_of, merge = dask.delayed(_of_block, pure=True), dask.delayed(_merged, pure=True)
    parts = [moments_of(block, w) for block, w in zip(blocks, weights, strict=True)]
    while len(parts) > 1:
        parts = [merge(parts[i : i + FAN_IN]) for i in range(0, len(parts), FAN_IN)]
    return parts[0].compute()


def _of_block(block, weight) -> Moments:
    block = as_floats(block)
    if not len(block):
        d = block.shape[1]
        return Moments(0, np.zeros(d), np.zeros((d, d)), np.zeros(d), 0.0)
    with np.errstate(
        over="ignore", invalid="ignore"
    ):  # the caller looks for what is not finite
        return Moments.from_array(block, weight)


def _merged(parts: list[Moments]) -> Moments:
    first, *others = parts
    for other in others:
        first = first.merge(other)
    return first
