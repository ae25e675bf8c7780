"""Attention among texts laid end to end in one row, where each sees itself alone.

Nothing is padded then and nothing masked, whatever the lengths, and every other layer sees one
long row of tokens. The models of transformers that look their attention up by name take it.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch.nn.functional import scaled_dot_product_attention

__all__ = ["NAME", "packed_attention", "register"]

NAME = "skcalib_packed"
# What transformers hands on to every attention, and what says nothing about its result here.
_HARMLESS = {
    *("dropout", "position_ids", "is_causal"),
    *("output_attentions", "output_hidden_states", "use_cache"),
}


def packed_attention(
    module: torch.nn.Module,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: torch.Tensor | None = None,
    *,
    packed_runs: Sequence[tuple[int, int]],
    scaling: float | None = None,
    **others,
) -> tuple[torch.Tensor, None]:
    """Attend within each text of a row of N tokens.

    Parameters
    ----------
    module : Module
        Ignored; the interface asks for it.
    query, key, value : Tensor of shape (1, H, N, w)
    attention_mask : None
    packed_runs : sequence of (int, int)
        Number and length of texts of the same length, in the order of the row.
    scaling : float or None
    **others : dict
        Refused unless harmless: a bias or a window would change the result.

    Returns
    -------
    output : Tensor of shape (1, N, H, w)
    weights : None
    """
    unknown = sorted(k for k, v in others.items() if v is not None and k not in _HARMLESS)
    if attention_mask is not None or unknown or query.shape != key.shape:
        raise ValueError(f"A packed row takes no mask, grouped heads or {unknown}.")
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


def register() -> bool:
    """Make the attention known to transformers; False where that is too old for it."""
    try:
        from transformers import AttentionInterface
    except ImportError:
        return False
    AttentionInterface.register(NAME, packed_attention)
    return True
