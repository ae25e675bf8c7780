"""Parts of a model that compute the same faster, and replace its own when it is loaded.

*Packed weights.* On a CPU an encoder spends nearly all its time in linear layers. They are two
to three times as fast as `torch.nn.functional.linear`, which gets the weight in rows at every
call, if the weight is packed into oneDNN's own block layout once, at loading. torch packs
weights like this when it compiles a frozen model, but has no public function for it. So the two
private operators are used. They are tested before; if they are missing or wrong, the layers
stay unchanged.

*Packed rows.* Texts of any length are laid end to end in one row, without padding or a mask,
and all other layers get one long row of tokens. Only attention must know where a text ends:
each text attends only to itself. Models of transformers that look up their attention by name
can use it.

*MPNet in a packed row.* MPNet adds a bias by relative position to the scores of attention, for
all pairs of tokens of a row, and has an attention of its own. The parts here replace its
encoder and its attentions. They compute the same for each text of a packed row; for any other
input they call the parts that they replaced. The names of parts and of their attributes are
those of transformers. If another release renames them, nothing is replaced, and no texts share
a row.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import cache
from typing import Any, NamedTuple

import torch
from torch import nn
from torch.nn.functional import scaled_dot_product_attention
from transformers.modeling_outputs import BaseModelOutput

NAME = "skcalib_packed"  # of the attention of packed rows, in transformers


class PackedLinear(nn.Module):
    """A frozen linear layer with a packed weight, which multiplies in float32 or bfloat16.

    The output has the dtype of the input.
    """

    def __init__(self, linear: nn.Linear, dtype: torch.dtype):
        super().__init__()
        self.in_features, self.out_features = linear.in_features, linear.out_features
        self.dtype = dtype
        weight = linear.weight.detach().to(dtype)
        n_tokens = 1024  # of a batch: a hint for the layout, not a limit
        self._packed = torch.ops.mkldnn._reorder_linear_weight(weight, n_tokens)
        self.bias = None if linear.bias is None else linear.bias.detach().to(dtype)
        self._multiply = torch.ops.mkldnn._linear_pointwise.default

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Multiply as `nn.Linear` does."""
        y = self._multiply(x.to(self.dtype), self._packed, self.bias, "none", [], "")
        return y.to(x.dtype)

    @property
    def weight(self) -> torch.Tensor:
        """The weight in rows, for models that multiply by it themselves, such as Mamba."""
        return self._packed.to_dense().float()


@cache
def can_pack(dtype: torch.dtype) -> bool:
    """Whether the operators exist and multiply correctly."""
    if dtype not in (torch.float32, torch.bfloat16):
        return False
    generator = torch.Generator().manual_seed(0)
    linear = nn.utils.skip_init(nn.Linear, 24, 40, dtype=torch.float32)
    with torch.no_grad():
        for parameter in linear.parameters():
            parameter.normal_(generator=generator)
        x = torch.randn(3, 5, 24, generator=generator, dtype=torch.float32)
        try:
            y = PackedLinear(linear, dtype)(x)
        except (AttributeError, RuntimeError, NotImplementedError):
            return False
        # bfloat16 keeps 8 bits of each factor, and sums 24 products of size 1.
        atol = 1e-5 if dtype == torch.float32 else 0.2
        return torch.allclose(y, linear(x), rtol=0, atol=atol)


def pack_linears(module: nn.Module, dtype: torch.dtype) -> bool:
    """Replace every linear layer of a frozen module on the CPU by a packed one.

    If torch cannot pack, return False and leave the module unchanged.
    """
    if not can_pack(dtype):
        return False
    for parent in list(module.modules()):
        for name, child in list(parent.named_children()):
            if type(child) is nn.Linear:
                setattr(parent, name, PackedLinear(child, dtype))
    return True


class PackedRow(NamedTuple):
    """Texts of a row, as runs of one length: the number of texts and their length.

    In a causal row each token attends only to itself and the tokens before it.
    """

    runs: Sequence[tuple[int, int]]
    causal: bool

    @property
    def longest(self) -> int:
        """Tokens of the longest text."""
        return max(length for _, length in self.runs)


def packed_attention(
    module: nn.Module,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: torch.Tensor | None = None,
    *,
    packed_row: PackedRow,
    scaling: float | None = None,
    sliding_window: int | None = None,
    position_bias: Callable[[torch.Tensor, torch.Tensor], torch.Tensor] | None = None,
    **others: Any,
) -> tuple[torch.Tensor, None]:
    """Attend within each text of a row of N tokens; the signature is that of transformers.

    Query, key and value have shape (1, H, N, w), the output has shape (1, N, H, w); a key and
    its value may serve a group of queries. With a window a token attends only to those less
    than ``sliding_window`` away. ``position_bias`` is what is added to the scores of queries
    and keys, (n, H, length, w), of texts of one length. Other arguments are refused unless they
    are harmless.
    """
    # transformers passes these to every attention, and they do not change its result here.
    harmless = {"dropout", "position_ids", "is_causal", "use_cache"}
    harmless |= {"output_attentions", "output_hidden_states", "deterministic"}
    unknown = sorted(k for k, v in others.items() if v is not None and k not in harmless)
    if attention_mask is not None or unknown or query.shape[2] != key.shape[2]:
        raise ValueError(f"A packed row cannot have a mask, other keys or {unknown}.")
    # torch's own `enable_gqa` saves a hundredth of the time, and has no fast kernel on some
    # devices.
    if (groups := query.shape[1] // key.shape[1]) > 1:
        key, value = (x.repeat_interleave(groups, dim=1) for x in (key, value))
    output = torch.empty_like(query.transpose(1, 2), memory_format=torch.contiguous_format)
    runs, start = packed_row.runs, 0
    if position_bias is not None and query.device.type == "cpu":
        # More scores at once leave the cache; four texts of 500 tokens take a third longer.
        runs = [*_shorter(runs, 512)]
    for n, length in runs:
        stop = start + n * length
        # (n, H, length, w), views: nothing is copied.
        q, k, v = (
            x[0, :, start:stop].unflatten(1, (n, length)).transpose(0, 1)
            for x in (query, key, value)
        )
        mask = None
        if sliding_window is not None and length > sliding_window:
            # To build it takes a fiftieth of the time of attention.
            mask = _band(length, sliding_window, packed_row.causal, query.device)
        if position_bias is not None:
            mask = position_bias(q, k).to(q.dtype)
        causal = packed_row.causal and mask is None
        attended = scaled_dot_product_attention(q, k, v, mask, is_causal=causal, scale=scaling)
        output[0, start:stop].unflatten(0, (n, length)).copy_(attended.transpose(1, 2))
        start = stop
    return output, None


def _shorter(runs: Sequence[tuple[int, int]], n_tokens: int) -> Iterator[tuple[int, int]]:
    """Yield parts of runs, of at most ``n_tokens`` tokens or one text each."""
    for n, length in runs:
        most = max(1, n_tokens // length)
        for first in range(0, n, most):
            yield min(most, n - first), length


def _band(length: int, window: int, causal: bool, device: torch.device) -> torch.Tensor:
    """Whether each token of a text attends to each other, (length, length)."""
    mask = torch.ones(length, length, dtype=torch.bool, device=device)
    return mask.tril(0 if causal else window - 1).triu(1 - window)


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
            hidden = layer(hidden, position_bias=bias)[0]
            states.append(hidden)
        return BaseModelOutput(last_hidden_state=hidden, hidden_states=tuple(states))


class PackedAttention(nn.Module):
    """An attention of MPNet, which gets a `_RowBias` in place of the bias of a packed row."""

    def __init__(self, usual: Any):
        super().__init__()
        self.usual = usual

    def forward(
        self, hidden: torch.Tensor, *arguments: Any, **options: Any
    ) -> tuple[torch.Tensor, ...]:
        """Attend within each text, by the usual linear layers."""
        usual, given = self.usual, (*arguments, *options.values())
        position_bias = next((part for part in given if isinstance(part, _RowBias)), None)
        if position_bias is None:
            return usual(hidden, *arguments, **options)
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
