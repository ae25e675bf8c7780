"""MPNet in a packed row: its relative positions, for each text alone.

MPNet adds a bias by relative position to the scores of attention, for all pairs of tokens of a
row, and has an attention of its own. The parts here replace its encoder and its attentions
once, at loading. They compute the same for each text of a packed row; for any other input they
call the parts that they replaced. The names of parts and of their attributes are those of
transformers. If another release renames them, nothing is replaced, and no texts share a row.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import nn
from transformers.modeling_outputs import BaseModelOutput

from skcalib.encoders.model.packed_attention import PackedRow, packed_attention


class _RowBias(NamedTuple):
    """A packed row, and the bias, (1, H, L, L), of its longest text, of L tokens."""

    row: PackedRow
    bias: torch.Tensor

    def corner(self, query: torch.Tensor, key: torch.Tensor) -> torch.Tensor:
        """Bias of texts of one length: positions are relative, so it is a corner."""
        return self.bias[:, :, : query.shape[2], : key.shape[2]]


class PackedEncoder(nn.Module):
    """The encoder of MPNet; ``row`` is the packed row of the next call, or None."""

    def __init__(self, usual: Any):
        super().__init__()
        self.usual = usual
        self.row: PackedRow | None = None
        for layer in usual.layer:
            layer.attention.attn = PackedAttention(layer.attention.attn)

    def forward(self, hidden: torch.Tensor, *arguments: Any, **options: Any) -> Any:
        """Run the layers as the usual encoder does."""
        if self.row is None:
            return self.usual(hidden, *arguments, **options)
        longest = hidden[:, : self.row.longest]
        bias = _RowBias(self.row, self.usual.compute_position_bias(longest))
        states = [hidden]
        for layer in self.usual.layer:
            hidden = layer(hidden, None, bias)[0]
            states.append(hidden)
        return BaseModelOutput(last_hidden_state=hidden, hidden_states=tuple(states))


class PackedAttention(nn.Module):
    """An attention of MPNet, which gets a `_RowBias` in place of the bias of a packed row."""

    def __init__(self, usual: Any):
        super().__init__()
        self.usual = usual

    def forward(
        self, hidden: torch.Tensor, mask: Any = None, position_bias: Any = None, **options: Any
    ) -> tuple[torch.Tensor, ...]:
        """Attend within each text, by the usual linear layers."""
        usual = self.usual
        if not isinstance(position_bias, _RowBias):
            return usual(hidden, mask, position_bias, **options)
        heads = (
            layer(hidden).unflatten(-1, (usual.num_attention_heads, -1)).transpose(1, 2)
            for layer in (usual.q, usual.k, usual.v)
        )
        attended, _ = packed_attention(
            self, *heads, packed_row=position_bias.row, position_bias=position_bias.corner
        )
        return (usual.o(attended.flatten(2)),)


def pack_mpnet(module: Any) -> None:
    """Replace the encoder and the attentions of a model that is an MPNet."""
    encoder: Any = getattr(module, "encoder", None)
    if type(encoder).__name__ == "MPNetEncoder":
        parts = [layer.attention.attn for layer in encoder.layer]
        if all(type(part).__name__ == "MPNetSelfAttention" for part in parts):
            module.encoder = PackedEncoder(encoder)
