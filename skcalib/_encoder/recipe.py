"""What decides on a vector of a `BertEncoder`, beside its text: the encoder's fitted state."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

__all__ = ["Recipe"]


@dataclass(frozen=True)
class Recipe:
    """How texts become vectors, with all defaults resolved. Two are equal if vectors are."""

    fingerprint: str  # of the model, and of `token_weights` where there are some
    layers: tuple[int, ...]  # counted from 0, the output of the embedding layer
    pooling: str
    special_tokens: bool
    layer_merge: str
    prompt: str  # in front of each text
    skip: int  # tokens of the prompt that are not pooled
    max_length: int  # most tokens of a text, special ones included
    dtype: str  # of the forward pass
    token_weights: np.ndarray | None = field(default=None, compare=False, repr=False)

    @property
    def concatenates(self) -> bool:
        """Whether vectors of several layers stand side by side."""
        return self.layer_merge == "concat" and len(self.layers) > 1
