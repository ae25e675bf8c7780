"""Rows that a flow trains on: held-out rows, and batches in random order."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from sklearn.utils import gen_batches

__all__ = ["shuffled_batches", "split"]

# Larger data are shuffled in runs of consecutive rows. As many runs as fit into a pool are
# read and shuffled row by row, so that the file behind a memory map is read in long stretches.
LARGE_BYTES, POOL_BYTES, RUN_ROWS = 2**30, 2**28, 256


def split(
    n_samples: int, validation_fraction: float | None, rng: np.random.RandomState
) -> tuple[np.ndarray, np.ndarray]:
    """Return the rows to train on and those to hold out, each in increasing order."""
    if validation_fraction is None:
        return np.arange(n_samples), np.arange(0)
    n_held_out = int(n_samples * validation_fraction)
    if n_held_out < 1 or n_samples - n_held_out < 2:
        raise ValueError(
            f"validation_fraction={validation_fraction} of {n_samples} samples holds out "
            f"{n_held_out} and leaves {n_samples - n_held_out} to train on; at least 1 and "
            "2 are needed. Choose another fraction, more samples, or None to hold out none."
        )
    order = rng.permutation(n_samples)
    return np.sort(order[n_held_out:]), np.sort(order[:n_held_out])


def shuffled_batches(
    X: np.ndarray, rows: np.ndarray, batch_size: int, rng: np.random.RandomState
) -> Iterator[np.ndarray]:
    """Yield copies of the given rows of X in random order, batch by batch.

    The last batch is filled up from the head of the order: it has fewer rows than
    ``batch_size`` only if there are fewer in all.
    """
    if X.nbytes <= LARGE_BYTES:
        order = _filled_up(rng.permutation(rows), batch_size)
        for batch in gen_batches(len(order), batch_size):
            yield X[order[batch]]
        return
    runs = np.array_split(rows, -(-len(rows) // RUN_ROWS))
    order = np.concatenate([runs[index] for index in rng.permutation(len(runs))])
    order = _filled_up(order, batch_size)
    pool_rows = batch_size * max(1, POOL_BYTES // (batch_size * X[0].nbytes))
    for part in gen_batches(len(order), pool_rows):
        pool = X[np.sort(order[part])]
        pool_order = rng.permutation(len(pool))
        for batch in gen_batches(len(pool), batch_size):
            yield pool[pool_order[batch]]


def _filled_up(order: np.ndarray, batch_size: int) -> np.ndarray:
    return np.concatenate((order, order[: -len(order) % batch_size]))
