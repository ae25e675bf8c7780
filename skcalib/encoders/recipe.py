"""The recipe of a fitted encoder: how texts become vectors.

A *slot* is a vector of a text: one hidden state under one pooling. A model computes slots. A
store may keep more of them than an encoder needs; `Recipe.merge` makes the encoder's vector
from the slots that it needs.
"""

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Self

import numpy as np

from skcalib.encoders.poolings import POOLINGS, SLOT_OF
from skcalib.inputs.vectors import unit_rows


class Slots(NamedTuple):
    """Vectors that a model computes for a text; a store keeps all of them."""

    names: Sequence[str]
    asked: Sequence[int]  # positions of the slots that an encoder needs
    # The slots of a `BertEncoder`: each of these hidden states under each of these poolings.
    layers: Sequence[int] = ()
    poolings: Sequence[str] = ()

    @classmethod
    def of(cls, layers: Sequence[int], poolings: Sequence[str], asked: Sequence[int]) -> Self:
        """Return each of some hidden states under each of some poolings."""
        names = [f"{layer} {pooling}" for layer in layers for pooling in poolings]
        return cls(names, asked, layers, poolings)


@dataclass(frozen=True)
class Recipe:
    """Everything that determines a vector of a `BertEncoder`, except its text.

    This is the fitted state; defaults are resolved. Equal recipes give equal vectors.
    """

    fingerprint: str  # of the model
    layers: tuple[int, ...]  # counted from 0, the output of the embedding layer
    pooling: str
    layer_merge: str
    prompt: str  # before each text, and each window of it, or around the ``{text}`` in it
    # Tokens at the beginning and at the end that are not pooled. Of a prompt with two texts
    # only the second one is pooled.
    skip: tuple[int, int]
    max_length: int  # most tokens of a text or window, special ones included
    truncate_dim: int  # leading dimensions of each layer that are kept
    windows: bool  # whether long texts are read whole, in windows, not cut off
    dtype: str  # of the forward pass
    normalize: bool = False  # to unit length
    lower_case: bool = False  # texts are lowercased first; the fingerprint covers this
    truncation_side: str = "right"  # on which long texts are cut

    @property
    def concatenates(self) -> bool:
        """Whether the vectors of several layers are concatenated."""
        return self.layer_merge == "concat" and len(self.layers) > 1

    @property
    def n_features(self) -> int:
        """Width of a vector."""
        return self.truncate_dim * (len(self.layers) if self.concatenates else 1)

    @property
    def slot(self) -> str:
        """Pooling of the slots from which a vector is made."""
        return SLOT_OF[self.pooling]

    @property
    def slots(self) -> Slots:
        """The slots from which a vector is made."""
        return Slots.of(self.layers, [self.slot], range(len(self.layers)))

    @property
    def slots_key(self) -> Hashable:
        """What the slots of a text depend on: all but how they are merged."""
        read = self.prompt, self.skip, self.max_length, self.windows, self.truncation_side
        return self.fingerprint, self.layers, self.slot, self.dtype, *read

    def merge(self, vectors: np.ndarray, counts: np.ndarray) -> np.ndarray:
        """Make the vectors of b texts, (b, n_features), from their slots, (b, n_layers, d).

        ``counts``, of shape (b, 4), are those of `Records`.
        """
        vectors = vectors[..., : self.truncate_dim]
        if POOLINGS[self.pooling].by_root:
            vectors = vectors * np.sqrt(counts[:, 0], dtype=np.float32)[:, None, None]
        if len(self.layers) == 1 or self.concatenates:
            vectors = vectors.reshape(len(vectors), -1)
        else:
            vectors = vectors.mean(axis=1)
        return unit_rows(vectors)[0].astype(np.float32) if self.normalize else vectors
