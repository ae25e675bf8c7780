"""From the parameters of a `BertEncoder` and what its model's folder declares to a recipe."""

from __future__ import annotations

import re
from numbers import Integral
from typing import TYPE_CHECKING, Any

from skcalib.base import warn
from skcalib.encoders.model.declared import Declared
from skcalib.encoders.model.tokens import TEXT, Frame, around
from skcalib.encoders.poolings import POOLINGS
from skcalib.encoders.recipe import Recipe

if TYPE_CHECKING:
    from skcalib.encoders.model.backbone import Backbone  # imports torch

LAYER_NAMES = {
    "last": (-1,),
    "last2": (-2, -1),
    "first_last": (1, -1),
    "embedding_last": (0, -1),
}


def recipe_for(encoder: Any, backbone: Backbone, shipped: Declared) -> Recipe:
    """Resolve the parameters of an encoder; refuse what its model cannot do."""
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
    return Recipe(
        fingerprint=backbone.fingerprint,
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
        lower_case=shipped.lower_case,
        truncation_side=_side(encoder.overflow, backbone, shipped),
    )


def resolve_layers(layers: Any, n_layers: int) -> tuple[int, ...]:
    """Resolve `layers` to indices of hidden states, counted from 0."""
    indices = LAYER_NAMES.get(layers, layers) if isinstance(layers, str) else layers
    indices = (indices,) if isinstance(indices, Integral) else tuple(indices)
    are_ints = all(isinstance(i, Integral) and not isinstance(i, bool) for i in indices)
    if not indices or not are_ints:
        raise ValueError(
            f"layers={layers!r}; expected an int, a tuple of one or more ints, or one of "
            f"{sorted(LAYER_NAMES)}."
        )
    for i in indices:
        if not -n_layers - 1 <= i <= n_layers:
            raise ValueError(
                f"layers={layers!r} asks for hidden state {i}; this model has {n_layers} "
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
    return shipped.pooling if pooling == "auto" else pooling


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


def _side(overflow: str, backbone: Backbone, shipped: Declared) -> str:
    if overflow in ("cut_left", "cut_right"):
        return overflow.removeprefix("cut_")
    return shipped.truncation_side or backbone.tokens.tokenizer.truncation_side


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


def _warn_of_prompt(asked: str, shipped: Declared) -> None:
    if asked not in shipped.prompts and re.fullmatch(r"\w+", asked):
        warn(
            f"prompt={asked!r} is not the name of a prompt that the folder declares; it has "
            f"{sorted(shipped.prompts)}. So the word itself is put before each text. Pass a "
            "declared name, or a whole prompt, such as 'query: '."
        )
    if TEXT not in asked and (slots := re.findall(r"\{\w*\}", asked)):
        warn(
            f"prompt={asked!r:.60} has {slots[0]}, which is put before each text as it is, "
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
