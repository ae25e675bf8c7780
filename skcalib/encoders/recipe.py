"""How texts become vectors: poolings, the recipe of a fitted encoder, what a store keeps.

A *slot* is a vector of a text: one hidden state under one pooling. A model computes slots. A
store may keep more of them than an encoder needs; `Recipe.merge` makes the encoder's vector
from the slots that it needs.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from skcalib.inputs.vectors import unit_rows

if TYPE_CHECKING:
    from skcalib.encoders.model.backbone import Backbone
    from skcalib.encoders.store.store import VectorStore


TEXT = "{text}"  # stands for the text in a prompt


class Pooling(NamedTuple):
    """How the hidden states of a text's tokens, (N, d), become one vector of d numbers.

    It selects one token, or takes a mean or a maximum. The windows of a text are combined
    likewise: means and first tokens by a weighted mean, maxima by the maximum; the last token
    is that of the last window.
    """

    # Weights of a mean from three arrays, of NumPy or torch: whether a token counts, its place
    # from 1 on, its Zipf weight. A mean divides by their sum.
    weight: Callable[[Any, Any, Any], Any] | None = None
    token: int | None = None  # the token that it selects: 0 or -1
    own: bool = False  # special tokens do not count
    slot: str | None = None  # from which it is computed; None for the slot of its name
    by_root: bool = False  # divides a sum by the square root of its number of tokens
    # Whether the weight of a token depends only on its id, so that a table of words can hold
    # it.
    by_word: bool = False
    by_frequency: bool = False  # needs the frequency ranks of tokens
    # Whether a store of all poolings keeps it only for decoders, and for encoders that use it.
    of_decoders: bool = False
    theirs: tuple[str, str] | None = None  # names in sentence-transformers: from 6 on, before

    @property
    def is_maximum(self) -> bool:
        """Whether it takes the maximum of each dimension, neither a mean nor one token."""
        return self.weight is None and self.token is None


def _equal(counts: Any, place: Any, zipf: Any) -> Any:
    return counts * 1.0


def _by_place(counts: Any, place: Any, zipf: Any) -> Any:
    return counts * place


def _not_first(counts: Any, place: Any, zipf: Any) -> Any:
    return counts * (place > 1)


def _by_zipf(counts: Any, place: Any, zipf: Any) -> Any:
    return counts * zipf


# In the order of the vectors on disk. A name with "_own" is the pooling before it with
# ``special_tokens=False``.
_TABLE = {
    "cls": Pooling(token=0, theirs=("cls", "cls_token")),
    "mean": Pooling(_equal, by_word=True, theirs=("mean", "mean_tokens")),
    "max": Pooling(theirs=("max", "max_tokens")),
    "mean_own": Pooling(_equal, own=True, by_word=True),
    "max_own": Pooling(own=True),
    "zipf": Pooling(_by_zipf, own=True, by_word=True, by_frequency=True),
    "last": Pooling(token=-1, of_decoders=True, theirs=("lasttoken", "lasttoken")),
    "weighted_mean": Pooling(
        _by_place, of_decoders=True, theirs=("weightedmean", "weightedmean_tokens")
    ),
    # Decoders attend to the first token where there is nothing to attend to. In inner layers
    # one of its coordinates is a thousand times the others, and would be all of a mean.
    "mean_without_first": Pooling(_not_first, of_decoders=True),
    "mean_sqrt_len": Pooling(
        slot="mean", by_root=True, theirs=("mean_sqrt_len_tokens", "mean_sqrt_len_tokens")
    ),
}
POOLINGS = {name: how for name, how in _TABLE.items() if not name.endswith("_own")}
SLOTS = {name: how for name, how in _TABLE.items() if how.slot is None}


def around(prompt: str) -> tuple[str, str]:
    """Return what a prompt puts before and after each text; before it without ``{text}``."""
    before, _, after = prompt.partition(TEXT)
    return before, after


def slot_of(pooling: str, special_tokens: bool) -> str:
    """Return the slot from which a pooling is computed."""
    slot = POOLINGS[pooling].slot or pooling
    return f"{slot}_own" if not special_tokens and f"{slot}_own" in SLOTS else slot


@dataclass(frozen=True)
class Recipe:
    """Everything that determines a vector of a `BertEncoder`, except its text.

    This is the fitted state; defaults are resolved. Equal recipes give equal vectors.
    """

    fingerprint: str  # of the model, and of `token_weights` if there are any
    layers: tuple[int, ...]  # counted from 0, the output of the embedding layer
    pooling: str
    special_tokens: bool
    layer_merge: str
    prompt: str  # before each text, and each window of it, or around the ``{text}`` in it
    skip: tuple[int, int]  # tokens at the beginning and at the end that are not pooled
    max_length: int  # most tokens of a text or window, special ones included
    truncate_dim: int  # leading dimensions of each layer that are kept
    stride: int | None  # tokens that windows of a text share; None if long texts are cut off
    dtype: str  # of the forward pass
    normalize: bool = False  # to unit length
    lower_case: bool = False  # texts are lowercased first; the fingerprint covers this
    truncation_side: str = "right"  # on which long texts are cut
    token_weights: np.ndarray | None = field(default=None, compare=False, repr=False)

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
        return slot_of(self.pooling, self.special_tokens)

    @property
    def slots_key(self) -> Hashable:
        """What the slots of a text depend on: all but how they are merged."""
        read = self.prompt, self.skip, self.max_length, self.stride, self.truncation_side
        return self.fingerprint, self.layers, self.slot, self.dtype, *read

    def merge(self, vectors: np.ndarray, counts: np.ndarray) -> np.ndarray:
        """Make the vectors of b texts, (b, n_features), from their slots, (b, n_layers, d).

        ``counts``, of shape (b, 4), are those of `Records`.
        """
        vectors = vectors[..., : self.truncate_dim]
        if POOLINGS[self.pooling].by_root:
            n_tokens = counts[:, 0 if self.special_tokens else 1]
            vectors = vectors * np.sqrt(n_tokens, dtype=np.float32)[:, None, None]
        if len(self.layers) == 1 or self.concatenates:
            vectors = vectors.reshape(len(vectors), -1)
        else:
            vectors = vectors.mean(axis=1)
        return unit_rows(vectors)[0].astype(np.float32) if self.normalize else vectors


class Slots(NamedTuple):
    """Vectors that a model computes for a text; a store keeps all of them."""

    names: Sequence[str]
    asked: Sequence[int]  # positions of the slots that an encoder needs
    # The slots of a `BertEncoder`: each of these hidden states under each of these poolings.
    layers: Sequence[int] = ()
    poolings: Sequence[str] = ()


def slots_of(recipe: Recipe, backbone: Backbone, store: VectorStore | None) -> Slots:
    """Return the slots that a recipe needs, or all that a store keeps, if it keeps these."""
    slot, needed = recipe.slot, list(recipe.layers)
    if store is None:
        return _slots(needed, [slot], list(range(len(needed))))
    n_states = backbone.n_layers + 1
    kept_layers = range(n_states) if store.layers is None else store.layers
    layers = sorted({i + n_states if i < 0 else i for i in kept_layers})
    kept = {slot_of(p, special) for p in store._poolings for special in (True, False)}
    if slot not in kept or not {*needed} <= {*layers} <= {*range(n_states)}:
        raise ValueError(
            f"The store keeps the hidden states {layers} with pooling={store.pooling!r}; this "
            f"encoder uses {needed} with {recipe.pooling!r}, and its model has 0 to "
            f"{backbone.n_layers}. Create a VectorStore with the layers and the pooling of the "
            "encoder, or without both."
        )
    rare = store.pooling is not None or SLOTS[slot].of_decoders or backbone.is_causal
    poolings = [
        name
        for name, how in SLOTS.items()
        if name in kept
        and (rare or not how.of_decoders)
        and (backbone.has_zipf or not how.by_frequency)
    ]
    places = [layers.index(i) * len(poolings) + poolings.index(slot) for i in needed]
    return _slots(layers, poolings, places)


def _slots(layers: list[int], poolings: list[str], asked: list[int]) -> Slots:
    names = [f"{layer} {pooling}" for layer in layers for pooling in poolings]
    return Slots(names, asked, layers, poolings)
