"""Vectors of texts: each text once, from memory, by way of a store, or through the model."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, closing
from typing import Any, NamedTuple

import numpy as np

from skcalib._encoder.backbone import Backbone
from skcalib._encoder.batches import Encoded, encode
from skcalib._encoder.pooling import primitive_of
from skcalib._encoder.recent import RECENT
from skcalib._encoder.stored import StoredModel
from skcalib._store.store import VectorStore
from skcalib._texts import distinct

__all__ = ["Recipe", "Totals", "vectors_of"]


class Recipe(NamedTuple):
    """What decides on a vector, beside its text and the model."""

    layers: tuple[int, ...]
    pooling: str
    special_tokens: bool
    layer_merge: str
    max_length: int
    dtype: str  # of the forward pass
    skip: int  # tokens of a prompt that are not pooled


class Totals(NamedTuple):
    """What is counted over all texts of a call."""

    n_tokens: int  # without special ones
    n_unknown: int
    n_truncated: int  # texts that were cut off


def vectors_of(
    blocks: Iterable[Sequence[str]],
    backbone: Backbone,
    recipe: Recipe,
    *,
    store: VectorStore | None,
    batch_size: int | str,
    advance: Callable[[int], None],
) -> tuple[np.ndarray, Totals]:
    """Encode blocks of texts, one or more; return vectors, (n_texts, n_features), and totals.

    ``advance`` is called with numbers of texts that are done.
    """
    options: dict[str, Any] = {"store": store, "batch_size": batch_size, "advance": advance}
    vectors, counts = _stacked(
        _of_block(texts, backbone, recipe, **options) for texts in blocks
    )
    return vectors, Totals(*counts.tolist())


def _of_block(
    texts: Sequence[str],
    backbone: Backbone,
    recipe: Recipe,
    *,
    store: VectorStore | None,
    batch_size: int | str,
    advance: Callable[[int], None],
) -> tuple[np.ndarray, np.ndarray]:
    """Return vectors of texts, and the sums of `Totals`."""
    unique, inverse = distinct(texts)
    times = np.bincount(inverse)  # each distinct text occurs
    n_merged = len(recipe.layers) if recipe.layer_merge == "concat" else 1
    vectors = np.empty((len(unique), n_merged * backbone.width), dtype=np.float32)
    counts = np.empty((len(unique), 4), dtype=np.int32)  # `Encoded.n_tokens`, and truncated
    primitive = primitive_of(recipe.pooling, recipe.special_tokens)
    options: dict[str, Any] = {"layers": recipe.layers}
    options |= {"max_length": recipe.max_length, "skip": recipe.skip}
    with ExitStack() as stack:
        stored = None
        if store is not None:
            stored = StoredModel(store, backbone, primitive=primitive, **options)
            stack.enter_context(closing(stored))
        rows = RECENT.read(_origin(backbone, recipe, stored), unique, vectors, counts)
        advance(int(times.sum() - times[rows].sum()))
        missing = [unique[row] for row in rows]
        if stored is not None:
            batches = stored.encode(missing, batch_size)
        else:
            options |= {"primitives": [primitive], "batch_size": batch_size}
            batches = encode(backbone, missing, **options)
        stack.enter_context(closing(batches))
        for batch in batches:
            done = rows[batch.rows]
            merged = _merged(batch, recipe)
            if stored is None:
                backbone.check_finite(merged, unique, done)
            vectors[done] = merged
            counts[done] = np.column_stack([batch.n_tokens, batch.truncated])
            if batch.kept:
                origin = _origin(backbone, recipe, stored)
                RECENT.write(origin, [unique[row] for row in done], merged, counts[done])
            advance(int(times[done].sum()))
    return vectors if len(unique) == len(texts) else vectors[inverse], times @ counts[:, 1:]


def _origin(backbone: Backbone, recipe: Recipe, stored: StoredModel | None) -> tuple:
    """Return what decides, beside a text, what its vector is and where it is kept.

    A store that is new, was cleared or is another file has vectors of its own, so that texts
    which it lacks are never answered from memory.
    """
    origin = backbone.fingerprint, backbone.device, recipe
    return origin if stored is None else (*origin, stored.origin)


def _merged(batch: Encoded, recipe: Recipe) -> np.ndarray:
    """Merge the layers of a batch; ndarray of shape (n_texts, n_features)."""
    layered = batch.vectors[:, :, 0]  # (b, n_layers, d)
    if recipe.pooling == "mean_sqrt_len":
        n_tokens = batch.n_tokens[:, 0 if recipe.special_tokens else 1]
        layered *= np.sqrt(n_tokens, dtype=np.float32)[:, None, None]
    if recipe.layer_merge == "mean" and layered.shape[1] > 1:
        first, *others = layered.swapaxes(0, 1)
        for other in others:  # in place; mean() would divide in float64, too
            first += other
        first /= np.float32(len(recipe.layers))
        layered = first
    return layered.reshape(len(layered), -1)


def _stacked(encoded: Iterator[tuple[np.ndarray, np.ndarray]]) -> tuple[np.ndarray, np.ndarray]:
    """Put the vectors of blocks on top of each other; add up their counts.

    The array grows in place by a 32nd at a time, so that it is never there twice.
    """
    vectors, counts = next(encoded)
    n_rows = len(vectors)
    for block, more in encoded:
        stop = n_rows + len(block)
        if stop > len(vectors):
            vectors.resize((max(stop, stop * 33 // 32), vectors.shape[1]), refcheck=False)
        vectors[n_rows:stop] = block
        n_rows, counts = stop, counts + more
    if n_rows < len(vectors):
        vectors.resize((n_rows, vectors.shape[1]), refcheck=False)
    return vectors, counts
