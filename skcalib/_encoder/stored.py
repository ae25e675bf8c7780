"""Texts through a store: vectors it knows are read, the others computed and kept."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from contextlib import closing
from typing import NamedTuple

import numpy as np

from skcalib._encoder.backbone import Backbone
from skcalib._encoder.batches import BLOCK, Encoded, encode
from skcalib._encoder.pooling import PRIMITIVES, primitive_of
from skcalib._store.claims import claim_one
from skcalib._store.store import POOLINGS, VectorStore
from skcalib._store.vectors import COUNTS, Space, Vectors

__all__ = ["encode_through"]


class _Layout(NamedTuple):
    """What a store keeps of each text that goes through a model."""

    layers: list[int]
    primitives: list[str]
    slots: dict[tuple[int, int], int]  # of the vector at each layer's and primitive's position
    space: Space


def encode_through(
    store: VectorStore,
    backbone: Backbone,
    texts: Sequence[str],
    *,
    layers: Sequence[int],
    primitive: str,
    max_length: int,
    batch_size: int | str = "auto",
) -> Generator[Encoded, None, None]:
    """Yield what `encode` does for one primitive; a text the store knows is not run again.

    One that it does not know is pooled in every way, and kept batch by batch.

    Raises
    ------
    ValueError
        If the store does not keep one of the layers, or not the primitive.
    """
    layout = _layout(store, backbone, max_length)
    if not set(layers) <= set(layout.layers) <= set(range(backbone.n_layers + 1)):
        raise ValueError(
            f"The store keeps the hidden states {layout.layers}; this model has 0 to "
            f"{backbone.n_layers}, and this encoder uses {list(layers)}. Make a VectorStore "
            "with layers that the model has and the encoder uses, or with layers=None."
        )
    if primitive not in layout.primitives:
        raise ValueError(
            f"The store keeps poolings={store.poolings!r}; this encoder needs "
            f"{primitive.removesuffix('_own')!r}. Make a VectorStore with poolings that the "
            "encoder uses, or with poolings=None."
        )
    columns = [layout.layers.index(layer) for layer in layers]
    column = layout.primitives.index(primitive)
    slots = [layout.slots[i, column] for i in columns]

    with closing(Vectors(store, layout.space)) as stored:
        stored.check_disk(texts)
        for start in range(0, len(texts), BLOCK):
            stop = min(start + BLOCK, len(texts))
            rest = yield from _known(stored, texts, np.arange(start, stop), slots)
            shares = stored.shares([texts[i] for i in rest.tolist()])
            while shares:
                with claim_one(shares) as share:
                    # Another worker may have encoded them since.
                    new = yield from _known(stored, texts, rest[share.positions], slots)
                    some = [texts[i] for i in new.tolist()]
                    for batch in _encode_and_keep(
                        stored, store.dtype, layout, backbone, some, batch_size
                    ):
                        vectors = batch.vectors[:, columns, column : column + 1]
                        yield batch._replace(rows=new[batch.rows], vectors=vectors)


def _layout(store: VectorStore, backbone: Backbone, max_length: int) -> _Layout:
    n_states = backbone.n_layers + 1
    asked = range(n_states) if store.layers is None else store.layers
    layers = sorted({i + n_states if i < 0 else i for i in asked})
    poolings = store.poolings or POOLINGS
    kept = {primitive_of(p, special_tokens=s) for p in poolings for s in (True, False)}
    primitives = [p for p in PRIMITIVES if p in kept and (p != "zipf" or backbone.has_zipf)]
    slots = {
        (i, j): layer * len(PRIMITIVES) + PRIMITIVES.index(primitive)
        for i, layer in enumerate(layers)
        for j, primitive in enumerate(primitives)
    }
    space = Space(
        backbone.fingerprint,
        max_length,
        backbone.precision,
        backbone.width,
        tuple(slots.values()),
    )
    return _Layout(layers, primitives, slots, space)


def _known(
    stored: Vectors, texts: Sequence[str], rows: np.ndarray, slots: Sequence[int]
) -> Generator[Encoded, None, np.ndarray]:
    """Yield what the store has of some rows of the texts; return the other rows."""
    is_new = np.ones(len(rows), dtype=bool)
    for found in stored.read([texts[i] for i in rows.tolist()], [*slots, COUNTS]):
        counts = found.arrays[COUNTS]
        vectors = np.stack([found.arrays[slot] for slot in slots], axis=1)[:, :, None]
        # The last count holds two: unknown tokens, twice, and whether the text was cut off.
        n_unknown, truncated = np.divmod(counts[:, 2], 2)
        n_tokens = np.column_stack([counts[:, :2], n_unknown])
        yield Encoded(rows[found.positions], vectors, n_tokens, truncated > 0)
        is_new[found.positions] = False
    return rows[is_new]


def _encode_and_keep(
    stored: Vectors,
    dtype: str,
    layout: _Layout,
    backbone: Backbone,
    texts: Sequence[str],
    batch_size: int | str,
) -> Generator[Encoded, None, None]:
    """Encode texts; keep and yield all that the store has of a text, batch by batch."""
    batches = encode(
        *(backbone, texts),
        layers=layout.layers,
        primitives=layout.primitives,
        max_length=layout.space.max_length,
        batch_size=batch_size,
    )
    with closing(batches):
        for batch in batches:
            # What is returned now is what will be read later, to the bit.
            with np.errstate(over="ignore"):
                vectors = batch.vectors.astype(dtype).astype(np.float32, copy=False)
            backbone.check_finite(vectors, texts, batch.rows)
            arrays = {slot: vectors[:, i, j] for (i, j), slot in layout.slots.items()}
            last = 2 * batch.n_tokens[:, 2] + batch.truncated
            arrays[COUNTS] = np.column_stack([batch.n_tokens[:, :2], last])
            kept = stored.write([texts[i] for i in batch.rows.tolist()], arrays)
            yield batch._replace(vectors=vectors, kept=kept)
