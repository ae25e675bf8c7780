"""Texts through a store: vectors it knows are read, the others computed and kept."""

from __future__ import annotations

import time
from collections.abc import Generator, Iterator, Sequence
from contextlib import closing
from typing import NamedTuple

import numpy as np

from skcalib._backbone import Backbone
from skcalib._encoding import BLOCK, Encoded, encode
from skcalib._pooling import PRIMITIVES
from skcalib._row_threads import row_chunks
from skcalib._store import COUNTS, Found, Space, VectorStore

__all__ = ["encode_through"]

# Texts of a batch that is read: what stays in a core's cache.
READ = 256
# Seconds between looks at texts that another process is encoding, and until it is given up.
PAUSE, PATIENCE = 0.02, 120.0


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
        If the store does not keep one of the layers.
    """
    layout = _layout(store, backbone, max_length)
    if not set(layers) <= set(layout.layers) <= set(range(backbone.n_layers + 1)):
        raise ValueError(
            f"The store keeps the hidden states {layout.layers}; this model has 0 to "
            f"{backbone.n_layers}, and this encoder uses {list(layers)}. Make a VectorStore "
            "with layers that the model has and the encoder uses, or with layers=None."
        )
    columns = [layout.layers.index(layer) for layer in layers]
    column = layout.primitives.index(primitive)
    wanted = [*(layout.slots[i, column] for i in columns), COUNTS]
    for start in range(0, len(texts), BLOCK):
        rest, progress = texts[start : start + BLOCK], time.monotonic()
        new = start + np.arange(len(rest))
        while len(new):
            known, found = store.read(layout.space, rest, wanted)
            yield from _batches(new[known], [found[slot] for slot in wanted])
            new, n_before = new[~known], len(new)
            batches = _encode_unclaimed(
                *(store, layout, wanted, backbone, [texts[i] for i in new.tolist()]),
                patient=time.monotonic() - progress < PATIENCE,
                batch_size=batch_size,
            )
            done = np.zeros(len(new), dtype=bool)
            with closing(batches):  # gives up its claims, whoever breaks in here
                for batch in batches:
                    done[batch.rows] = True
                    vectors = batch.vectors[:, columns, column : column + 1]
                    yield batch._replace(rows=new[batch.rows], vectors=vectors)
            new = new[~done]
            rest = [texts[i] for i in new.tolist()]
            if len(new) < n_before:
                progress = time.monotonic()
            elif len(new):
                time.sleep(PAUSE)


def _layout(store: VectorStore, backbone: Backbone, max_length: int) -> _Layout:
    n_states = backbone.n_layers + 1
    asked = range(n_states) if store.layers is None else store.layers
    layers = sorted({i + n_states if i < 0 else i for i in asked})
    primitives = [p for p in PRIMITIVES if p != "zipf" or backbone.has_zipf]
    slots = {
        (i, j): layer * len(PRIMITIVES) + PRIMITIVES.index(primitive)
        for i, layer in enumerate(layers)
        for j, primitive in enumerate(primitives)
    }
    space = Space(
        backbone.fingerprint,
        max_length,
        str(backbone.dtype).removeprefix("torch."),
        backbone.width,
        tuple(slots.values()),
    )
    return _Layout(layers, primitives, slots, space)


def _batches(texts: np.ndarray, found: list[Found]) -> Iterator[Encoded]:
    """Yield the vectors found for some texts, given by number; their counts come last."""
    *layers, counts = found
    for part in row_chunks(slice(0, len(texts)), READ):
        n_tokens = counts.take(part)
        vectors = np.empty((len(layers), len(n_tokens), layers[0].array.shape[1]), np.float32)
        for layer, out in zip(layers, vectors, strict=True):
            layer.take(part, out=out)
        vectors = vectors.swapaxes(0, 1)[:, :, None]
        yield Encoded(texts[part], vectors, n_tokens[:, :2], n_tokens[:, 2] > 0)


def _encode_unclaimed(
    store: VectorStore,
    layout: _Layout,
    wanted: Sequence[int],
    backbone: Backbone,
    texts: Sequence[str],
    *,
    patient: bool,
    batch_size: int | str,
) -> Generator[Encoded, None, None]:
    """Encode, and keep, the texts that nobody else is encoding now.

    Yields them with all that is kept. Each batch is claimed until the next one is asked for.
    The caller comes back for the others. Not ``patient``, it takes them over from whoever does
    not get on with them.
    """
    owner, space = object(), layout.space

    def select(rows):
        store.release(owner)
        rows = rows[store.claim(owner, space, [texts[i] for i in rows]) if patient else ...]
        known, _ = store.read(space, [texts[i] for i in rows], wanted)  # by now
        return rows[~known]

    batches = encode(
        *(backbone, texts),
        layers=layout.layers,
        primitives=layout.primitives,
        max_length=space.max_length,
        batch_size=batch_size,
        select=select,
    )
    try:
        with closing(batches):
            for batch in batches:
                # What is returned now is what will be read later, to the bit.
                with np.errstate(over="ignore"):
                    vectors = batch.vectors.astype(store.dtype).astype(np.float32, copy=False)
                backbone.check_finite(vectors, texts, batch.rows)
                arrays = {slot: vectors[:, i, j] for (i, j), slot in layout.slots.items()}
                arrays[COUNTS] = np.column_stack([batch.n_tokens, batch.truncated])
                store.write(space, [texts[i] for i in batch.rows.tolist()], arrays)
                yield batch._replace(vectors=vectors)
    finally:
        try:
            store.release(owner)
        finally:
            store.release(owner)  # where an interrupt broke into the first
