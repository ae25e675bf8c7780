"""Sentence vectors from hidden states.

Every pooling follows from a few primitive vectors of a layer, computed together in one pass
over its hidden states: all poolings cost about as much as one.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch.nn.functional import embedding_bag

__all__ = ["PRIMITIVES", "Pooler", "primitive_of"]


PRIMITIVES = ("cls", "mean", "max", "mean_own", "max_own", "zipf", "last", "weighted_mean")


def primitive_of(pooling: str, special_tokens: bool) -> str:
    """Primitive vector that a pooling reads; "mean_sqrt_len" rescales a mean."""
    if pooling in ("cls", "zipf", "last", "weighted_mean"):
        return pooling
    name = "max" if pooling == "max" else "mean"
    return name if special_tokens else f"{name}_own"


class Pooler:
    """Pools the hidden states of a layer, for B texts with N tokens laid end to end.

    ``lengths``, (B,), holds the number of tokens of each text, 1 or more. ``special``, (N,),
    marks special tokens. ``zipf``, (N,), holds Zipf weights if a primitive needs them. The
    attributes ``starts`` and ``n_own``, both (B,), are the first position and the number of
    own tokens of each text.

    In the `PRIMITIVES`, "own" means without special tokens. In a text without other tokens (an
    empty one) special tokens count as its own, so that every text has a defined vector. A text
    whose Zipf weights are all 0 is averaged over its own tokens with equal weights.

    The first ``skip`` tokens of each text, those of a prompt, are not pooled, except in a text
    that has no others.
    """

    def __init__(
        self,
        lengths: np.ndarray,
        special: np.ndarray,
        zipf: np.ndarray | None,
        primitives: Sequence[str],
        device: torch.device | str = "cpu",
        skip: int = 0,
    ):
        self.primitives = primitives
        position = np.concatenate([*map(np.arange, lengths)])
        pooled = position >= np.repeat(np.where(lengths > skip, skip, 0), lengths)
        self._pooled = None if pooled.all() else torch.from_numpy(pooled).to(device)
        position, special = position[pooled], special[pooled]
        zipf = None if zipf is None else zipf[pooled]
        self.lengths = lengths = np.where(lengths > skip, lengths - skip, lengths)
        self.starts = np.cumsum(lengths) - lengths
        own = ~special | np.repeat(np.logical_and.reduceat(special, self.starts), lengths)
        self.n_own = np.add.reduceat(own, self.starts, dtype=np.int64)
        text = np.repeat(np.arange(len(lengths)), lengths)
        weights = np.zeros((len(primitives), len(own)), dtype=np.float32)
        target = np.zeros((len(primitives), len(own)), dtype=np.int64)
        for i, primitive in enumerate(primitives):
            if primitive.startswith("max"):
                # Tokens that do not count go into an extra row, which is dropped.
                target[i] = text if primitive == "max" else np.where(own, text, len(lengths))
            elif primitive not in ("cls", "last"):
                raw = np.ones(len(own)) if primitive == "mean" else own.astype(np.float64)
                if primitive == "weighted_mean":
                    raw = position + 1.0
                elif primitive == "zipf":
                    assert zipf is not None
                    weightless = np.add.reduceat(zipf, self.starts) == 0
                    raw = np.where(weightless[text], own, zipf)
                weights[i] = raw / np.add.reduceat(raw, self.starts)[text]
        self._starts = torch.from_numpy(self.starts).to(device)
        self._ends = self._starts + torch.from_numpy(lengths - 1).to(device)
        self._all = torch.arange(len(own), device=device)
        self._weights = torch.from_numpy(weights).to(device)  # of averages
        self._target = torch.from_numpy(target).to(device)  # of maxima: row of each token

    def __call__(self, hidden: torch.Tensor, out: torch.Tensor) -> None:
        """Pool hidden states of shape (N, d) into ``out``, (B, len(primitives), d), float32."""
        if self._pooled is not None:
            hidden = hidden[self._pooled]
        exact = hidden.float()  # for sums; single tokens and maxima need no more digits
        for i, primitive in enumerate(self.primitives):
            if primitive == "cls":
                out[:, i] = hidden[self._starts]
            elif primitive == "last":
                out[:, i] = hidden[self._ends]
            elif primitive.startswith("max"):
                rows = self._target[i][:, None].expand_as(hidden)
                lowest = hidden.new_full((len(out) + 1, hidden.shape[1]), -torch.inf)
                out[:, i] = lowest.scatter_reduce_(0, rows, hidden, "amax")[:-1]
            else:
                out[:, i] = embedding_bag(
                    *(self._all, exact, self._starts),
                    mode="sum",
                    per_sample_weights=self._weights[i],
                )
