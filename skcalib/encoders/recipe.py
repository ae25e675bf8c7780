"""All that a vector of a `BertEncoder` depends on, except its text: the fitted state."""

from dataclasses import dataclass, field

import numpy as np


@dataclass(frozen=True)
class Recipe:
    """How texts become vectors, with defaults resolved. Equal recipes give equal vectors."""

    fingerprint: str  # of the model, and of `token_weights` if there are any
    layers: tuple[int, ...]  # counted from 0, the output of the embedding layer
    pooling: str
    special_tokens: bool
    layer_merge: str
    prompt: str  # before each text, and each window of it
    skip: int  # tokens of the prompt that are not pooled
    max_length: int  # most tokens of a text or window, special ones included
    truncate_dim: int  # leading dimensions of each layer that are kept
    stride: int | None  # tokens that windows of a text share; None if long texts are cut off
    dtype: str  # of the forward pass
    token_weights: np.ndarray | None = field(default=None, compare=False, repr=False)

    @property
    def concatenates(self) -> bool:
        """Whether the vectors of several layers are concatenated."""
        return self.layer_merge == "concat" and len(self.layers) > 1
