"""Texts in dask collections: lazy vectors, computed where the texts are."""

from __future__ import annotations

import numpy as np

__all__ = ["is_dask", "lazily"]


def is_dask(X) -> bool:
    """Whether ``X`` is a dask collection, without importing dask."""
    return callable(getattr(X, "__dask_graph__", None))


def lazily(encode, X, n_features: int):
    """Apply ``encode`` to each partition of a dask array, Series or Bag.

    Parameters
    ----------
    encode : callable
        From a list of texts to an array of shape (n_texts, n_features), float32. It is
        pickled to the workers.
    X : dask array of shape (n,) or (n, 1), Series, one-column frame or Bag
    n_features : int

    Returns
    -------
    vectors : dask array of shape (n, n_features)
        With unknown numbers of rows where the partitions do not tell theirs.
    """
    import dask
    import dask.array as da

    if isinstance(X, da.Array):
        rows = X.reshape(-1) if X.ndim == 2 and X.shape[1] == 1 else X
        if rows.ndim != 1:
            raise ValueError(
                f"BertEncoder got a dask array of shape {X.shape}; it takes one text per "
                "row. Select one column."
            )
        sizes, parts = rows.chunks[0], rows.to_delayed().ravel()
    elif hasattr(X, "to_delayed"):  # a Series, a frame or a Bag
        parts = X.to_delayed()
        sizes = (np.nan,) * len(parts)
    else:
        raise TypeError(
            f"BertEncoder got a {type(X).__name__}; of dask it takes arrays, Series, "
            "one-column frames and Bags."
        )
    run = dask.delayed(lambda texts: encode(texts) if len(texts) else _none(n_features))
    blocks = [
        da.from_delayed(run(part), shape=(size, n_features), dtype=np.float32)
        for part, size in zip(parts, sizes, strict=True)
    ]
    return da.concatenate(blocks, axis=0, allow_unknown_chunksizes=True)


def _none(n_features: int) -> np.ndarray:
    return np.empty((0, n_features), dtype=np.float32)
