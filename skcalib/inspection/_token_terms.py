"""The vector of a text as a sum over its tokens, for poolings that are means."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch

from skcalib.encoders.model.load import Backbone
from skcalib.encoders.model.pooling import Pooler
from skcalib.encoders.model.tokens import CONTINUES, SPACES, Tokens
from skcalib.encoders.recipe import POOLINGS, SLOTS, Recipe


class TokenTerms(NamedTuple):
    """Tokens of a text that are pooled, in order, windows one after the other.

    The ``terms``, (n_tokens, n_features), add up to the vector of the text, and the ``shares``,
    (n_tokens,), to 1; a term is a token's hidden state times its share, and a factor that is
    one for all tokens of the text. Tokens form words: ``word_of``, (n_tokens,), is the number
    of a token's word. A special token is a word of its own.
    """

    words: list[str]
    word_of: np.ndarray
    shares: np.ndarray
    terms: np.ndarray


def token_terms(backbone: Backbone, recipe: Recipe, text: str) -> TokenTerms:
    """Return the terms of a text's tokens, float64; its pooling must be a mean."""
    windows = backbone.tokens.windows([text], recipe)
    ids, second = windows.ids, windows.second
    places = [None] * len(ids) if second is None else second[:, None]
    parts = [
        _of_window(backbone, recipe, np.array(window), place)
        for window, place in zip(ids, places, strict=True)
    ]
    weights = np.array([weight for *_, weight, _ in parts])
    weights /= weights.sum()
    shares = np.concatenate([w * p[0] for w, p in zip(weights, parts, strict=True)])
    states = np.concatenate([part[1] for part in parts])
    pooled = shares > 0
    numbers = np.concatenate(ids)[pooled].tolist()
    shares, states = shares[pooled], states[pooled]
    terms = shares[:, None] * states
    if POOLINGS[recipe.pooling].by_root:
        terms *= np.sqrt(sum(count for *_, count in parts))
    if recipe.normalize:
        length = np.linalg.norm(terms.sum(axis=0))
        terms /= length if length > 0 else 1
    tokens = backbone.tokens.tokenizer.convert_ids_to_tokens(numbers)
    word_of = _word_of(backbone.tokens, tokens)
    words = [_as_text(backbone.tokens, tokens, word_of == i) for i in range(word_of[-1] + 1)]
    return TokenTerms(words, word_of, shares, terms)


def _word_of(kinds: Tokens, tokens: list[str]) -> np.ndarray:
    """Return the number of each token's word, by the marks of the tokenizer."""
    special = np.isin(kinds.tokenizer.convert_tokens_to_ids(tokens), kinds.special_ids)
    if kinds.marks_continuations:
        continues = np.array([token.startswith(CONTINUES) for token in tokens])
    else:
        continues = np.array([not token.startswith(SPACES) for token in tokens])
    continues &= ~special & np.concatenate([[False], ~special[:-1]])
    return np.cumsum(~continues) - 1


def _as_text(kinds: Tokens, tokens: list[str], chosen: np.ndarray) -> str:
    subset = [tokens[i] for i in np.flatnonzero(chosen)]
    return kinds.tokenizer.convert_tokens_to_string(subset).strip() or "".join(subset)


def _of_window(
    backbone: Backbone, recipe: Recipe, window: np.ndarray, second: np.ndarray | None
) -> tuple[np.ndarray, np.ndarray, float, int]:
    """Shares and hidden states of the tokens of a window, its weight, and what it counts."""
    lengths, slots = np.array([len(window)]), recipe.slots
    special = np.isin(window, backbone.tokens.added_ids)
    zipf = backbone.tokens.zipf[window] if SLOTS[recipe.slot].by_frequency else None
    where = backbone.width, backbone.device, recipe.skip
    pooler = Pooler(lengths, special, zipf, slots, *where, second)
    hidden: dict[int, np.ndarray] = {}

    def keep(layer: int, states: torch.Tensor) -> None:
        kept = states[:, : recipe.truncate_dim].float().cpu().numpy()
        hidden[layer] = kept.astype(np.float64)

    backbone.forward(window, lengths, slots.layers, keep)
    states = [hidden[layer] for layer in recipe.layers]
    merged = np.concatenate(states, axis=1) if recipe.concatenates else np.mean(states, axis=0)
    weight, count = float(pooler.weights[0, 0]), int(pooler.lengths[0])
    return pooler.token_shares[0], merged, weight, count
