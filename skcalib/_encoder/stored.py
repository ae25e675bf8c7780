"""Texts by way of a store: vectors that it knows are read, the others computed and kept."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from contextlib import closing
from typing import Any

import numpy as np

from skcalib._encoder.backbone import Backbone
from skcalib._encoder.batches import BLOCK, Encoded, encode
from skcalib._encoder.pooling import PRIMITIVES, primitive_of
from skcalib._store.database import turn
from skcalib._store.store import VectorStore
from skcalib._store.vectors import Vectors

__all__ = ["StoredModel"]

TURN = 1024  # texts that a worker encodes before it lets others have their turn


class StoredModel:
    """A model whose vectors a store keeps, during one call of the user; to be closed."""

    def __init__(
        self,
        store: VectorStore,
        backbone: Backbone,
        *,
        layers: Sequence[int],
        primitive: str,
        max_length: int,
        skip: int,
    ):
        n_states = backbone.n_layers + 1
        asked = range(n_states) if store.layers is None else store.layers
        states = sorted({i + n_states if i < 0 else i for i in asked})
        if not set(layers) <= set(states) <= set(range(n_states)):
            raise ValueError(
                f"The store keeps the hidden states {states}; this model has 0 to "
                f"{backbone.n_layers}, and this encoder uses {list(layers)}. Make a "
                "VectorStore with layers that the model has and the encoder uses, or with "
                "layers=None."
            )
        kept = {primitive_of(p, own) for p in store._poolings for own in (True, False)}
        if primitive not in kept:
            raise ValueError(
                f"The store keeps pooling={store.pooling!r}; this encoder needs "
                f"{primitive.removesuffix('_own')!r}. Make a VectorStore with a pooling that "
                "the encoder uses, or with pooling=None."
            )
        if not backbone.has_zipf:
            kept -= {"zipf"}
        later = {"last", "weighted_mean"}
        if store.pooling is None and primitive not in later and not backbone.is_causal:
            kept -= later
        primitives = [p for p in PRIMITIVES if p in kept]
        self._backbone, self._dtype = backbone, store.dtype
        self._options: dict[str, Any] = {"layers": states, "primitives": primitives}
        self._options |= {"max_length": max_length, "skip": skip}
        self._slots = [f"{i} {p}" for i in states for p in primitives]
        self._asked = [f"{i} {primitive}" for i in layers]
        model = backbone.fingerprint, max_length, skip, backbone.precision, *self._slots
        self._stored = Vectors(store, "|".join(map(str, model)), backbone.width)
        self.close = self._stored.close

    @property
    def origin(self) -> tuple:
        """What tells the vectors in this store from all others; unique if that is unknown."""
        return self._dtype, self._stored.store_id or object()

    def encode(
        self, texts: Sequence[str], batch_size: int | str
    ) -> Generator[Encoded, None, None]:
        """Yield what `encode` does for the layers and the primitive.

        A text that the store does not know is pooled in every way, and kept batch by batch.
        """
        for start in range(0, len(texts), BLOCK):
            block = np.arange(start, min(start + BLOCK, len(texts)))
            rows = yield from self._known(texts, block)
            for i in range(0, len(rows), TURN):
                with turn(self._stored.path.parent):
                    # Another worker may have encoded some since.
                    new = yield from self._known(texts, rows[i : i + TURN])
                    yield from self._computed(texts, new, batch_size)

    def _known(
        self, texts: Sequence[str], rows: np.ndarray
    ) -> Generator[Encoded, None, np.ndarray]:
        """Yield what the store has of some rows of the texts; return the other rows."""
        known, vectors, counts = self._stored.read([texts[row] for row in rows], self._asked)
        if known.any():
            counts = counts[known]
            yield Encoded(rows[known], vectors[known, :, None], counts[:, :3], counts[:, 3] > 0)
        return rows[~known]

    def _computed(
        self, texts: Sequence[str], rows: np.ndarray, batch_size: int | str
    ) -> Generator[Encoded, None, None]:
        """Encode some rows of the texts; keep them in every way, yield what is asked for."""
        asked = [self._slots.index(slot) for slot in self._asked]
        new = [texts[row] for row in rows]
        batches = encode(self._backbone, new, batch_size=batch_size, **self._options)
        with closing(batches):
            for batch in batches:
                # What is returned now is what will be read later, to the bit.
                with np.errstate(over="ignore"):
                    vectors = batch.vectors.astype(self._dtype).astype(np.float32, copy=False)
                self._backbone.check_finite(vectors, new, batch.rows)
                vectors = vectors.reshape(len(vectors), len(self._slots), -1)
                counts = np.column_stack([batch.n_tokens, batch.truncated])
                some = [new[row] for row in batch.rows]
                kept = self._stored.write(some, self._slots, vectors, counts)
                vectors = vectors[:, asked, None]
                yield batch._replace(rows=rows[batch.rows], vectors=vectors, kept=kept)
