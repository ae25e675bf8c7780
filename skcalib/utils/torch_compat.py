"""Private names of torch and transformers, each with a fallback if it is missing.

The two operators of oneDNN and the parts of MPNet are in `encoders.model.packed`, with their
fallbacks.
"""

from __future__ import annotations

from typing import Any


def forked_from_cuda() -> bool:
    """Whether this process was forked from one that had used CUDA, and so cannot use it."""
    import torch

    return getattr(torch.cuda, "_is_in_bad_fork", lambda: False)()


def attention_of(module: Any) -> str | None:
    """Name of the attention that a model of transformers uses; None if it is not known."""
    return getattr(module.config, "_attn_implementation", None)
