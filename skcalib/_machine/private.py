"""Private names of torch and transformers, each with what holds where it is missing.

The two operators of oneDNN stand in `_encoder.packed_linear`, with theirs.
"""

from __future__ import annotations

from typing import Any

__all__ = ["attention_of", "forked_from_cuda"]


def forked_from_cuda() -> bool:
    """Whether this process was forked from one that had used CUDA, and so has none."""
    import torch

    return getattr(torch.cuda, "_is_in_bad_fork", lambda: False)()


def attention_of(module: Any) -> str | None:
    """Name of the attention that a model of transformers uses; None if it does not tell."""
    return getattr(module.config, "_attn_implementation", None)
