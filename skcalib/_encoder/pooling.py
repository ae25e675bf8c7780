"""Sentence vectors from hidden states.

Every pooling follows from a few primitive vectors of a layer, computed together in one pass
over its hidden states: all poolings cost about as much as one.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch
from torch.nn.functional import embedding_bag

__all__ = ["PRIMITIVES", "Pooler", "TokenBatch", "primitive_of"]


PRIMITIVES = ("cls", "mean", "max", "mean_own", "max_own", "zipf")


class TokenBatch(NamedTuple):
    """B tokenised texts, one after the other: N tokens."""

    lengths: np.ndarray  # (B,) tokens of each text, 1 or more
    own: np.ndarray  # (N,) bool, True where "own" primitives look
    zipf: np.ndarray | None  # (N,) weights, or None where zipf is not asked for

    @classmethod
    def of(
        cls, lengths: np.ndarray, special: np.ndarray, zipf: np.ndarray | None
    ) -> TokenBatch:
        """Make a batch, of which the tokens that are not special are a text's own.

        A text without any (an empty one) counts its special tokens as its own, so that no
        text has an undefined vector.
        """
        batch = cls(lengths, ~special, zipf)
        return batch._replace(own=batch.own | np.repeat(batch.n_own == 0, lengths))

    @property
    def starts(self) -> np.ndarray:
        """Where each text starts, of shape (B,)."""
        return np.cumsum(self.lengths) - self.lengths

    @property
    def n_own(self) -> np.ndarray:
        """Own tokens of each text, of shape (B,)."""
        return np.add.reduceat(self.own, self.starts, dtype=np.int64)


def primitive_of(pooling: str, special_tokens: bool) -> str:
    """Primitive vector that a pooling reads; "mean_sqrt_len" rescales a mean."""
    if pooling in ("cls", "zipf"):
        return pooling
    name = "max" if pooling == "max" else "mean"
    return name if special_tokens else f"{name}_own"


class Pooler:
    """Pools the hidden states of any layer of one batch, on a device.

    Of the `PRIMITIVES`, "own" means without special tokens. A text whose tokens all weigh
    nothing under Zipf's weights is pooled over its own tokens alike.
    """

    def __init__(
        self, tokens: TokenBatch, primitives: Sequence[str], device: torch.device | str = "cpu"
    ):
        n_texts = len(tokens.lengths)
        text = np.repeat(np.arange(n_texts), tokens.lengths)
        weights = np.zeros((len(primitives), len(tokens.own)), dtype=np.float32)
        target = np.zeros((len(primitives), len(tokens.own)), dtype=np.int64)
        for i, primitive in enumerate(primitives):
            if primitive.startswith("max"):
                # Tokens that do not count go into one more row, which is dropped.
                target[i] = text if primitive == "max" else np.where(tokens.own, text, n_texts)
            elif primitive != "cls":
                raw = self._raw_weights(tokens, primitive)
                totals = np.add.reduceat(raw, tokens.starts)
                weights[i] = raw / np.repeat(totals, tokens.lengths)
        self.primitives = primitives
        self._starts = torch.from_numpy(tokens.starts).to(device)
        self._all = torch.arange(len(tokens.own), device=device)
        self._weights = torch.from_numpy(weights).to(device)  # of averages
        self._target = torch.from_numpy(target).to(device)  # of maxima: row of each token

    @staticmethod
    def _raw_weights(tokens: TokenBatch, primitive: str) -> np.ndarray:
        if primitive == "mean":
            return np.ones(len(tokens.own))
        if primitive == "mean_own":
            return tokens.own.astype(np.float64)
        assert tokens.zipf is not None
        weightless = np.add.reduceat(tokens.zipf, tokens.starts) == 0
        return np.where(np.repeat(weightless, tokens.lengths), tokens.own, tokens.zipf)

    def __call__(self, hidden: torch.Tensor, out: torch.Tensor) -> None:
        """Pool hidden states of shape (N, d) into ``out``, (B, len(primitives), d), float32."""
        exact = hidden.float()  # for sums; first tokens and maxima need no more digits
        for i, primitive in enumerate(self.primitives):
            if primitive == "cls":
                out[:, i] = hidden[self._starts]
            elif primitive.startswith("max"):
                rows = self._target[i][:, None].expand_as(hidden)
                lowest = hidden.new_full((len(out) + 1, hidden.shape[1]), -torch.inf)
                out[:, i] = lowest.scatter_reduce_(0, rows, hidden, "amax")[:-1]
            else:
                out[:, i] = embedding_bag(
                    *(self._all, exact, self._starts),
                    mode="sum",
                    per_sample_weights=self._weights[i],
                )
