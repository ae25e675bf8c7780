"""Rows of dask arrays: mapped lazily, merged in a tree, or written to disk by blocks."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial, reduce
from tempfile import TemporaryFile
from typing import Any

import numpy as np
from sklearn.utils.validation import check_array, check_consistent_length

from skcalib.compat import get_output_container

BLOCKS_AT_A_TIME = 8  # computed together, so that several workers have something to do
FAN_IN = 8  # results of blocks that one task merges


def check_lazy(estimator: Any) -> None:
    """Refuse an output container, which would compute a lazy array as a whole."""
    if (container := get_output_container(estimator)) != "default":
        raise ValueError(
            f"{type(estimator).__name__} got a dask array, which stays lazy, but set_output "
            f"asks for {container}. Pass X.compute(), or call set_output(transform='default')."
        )


def as_floats(block: Any) -> np.ndarray:
    """Return the block as float32 or float64; refuse complex and non-finite entries."""
    floats = [np.float64, np.float32]
    return check_array(block, dtype=floats, ensure_min_samples=0, input_name="X")


def dask_apply(function: Callable[[np.ndarray], np.ndarray], X: Any, width: int) -> Any:
    """Apply ``function``, which returns ``width`` columns, lazily to blocks of rows.

    Blocks may be empty, as after a selection of rows; the function is not called on these.
    """
    import dask

    dtype = _float_dtype(X)
    nothing = np.empty((0, width), dtype=dtype)
    X = X.rechunk({1: -1})
    return X.map_blocks(
        lambda block, function: function(as_floats(block)) if len(block) else nothing,
        # As its own node of the graph, it is sent once instead of with every block.
        dask.delayed(function, pure=True),
        chunks=(X.chunks[0], (width,)),
        dtype=dtype,
        meta=np.empty((0, 0), dtype=dtype),
    )


def dask_reduce(
    of_block: Callable[..., Any], merge: Callable[[Any, Any], Any], X: Any, *columns: Any
) -> Any:
    """Merge ``of_block(rows, *parts)`` of a dask array's blocks of rows in a tree.

    No task holds more than a block of rows, and only results travel between workers. If a
    worker dies, its blocks are computed again. Chunk sizes may be unknown, and blocks may be
    empty. ``columns`` are arrays of NumPy or dask with an entry for each row; None is left out.
    """
    import dask
    import dask.array as da

    X = X.rechunk({1: -1})
    blocks = [X.to_delayed().ravel()]
    for column in (da.asarray(column) for column in columns if column is not None):
        check_consistent_length(*(a for a in (X, column) if not np.isnan(a.shape[0])))
        if not np.array_equal(column.chunks, X.chunks[:1], equal_nan=True):
            column = column.rechunk(X.chunks[:1])
        blocks.append(column.to_delayed().ravel())
    start = dask.delayed(of_block, pure=True)
    join = dask.delayed(partial(reduce, merge), pure=True)
    parts = [start(*arguments) for arguments in zip(*blocks, strict=True)]
    while len(parts) > 1:
        parts = [join(parts[i : i + FAN_IN]) for i in range(0, len(parts), FAN_IN)]
    return parts[0].compute()


@contextmanager
def on_disk(X: Any) -> Iterator[np.ndarray]:
    """Yield the rows of a dask array as a memory map of a file that is deleted afterwards.

    Each block is computed once, which may mean encoding its texts, and no more than
    `BLOCKS_AT_A_TIME` of them are in memory. The file is in the folder that `tempfile`
    chooses; set the environment variable TMPDIR for another one.
    """
    import dask

    dtype = _float_dtype(X)
    parts = X.rechunk({1: -1}).to_delayed().ravel().tolist()
    n_rows = 0
    with TemporaryFile(prefix="skcalib-") as file:
        for start in range(0, len(parts), BLOCKS_AT_A_TIME):
            for block in dask.compute(*parts[start : start + BLOCKS_AT_A_TIME]):
                as_floats(block).astype(dtype, copy=False).tofile(file)
                n_rows += len(block)
        shape = (n_rows, X.shape[1])
        yield np.memmap(file, dtype, "r", shape=shape) if n_rows else np.empty(shape, dtype)


def _float_dtype(X: Any) -> np.dtype:
    return X.dtype if X.dtype in (np.float32, np.float64) else np.dtype(np.float64)
