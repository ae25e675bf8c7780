"""A frozen transformer with its tokenizer: texts to token ids, token ids to hidden states."""

import contextlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

from skcalib.encoders.model.forward import ForwardPass, moved
from skcalib.encoders.model.proof import check, fastest_way, proof_of
from skcalib.encoders.model.reading import (
    LONGEST,
    limit_of,
    n_embedded,
    n_positions,
    quiet_transformers,
)
from skcalib.encoders.model.tokens import (
    CONTINUES,
    SPACES,
    Frame,
    Windows,
    empty_ids,
    frame_of,
    tokenize,
)
from skcalib.encoders.model.zipf import zipf_weights
from skcalib.encoders.recipe import Recipe
from skcalib.process.forks import cached_property


class Backbone:
    """A loaded model with its tokenizer.

    Attributes
    ----------
    forward : ForwardPass
        The forward pass, with matrix products in ``dtype`` on ``device``.
    n_layers, width, n_positions, max_length : int
        Number of transformer blocks; hidden size d; most tokens of a text, special ones
        included, that the model has positions for; the smaller of this and the tokenizer's
        limit.
    n_embedded : int
        Number of tokens that the model embeds. A text with any other token is refused.
    special_ids, added_ids, words, empty_ids : ndarray of int
        Special tokens, and tokens that the model does not embed; the same without the unknown
        token, which replaces a word of a text; all other tokens; tokens that are no content.
    unknown_id : int or None
        The token for words that are not in the vocabulary.
    is_causal : bool
        Each token attends only to itself and the tokens before it, as in decoders.
    precision : str
        The dtype; in half precision also the device, because devices round differently.
    """

    def __init__(
        self,
        folder: Path,
        fingerprint: str,
        tokenizer: Any,
        module: Any,
        device: torch.device,
        dtype: torch.dtype,
    ):
        self.folder, self.fingerprint, self.device = folder, fingerprint, device
        self.tokenizer, self.module = tokenizer, module
        self.n_layers, self.width = module.config.num_hidden_layers, module.config.hidden_size
        self.n_positions = n_positions(module)
        self.max_length = min(limit_of(tokenizer), self.n_positions)
        self.n_embedded, around = n_embedded(folder, tokenizer, module), self.ids_of("")
        if max(around) >= self.n_embedded:
            raise ValueError(
                f"its tokenizer puts the token number {max(around)} around each text, but the "
                f"model embeds {self.n_embedded} tokens. Save both to one folder again"
            )
        named = tokenizer.all_special_ids
        beyond = range(self.n_embedded, len(tokenizer))
        self.special_ids = np.array(sorted({*named, *beyond}))
        # A decoder with a vocabulary for every word may name its end-of-text token here.
        unknown = tokenizer.unk_token_id
        self.unknown_id = None if unknown in around else unknown
        self.added_ids = self.special_ids[self.special_ids != self.unknown_id]
        self.empty_ids = empty_ids(tokenizer)
        self.words = np.setdiff1d(np.arange(len(tokenizer)), self.special_ids)
        if len(self.words) < 2:
            raise ValueError("its tokenizer has no vocabulary. Save it again")
        marks = [i for i in named if i < self.n_embedded]
        proof = proof_of(module, self.words, marks, self.n_positions)
        self.is_causal = proof.is_causal
        with quiet_transformers():
            way = fastest_way(module, proof)
        self.forward = ForwardPass(module, way, device, moved(module, way, device, dtype))
        check(self.forward, proof, tolerance=0.2)
        self.precision = str(dtype).removeprefix("torch.")
        if dtype != torch.float32 and device.type != "cpu":
            self.precision += f" on {device.type}"

    def windows(self, texts: Sequence[str], recipe: Recipe) -> Windows:
        """Token ids of texts, in windows; refuse a token that the model does not embed."""
        windows = tokenize(
            self.tokenizer,
            texts,
            recipe.max_length,
            prompt=recipe.prompt,
            stride=recipe.stride,
            side=recipe.truncation_side,
        )
        for token, row in zip(map(max, windows.ids), windows.rows, strict=True):
            if token >= self.n_embedded:
                raise ValueError(
                    f"The text {texts[row]!r:.60} has the token {self._tokens()[token]!r}, "
                    f"which the model in {str(self.folder)!r} does not embed. Leave it out, or "
                    "save the model again after resize_token_embeddings."
                )
        return windows

    def ids_of(self, text: str) -> list[int]:
        """Token ids of a text, special ones included."""
        return tokenize(self.tokenizer, [text], LONGEST).ids[0]

    def frame(self, prompt: str) -> Frame:
        """Tokens around each text: those of a prompt, and special ones."""
        return frame_of(self.tokenizer, prompt)

    @cached_property
    def zipf(self) -> np.ndarray:
        """Zipf weight of every token id, of shape (vocabulary,), or a ValueError."""
        return zipf_weights(self._tokens(), self.special_ids.tolist())

    @property
    def has_zipf(self) -> bool:
        """Whether the vocabulary is sorted by frequency."""
        with contextlib.suppress(ValueError):
            return self.zipf is not None
        return False

    @cached_property
    def marks_continuations(self) -> bool:
        """Whether tokens that continue a word are marked, rather than those that begin one."""
        tokens = self.tokenizer.get_vocab()
        # A vocabulary may have a few tokens with the marks of the other kind.
        n_continue, n_begin = (
            sum(token.startswith(mark) for token in tokens) for mark in (CONTINUES, SPACES)
        )
        return n_continue > n_begin

    def _tokens(self) -> list[str]:
        return self.tokenizer.convert_ids_to_tokens(list(range(len(self.tokenizer))))
