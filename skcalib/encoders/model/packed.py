"""Parts of a model that compute the same faster, and replace its own when it is loaded.

Linear layers on a CPU are two to three times as fast if the weight is packed into oneDNN's own
layout once. torch has no public function for it, so two private operators are used. Texts of
any length are laid end to end in one row, without padding, and attention separates them.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any, NamedTuple

import torch
from torch import nn
from torch.nn.functional import scaled_dot_product_attention

NAME = "skcalib_packed"  # of the attention of packed rows, in transformers


class PackedLinear(nn.Module):
    """A frozen linear layer with a packed weight, which multiplies in float32 or bfloat16."""

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
    """Whether this torch has the operators; a model that multiplies wrongly is not loaded."""
    if dtype not in (torch.float32, torch.bfloat16):
        return False
    linear = nn.utils.skip_init(nn.Linear, 24, 40, dtype=torch.float32)
    try:
        PackedLinear(linear, dtype)(linear.weight)
    except (AttributeError, RuntimeError, NotImplementedError):
        return False
    return True


def pack_linears(module: nn.Module, dtype: torch.dtype) -> bool:
    """Replace every linear layer of a module on the CPU by a packed one, if torch can."""
    if not can_pack(dtype):
        return False
    for parent in list(module.modules()):
        for name, child in list(parent.named_children()):
            if type(child) is nn.Linear:
                setattr(parent, name, PackedLinear(child, dtype))
    return True


class PackedRow(NamedTuple):
    """Texts of a row, as runs of one length."""

    runs: Sequence[tuple[int, int]]  # the number of texts and their length
    causal: bool  # each token attends only to itself and the tokens before it


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
    **others: Any,
) -> tuple[torch.Tensor, None]:
    """Attend within each text of a row of N tokens, from (1, H, N, w) to (1, N, H, w)."""
    # transformers passes these to every attention, and they do not change its result here.
    harmless = {"dropout", "position_ids", "is_causal", "use_cache"}
    harmless |= {"output_attentions", "output_hidden_states", "deterministic"}
    unknown = sorted(k for k, v in others.items() if v is not None and k not in harmless)
    if attention_mask is not None or unknown or query.shape[2] != key.shape[2]:
        raise ValueError(f"A packed row cannot have a mask, other keys or {unknown}.")
    # torch's `enable_gqa` saves a hundredth of the time, and is slow on some devices.
    if (groups := query.shape[1] // key.shape[1]) > 1:
        key, value = (x.repeat_interleave(groups, dim=1) for x in (key, value))
    output = torch.empty_like(query.transpose(1, 2), memory_format=torch.contiguous_format)
    start = 0
    for n, length in packed_row.runs:
        stop = start + n * length
        # (n, H, length, w), views: nothing is copied.
        q, k, v = (
            x[0, :, start:stop].unflatten(1, (n, length)).transpose(0, 1)
            for x in (query, key, value)
        )
        mask = None
        if sliding_window is not None and length > sliding_window:
            mask = _band(length, sliding_window, packed_row.causal, query.device)
        causal = packed_row.causal and mask is None
        attended = scaled_dot_product_attention(q, k, v, mask, is_causal=causal, scale=scaling)
        output[0, start:stop].unflatten(0, (n, length)).copy_(attended.transpose(1, 2))
        start = stop
    return output, None


def _band(length: int, window: int, causal: bool, device: torch.device) -> torch.Tensor:
    """Whether each token of a text attends to each other, (length, length)."""
    mask = torch.ones(length, length, dtype=torch.bool, device=device)
    return mask.tril(0 if causal else window - 1).triu(1 - window)
