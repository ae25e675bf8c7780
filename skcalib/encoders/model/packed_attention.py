"""Attention for texts laid end to end in one row: each text attends only to itself.

Texts of any length go together without padding or a mask, and all other layers get one long
row of tokens. Models of transformers that look up their attention by name can use it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
from torch.nn.functional import scaled_dot_product_attention

NAME = "skcalib_packed"


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
    module: torch.nn.Module,
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
    runs = packed_row.runs
    if position_bias is not None and query.device.type == "cpu":
        # More scores at once leave the cache; four texts of 500 tokens take a third longer.
        runs = [
            (min(most, n - first), length)
            for n, length in runs
            for most in [max(1, 512 // length)]
            for first in range(0, n, most)
        ]
    start = 0
    for n, length in runs:
        stop = start + n * length
        # (n, H, length, w), views: nothing is copied.
        q, k, v = (
            x[0, :, start:stop].unflatten(1, (n, length)).transpose(0, 1)
            for x in (query, key, value)
        )
        mask = None
        if sliding_window is not None and length > sliding_window:
            # Built anew, which takes a fiftieth of the time of attention.
            after = 0 if packed_row.causal else sliding_window - 1
            mask = torch.ones(length, length, dtype=torch.bool, device=query.device)
            mask = mask.tril(after).triu(1 - sliding_window)
        if position_bias is not None:
            mask = position_bias(q, k).to(q.dtype)
        causal = packed_row.causal and mask is None
        attended = scaled_dot_product_attention(q, k, v, mask, is_causal=causal, scale=scaling)
        output[0, start:stop].unflatten(0, (n, length)).copy_(attended.transpose(1, 2))
        start = stop
    return output, None
