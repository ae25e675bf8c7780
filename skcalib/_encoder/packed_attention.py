"""Attention for texts laid end to end in one row: each text attends only to itself.

Texts of any length go together without padding or a mask, and all other layers get one long
row of tokens. Models of transformers that look up their attention by name can use it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch.nn.functional import scaled_dot_product_attention

__all__ = ["NAME", "packed_attention"]

NAME = "skcalib_packed"


def packed_attention(
    module: torch.nn.Module,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: torch.Tensor | None = None,
    *,
    packed_runs: Sequence[tuple[int, int]],
    scaling: float | None = None,
    **others: Any,
) -> tuple[torch.Tensor, None]:
    """Attend within each text of a row of N tokens; the signature is that of transformers.

    Query, key and value have shape (1, H, N, w), the output has shape (1, N, H, w). A run is
    a number of consecutive texts of the same length, and that length. Other arguments are
    refused unless they are harmless: a bias or a window would change the result.
    """
    # transformers passes these to every attention, and they do not change its result here.
    harmless = {"dropout", "position_ids", "is_causal", "use_cache"}
    harmless |= {"output_attentions", "output_hidden_states"}
    unknown = sorted(k for k, v in others.items() if v is not None and k not in harmless)
    if attention_mask is not None or unknown or query.shape != key.shape:
        raise ValueError(f"A packed row cannot have a mask, grouped heads or {unknown}.")
    output = torch.empty_like(query.transpose(1, 2), memory_format=torch.contiguous_format)
    start = 0
    for n, length in packed_runs:
        stop = start + n * length
        # (n, H, length, w), views: nothing is copied.
        q, k, v = (
            x[0, :, start:stop].unflatten(1, (n, length)).transpose(0, 1)
            for x in (query, key, value)
        )
        attended = scaled_dot_product_attention(q, k, v, scale=scaling)
        output[0, start:stop].unflatten(0, (n, length)).copy_(attended.transpose(1, 2))
        start = stop
    return output, None
