"""Sentence vectors from hidden states.

Every pooling follows from a few primitive vectors of a layer, computed together in one pass
over its hidden states: all poolings cost about as much as one.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch

__all__ = ["PRIMITIVES", "Pooler", "TokenBatch", "own_tokens", "primitive_of"]


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


class Pooler:
    """Pools the hidden states of any layer of one batch.

    Parameters
    ----------
    tokens : TokenBatch
    primitives : sequence of str, from `PRIMITIVES`
        "own" means without special tokens. A text whose tokens all weigh nothing under
        Zipf's weights is pooled over its own tokens alike.
    """

    def __init__(self, tokens: TokenBatch, primitives: Sequence[str]):
        self.primitives = primitives
        self.tokens = tokens
        weights = {p: self._weights(p) for p in primitives if p != "cls" and p[:3] != "max"}
        self._averages = list(weights)
        if weights:
            stacked = torch.stack(list(weights.values()), dim=1)  # (B, n_averages, T)
            self._stacked = stacked / stacked.sum(dim=2, keepdim=True)
        # The usual batch: no padding, one special token at either end.
        ends, inner = tokens.own[:, [0, -1]], tokens.own[:, 1:-1]
        self._framed = bool(tokens.attended.all() & ~ends.any() & inner.all())

    def _weights(self, primitive: str) -> torch.Tensor:
        tokens = self.tokens
        if primitive == "zipf":
            assert tokens.zipf is not None
            some = tokens.zipf.sum(dim=1, keepdim=True) > 0
            return torch.where(some, tokens.zipf, tokens.own.float())
        return (tokens.own if primitive == "mean_own" else tokens.attended).float()

    def __call__(self, hidden: torch.Tensor) -> torch.Tensor:
        """Pool hidden states of shape (B, T, d) to (B, len(primitives), d), float32."""
        hidden = hidden.float()
        vectors: dict[str, torch.Tensor] = {}
        if self._averages:
            averages = torch.bmm(self._stacked, hidden)  # no (B, T, d) temporary
            vectors.update(zip(self._averages, averages.unbind(dim=1), strict=True))
        if "cls" in self.primitives:
            vectors["cls"] = hidden[:, 0]
        if self._framed and any(p.startswith("max") for p in self.primitives):
            vectors["max_own"] = hidden[:, 1:-1].amax(dim=1)
            ends = torch.maximum(hidden[:, 0], hidden[:, -1])
            vectors["max"] = torch.maximum(vectors["max_own"], ends)
        for primitive in set(self.primitives) - set(vectors):  # maxima of other batches
            mask = self.tokens.own if primitive == "max_own" else self.tokens.attended
            vectors[primitive] = hidden.masked_fill(~mask[:, :, None], -torch.inf).amax(dim=1)
        return torch.stack([vectors[p] for p in self.primitives], dim=1)
