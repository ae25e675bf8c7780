"""Sentence vectors from hidden states.

Every pooling follows from a few primitive vectors of a layer, computed together in one pass
over its hidden states: all poolings cost about as much as one.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch

__all__ = ["PRIMITIVES", "TokenBatch", "own_tokens", "pool", "primitive_of"]


PRIMITIVES = ("cls", "mean", "max", "mean_own", "max_own", "zipf")


class TokenBatch(NamedTuple):
    """A batch of B tokenised texts, padded to T tokens."""

    ids: torch.Tensor  # (B, T) int64
    attended: torch.Tensor  # (B, T) bool, False at padding
    own: torch.Tensor  # (B, T) bool, True where "own" primitives look; see `own_tokens`
    zipf: torch.Tensor | None  # (B, T) weights, or None where zipf is not asked for

    def part(self, rows: slice) -> TokenBatch:
        """Select some texts of the batch."""
        zipf = None if self.zipf is None else self.zipf[rows]
        return TokenBatch(self.ids[rows], self.attended[rows], self.own[rows], zipf)


def own_tokens(attended: torch.Tensor, special: torch.Tensor) -> torch.Tensor:
    """Mask of the tokens that are a text's own: neither padding nor special.

    A text without any (an empty one) counts its special tokens as its own, so that no text
    has an undefined vector.
    """
    own = attended & ~special
    return torch.where(own.any(dim=1, keepdim=True), own, attended)


def primitive_of(pooling: str, special_tokens: bool) -> str:
    """Primitive vector that a pooling reads; "mean_sqrt_len" rescales a mean."""
    if pooling in ("cls", "zipf"):
        return pooling
    name = "max" if pooling == "max" else "mean"
    return name if special_tokens else f"{name}_own"


def pool(hidden: torch.Tensor, tokens: TokenBatch, primitives: Sequence[str]) -> torch.Tensor:
    """Pool the hidden states of one layer.

    Parameters
    ----------
    hidden : Tensor of shape (B, T, d)
    tokens : TokenBatch
    primitives : sequence of str, from `PRIMITIVES`
        "own" means without special tokens. A text whose tokens all weigh nothing under
        Zipf's weights is pooled over its own tokens alike.

    Returns
    -------
    vectors : Tensor of shape (B, len(primitives), d), float32
    """
    vectors = []
    for primitive in primitives:
        mask = tokens.own if primitive.endswith("_own") else tokens.attended
        if primitive == "cls":
            vector = hidden[:, 0]
        elif primitive.startswith("max"):
            vector = hidden.masked_fill(~mask[:, :, None], -torch.inf).amax(dim=1)
        else:
            weights = mask.to(hidden.dtype)
            if primitive == "zipf":
                assert tokens.zipf is not None
                some_weight = tokens.zipf.sum(dim=1, keepdim=True) > 0
                weights = torch.where(some_weight, tokens.zipf, tokens.own).to(hidden.dtype)
            # (B, 1, T) @ (B, T, d): the weighted sum without a (B, T, d) temporary
            vector = torch.bmm(weights[:, None], hidden)[:, 0]
            vector = vector / weights.sum(dim=1, keepdim=True)
        vectors.append(vector.float())
    return torch.stack(vectors, dim=1)
