"""Relative positions in a packed row, for models that add them to the scores of attention.

Such a model computes them for all pairs of tokens of a row, also of different texts, or has an
attention of its own. Its parts give way to the ones here, which compute what the texts need.
The names of parts and of their attributes are those of transformers; where one is missing,
texts of these models share no row.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import reduce
from typing import Any

import torch
from torch import nn

from skcalib.encoders.model.packed_attention import packed_attention

Part: Any = nn.Module


def parts_that_give_way(module: nn.Module) -> list[tuple[Any, type, type]]:
    """Parts of a model that relative positions concern, their class, and that in a row.

    In a row they read it from their attribute ``packed_row``.
    """
    return [
        (part, usual, type(usual.__name__, (WAYS[usual.__name__], usual), {}))
        for part in module.modules()
        if (usual := type(part)).__name__ in WAYS
    ]


class _T5Attention(Part):
    """The first layer, or each, asks for the bias, and texts of all lengths have the same."""

    def compute_bias(self, n_queries: int, n_keys: int, **options: Any) -> Callable:
        longest = self.packed_row.longest
        return _corner_of(super().compute_bias(longest, longest, **options))


class _MPNetEncoder(Part):
    def compute_position_bias(self, hidden: torch.Tensor) -> Callable:
        longest = self.packed_row.longest
        return _corner_of(super().compute_position_bias(hidden[:, :longest]))


class _MPNetAttention(Part):
    def forward(
        self, hidden: torch.Tensor, mask: Any, position_bias: Callable, **options: Any
    ) -> tuple[torch.Tensor]:
        return (self.o(_attended(self, (self.q, self.k, self.v), hidden, position_bias)),)


class _DebertaEncoder(Part):
    def get_attention_mask(self, attention_mask: torch.Tensor) -> torch.Tensor:
        return attention_mask  # not one for each pair of tokens

    def get_rel_pos(self, hidden: torch.Tensor, *_: Any) -> torch.Tensor | None:
        """Relative positions of a query that stands -(L - 1) to L - 1 tokens after its key."""
        if not self.relative_attention:
            return None
        first, every = hidden[:, :1], hidden[:, : self.packed_row.longest]
        before, after = super().get_rel_pos(every, first), super().get_rel_pos(first, every)
        return torch.cat([before[0, 0].flip(0), after[0, 1:, 0]])


class _DebertaAttention(Part):
    def forward(
        self,
        hidden: torch.Tensor,
        mask: Any,
        *_: Any,
        relative_pos: torch.Tensor | None,
        rel_embeddings: Any,
        **options: Any,
    ) -> tuple[torch.Tensor, None]:
        kinds = [kind for kind in ("c2p", "p2c") if kind in self.pos_att_type]
        scaling = (self.attention_head_size * (1 + len(kinds))) ** -0.5
        tables = {}
        if relative_pos is not None:
            # Distances of one position are projected once, those of longer texts not at all.
            size = self.pos_ebd_size
            positions, of_distance = relative_pos.unique(return_inverse=True)
            near = rel_embeddings[None, (positions + size).clamp(0, 2 * size - 1)]
            for kind in kinds:
                name = "key_proj" if kind == "c2p" else "query_proj"
                layer = getattr(self, name if self.share_att_key else f"pos_{name}")
                tables[kind] = _heads(self, layer, near)[0, :, of_distance] * scaling

        def bias(q: torch.Tensor, k: torch.Tensor) -> torch.Tensor:
            scores = []
            if "c2p" in tables:
                scores.append(_by_distance(q, tables["c2p"].flip(1)))
            if "p2c" in tables:
                scores.append(_by_distance(k, tables["p2c"]).transpose(2, 3))
            return reduce(torch.add, scores)

        layers = self.query_proj, self.key_proj, self.value_proj
        return _attended(self, layers, hidden, bias if tables else None, scaling), None


WAYS = {
    "T5Attention": _T5Attention,
    "MT5Attention": _T5Attention,
    "UMT5Attention": _T5Attention,
    "MPNetEncoder": _MPNetEncoder,
    "MPNetSelfAttention": _MPNetAttention,
    "DebertaV2Encoder": _DebertaEncoder,
    "DisentangledSelfAttention": _DebertaAttention,
}


def _heads(part: Any, layer: nn.Module, x: torch.Tensor) -> torch.Tensor:
    """Project (1, N, d) to heads, (1, H, N, w)."""
    return layer(x).unflatten(-1, (part.num_attention_heads, -1)).transpose(1, 2)


def _attended(
    part: Any,
    layers: Sequence[nn.Module],
    hidden: torch.Tensor,
    bias: Callable | None,
    scaling: float | None = None,
) -> torch.Tensor:
    """Attend within texts, from layers for queries, keys and values; (1, N, d)."""
    heads = (_heads(part, layer, hidden) for layer in layers)
    options = {"packed_row": part.packed_row, "position_bias": bias, "scaling": scaling}
    return packed_attention(part, *heads, **options)[0].flatten(2)


def _corner_of(bias: torch.Tensor) -> Callable:
    """Return what gives queries and keys their part of the longest text's bias."""
    return lambda q, k: bias[:, :, : q.shape[2], : k.shape[2]]


def _by_distance(x: torch.Tensor, table: torch.Tensor) -> torch.Tensor:
    """Products of token i, (n, H, length, w), with entry j - i, (H, 2 L - 1, w), at [i, j].

    Entries lie at the distances -(L - 1) to L - 1, L at least the length.
    """
    length = x.shape[2]
    longest = table.shape[1] // 2 + 1
    near = table[:, longest - length : longest + length - 1]
    products = torch.einsum("nhlw,hdw->nhld", x, near)
    # A row begins one entry earlier than the row before: a view, nothing is gathered.
    *outer, row, step = products.stride()
    strides = *outer, row - step, step
    return products.as_strided((*products.shape[:3], length), strides, (length - 1) * step)
