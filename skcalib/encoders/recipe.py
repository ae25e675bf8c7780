"""The recipe of a fitted encoder: how texts become vectors.

A *slot* is a vector of a text: one hidden state under one pooling. `Recipe.merge` makes the
encoder's vector from the slots that it needs; a store may keep more.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from numbers import Integral
from typing import TYPE_CHECKING, Any, NamedTuple, Self

import numpy as np

from skcalib.base import warn
from skcalib.encoders.model.tokens import TEXT, Frame, around
from skcalib.inputs.vectors import unit_rows

if TYPE_CHECKING:
    from skcalib.encoders.model.declared import Declared
    from skcalib.encoders.model.load import Backbone  # imports torch

LAYER_NAMES = {
    "last": (-1,),
    "last2": (-2, -1),
    "first_last": (1, -1),
    "embedding_last": (0, -1),
    "first-last-avg": (1, -1),  # as the papers write it
}
AMBIGUOUS = "last2avg", "avg-last-2"


class Pooling(NamedTuple):
    """How the hidden states of a text's tokens, (N, d), become one vector of d numbers."""

    # Weights of a mean from two arrays, of NumPy or torch: the place of each token, from 1 on,
    # and its Zipf weight. None means that all tokens count equally.
    weight: Callable[[Any, Any], Any] | None = None
    token: int | None = None  # the token that it selects: 0 or -1
    maximum: bool = False  # takes the maximum of each dimension
    own: bool = False  # special tokens do not count
    by_word: bool = False  # whether the weight of a token depends only on its id
    by_frequency: bool = False  # needs the frequency ranks of tokens
    # Whether a store of all poolings keeps it only for decoders, and for encoders that use it.
    of_decoders: bool = False
    st_names: tuple[str, str] | None = None  # in sentence-transformers: from 6 on, before


# In the order of the vectors on disk. A name with "_own" is without special tokens.
POOLINGS = {
    "cls": Pooling(token=0, st_names=("cls", "cls_token")),
    "mean": Pooling(by_word=True, st_names=("mean", "mean_tokens")),
    "max": Pooling(maximum=True, st_names=("max", "max_tokens")),
    "mean_own": Pooling(own=True, by_word=True),
    "max_own": Pooling(maximum=True, own=True),
    "zipf": Pooling(lambda place, zipf: zipf, own=True, by_word=True, by_frequency=True),
    "last": Pooling(token=-1, of_decoders=True, st_names=("lasttoken", "lasttoken")),
    "weighted_mean": Pooling(
        lambda place, zipf: place,
        of_decoders=True,
        st_names=("weightedmean", "weightedmean_tokens"),
    ),
    # Decoders attend to the first token where there is nothing to attend to. In inner layers
    # one of its coordinates is a thousand times the others, and would be all of a mean.
    "mean_without_first": Pooling(lambda place, zipf: place > 1, of_decoders=True),
}

PAPERS = {"CLS": "cls", "avg": "mean"}  # names of poolings in the papers


class Slots(NamedTuple):
    """Vectors that a model computes for a text; a store keeps all of them."""

    names: Sequence[str]
    needed: Sequence[int]  # positions of the slots that an encoder needs
    # The slots of a `BertEncoder`: each of these hidden states under each of these poolings.
    layers: Sequence[int] = ()
    poolings: Sequence[str] = ()

    @classmethod
    def of(cls, layers: Sequence[int], poolings: Sequence[str], needed: Sequence[int]) -> Self:
        """Return each hidden state of `layers` under each of the poolings."""
        names = [f"{layer} {pooling}" for layer in layers for pooling in poolings]
        return cls(names, needed, layers, poolings)


@dataclass(frozen=True)
class Recipe:
    """Everything that determines a vector of a `BertEncoder`, except its text."""

    fingerprint: str  # of the model
    reading: str  # of the installed tokenizer, see `Tokens.reading`
    layers: tuple[int, ...]  # counted from 0, the output of the embedding layer
    pooling: str
    layer_merge: str
    prompt: str  # before each text, and each window of it, or around the ``{text}`` in it
    skip: tuple[int, int]  # tokens at the beginning and at the end that are not pooled
    max_length: int  # most tokens of a text or window, special ones included
    truncate_dim: int  # leading dimensions of each layer that are kept
    windows: bool  # whether long texts are read whole, in windows, not cut off
    dtype: str  # of the forward pass
    normalize: bool = False  # to unit length
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
    def slots(self) -> Slots:
        """The slots from which a vector is made."""
        return Slots.of(self.layers, [self.pooling], range(len(self.layers)))

    @property
    def slots_key(self) -> Hashable:
        """What the slots of a text depend on: all but how they are merged."""
        read = self.prompt, self.skip, self.max_length, self.windows, self.truncation_side
        return self.fingerprint, self.layers, self.pooling, self.dtype, *read

    def merge(self, vectors: np.ndarray) -> np.ndarray:
        """Make the vectors of b texts, (b, n_features), from their slots, (b, n_layers, d)."""
        vectors = vectors[..., : self.truncate_dim]
        if len(self.layers) == 1 or self.concatenates:
            vectors = vectors.reshape(len(vectors), -1)
        else:
            vectors = vectors.mean(axis=1)
        return unit_rows(vectors)[0].astype(np.float32) if self.normalize else vectors


def recipe_for(encoder: Any, backbone: Backbone, shipped: Declared) -> Recipe:
    """Resolve the parameters of an encoder; refuse what its model cannot do."""
    ids_of = backbone.tokens.ids_of
    if shipped.lower_case and ids_of("A b") != ids_of("a b"):
        raise ValueError(
            "The folder declares do_lower_case, but its tokenizer tells cases apart. Delete "
            "the entry to keep them, or wrap the SentenceTransformer in a TextEncoder."
        )
    layers = resolve_layers(encoder.layers, backbone.n_layers)
    pooling = _pooling(encoder.pooling, shipped)
    if POOLINGS[pooling].by_frequency:
        backbone.tokens.zipf  # noqa: B018, an error if it has none
    prompt = shipped.prompt(encoder.prompt)
    max_length = _max_length(encoder.max_length, backbone, shipped)
    frame = _frame(backbone, prompt, max_length)
    _warn_of_prompt(encoder.prompt or "", shipped)
    _warn_of_pooling(pooling, layers, backbone)
    is_shipped = layers == (backbone.n_layers,) and pooling == shipped.pooling
    normalizes = shipped.normalizes and is_shipped
    sides = {"cut_left": "left", "cut_right": "right"}
    return Recipe(
        fingerprint=backbone.fingerprint,
        reading=backbone.tokens.reading,
        layers=layers,
        pooling=pooling,
        layer_merge=encoder.layer_merge,
        prompt=prompt,
        skip=(0, 0) if shipped.include_prompt else _n_of_prompt(backbone, frame, prompt),
        max_length=max_length,
        truncate_dim=_truncate_dim(encoder.truncate_dim, backbone.width, shipped),
        normalize=normalizes if encoder.normalize == "auto" else bool(encoder.normalize),
        windows=encoder.overflow == "windows",
        dtype=encoder.dtype,
        truncation_side=sides.get(encoder.overflow, backbone.tokens.tokenizer.truncation_side),
    )


def resolve_layers(layers: Any, n_layers: int) -> tuple[int, ...]:
    """Resolve `layers` to indices of hidden states, counted from 0."""
    if isinstance(layers, str) and layers in AMBIGUOUS:
        raise ValueError(
            f"layers={layers!r} has two meanings: by its name the last two layers, 'last2'; in "
            "BERT-flow's code the first and the last one, 'first_last'. Pass one of these."
        )
    indices = LAYER_NAMES.get(layers, layers) if isinstance(layers, str) else layers
    indices = (indices,) if isinstance(indices, Integral) else tuple(indices)
    are_ints = all(isinstance(i, Integral) and not isinstance(i, bool) for i in indices)
    if not indices or not are_ints:
        raise ValueError(
            f"layers={layers!r}; expected an int, a tuple of one or more ints, or one of "
            f"{sorted(LAYER_NAMES)}."
        )
    if beyond := [i for i in indices if not -n_layers - 1 <= i <= n_layers]:
        raise ValueError(
            f"layers={layers!r} asks for hidden state {beyond[0]}; this model has {n_layers} "
            f"layers, so its hidden states are 0 (embeddings) to {n_layers}, or "
            f"{-n_layers - 1} to -1 from the end."
        )
    return tuple(int(i) % (n_layers + 1) for i in indices)


def _pooling(pooling: str, shipped: Declared) -> str:
    if pooling == "auto" and shipped.pooling not in POOLINGS:
        raise ValueError(
            f"The folder declares the pooling {shipped.pooling!r}; BertEncoder has only "
            f"{tuple(POOLINGS)}. Pass one of these as pooling to leave out the other modules, "
            "or wrap the SentenceTransformer in a TextEncoder to apply all of them."
        )
    return shipped.pooling if pooling == "auto" else PAPERS.get(pooling, pooling)


def _frame(backbone: Backbone, prompt: str, max_length: int) -> Frame:
    """Tokens around each text; refuse a prompt without room for a text, or with three."""
    if (n_texts := prompt.count(TEXT)) > 2:
        raise ValueError(
            f"The prompt {prompt!r:.60} has {TEXT} {n_texts} times; expected it once, where "
            "the text belongs, or twice, so that the second one is pooled."
        )
    frame = backbone.tokens.frame(prompt)
    if prompt and frame.n + max(n_texts, 1) > max_length:
        raise ValueError(
            f"The prompt {prompt!r:.60} has {frame.n} tokens, including special ones, and "
            f"max_length={max_length} leaves no room for a text, so that all texts would get "
            "the same vector. Set a larger max_length, or a shorter prompt."
        )
    return frame


def _n_of_prompt(backbone: Backbone, frame: Frame, prompt: str) -> tuple[int, int]:
    """Count the tokens of a prompt before and after a text, with the special ones beyond."""
    before, *between, after = around(prompt)
    if between:  # only tokens of the second text are pooled
        return 0, 0
    if after:
        return len(frame.before) if before else 0, len(frame.after)
    # As in sentence-transformers, which may count the last space as a token of the prompt.
    return len(backbone.tokens.ids_of(before)) - len(frame.after) if before else 0, 0


def _max_length(max_length: int | None, backbone: Backbone, shipped: Declared) -> int:
    # What a folder declares has priority over the tokenizer's limit.
    usual = min(shipped.max_length or backbone.max_length, backbone.n_positions)
    added = backbone.tokens.tokenizer.num_special_tokens_to_add()
    most, length = max(usual, backbone.max_length), max_length or usual
    if not added < length <= most:
        source = "" if max_length else " is declared by the folder (max_seq_length)"
        raise ValueError(
            f"max_length={length}{source}; this model accepts {added + 1} to {most} tokens, "
            f"including its {added} special tokens. Set max_length to a number in this range."
        )
    return int(length)


def _truncate_dim(truncate_dim: int | None, width: int, shipped: Declared) -> int:
    if truncate_dim is not None and truncate_dim > width:
        raise ValueError(
            f"truncate_dim={truncate_dim} exceeds the {width} dimensions of this model. Set a "
            "number up to this one, or None for all."
        )
    return min(truncate_dim or shipped.truncate_dim or width, width)


def _warn_of_prompt(prompt: str, shipped: Declared) -> None:
    if prompt not in shipped.prompts and re.fullmatch(r"\w+", prompt):
        warn(
            f"prompt={prompt!r} is not the name of a prompt that the folder declares; it has "
            f"{sorted(shipped.prompts)}. So the word itself is put before each text. Pass a "
            "declared name, or a whole prompt, such as 'query: '."
        )
    if TEXT not in prompt and (slots := re.findall(r"\{\w*\}", prompt)):
        warn(
            f"prompt={prompt!r:.60} has {slots[0]}, which is put before each text as it is, "
            f"with the rest of the prompt. Write {TEXT} where the text belongs."
        )


def _warn_of_pooling(pooling: str, layers: tuple[int, ...], backbone: Backbone) -> None:
    if POOLINGS[pooling].token == 0 and backbone.is_causal:
        warn(
            f"pooling={pooling!r} uses the first token of each text. In a decoder such as this "
            "model, the first token attends only to itself. Set pooling='last' or 'mean'."
        )
    elif set(layers) == {0} and POOLINGS[pooling].token is not None:
        warn(
            f"pooling={pooling!r} with layers=0 uses the embedding of one token. If that is a "
            "special token, all texts get the same vector. Set layers=1 or more, or "
            "pooling='mean'."
        )
