"""Sentence vectors from hidden states.

Every pooling follows from a few vectors of a layer, the slots, computed together in one pass
over its hidden states: all poolings cost about as much as one.
"""

from collections.abc import Sequence

import numpy as np
import torch
from torch.nn.functional import embedding_bag

from skcalib.encoders.store.poolings import SLOTS

# Factor of the weight of a text whose own rule finds nothing to count. Beside other windows of
# a long text it is lost to rounding.
NEGLIGIBLE = 1e-12


class Pooler:
    """Pools the hidden states of a layer, for B texts with N tokens laid end to end.

    ``lengths``, (B,), holds the number of tokens of each text, 1 or more. ``special``, (N,),
    marks special tokens. ``zipf``, (N,), holds Zipf weights if a slot needs them. The
    attributes ``starts`` and ``n_own``, both (B,), are the first position and the number of
    own tokens of each text. ``weights``, (B, len(slots)), float64, is what a mean is divided
    by, and 1 for single tokens and maxima.

    "own" means without special tokens. In a text without other tokens (an empty one) special
    tokens count as its own, so that every text has a defined vector. A text whose weights are
    all 0 is averaged over its own tokens with equal weights.

    The first ``skip`` tokens of each text, those of a prompt, are not pooled, except in a text
    that has no others.
    """

    def __init__(
        self,
        lengths: np.ndarray,
        special: np.ndarray,
        zipf: np.ndarray | None,
        slots: Sequence[str],
        device: torch.device | str = "cpu",
        skip: int = 0,
    ):
        self._slots = [SLOTS[name] for name in slots]
        position = np.concatenate([*map(np.arange, lengths)])
        pooled = position >= np.repeat(np.where(lengths > skip, skip, 0), lengths)
        self._pooled = None if pooled.all() else torch.from_numpy(pooled).to(device)
        place, special = position[pooled] + 1.0, special[pooled]
        zipf = None if zipf is None else zipf[pooled]
        self.lengths = lengths = np.where(lengths > skip, lengths - skip, lengths)
        self.starts = np.cumsum(lengths) - lengths
        no_own = np.logical_and.reduceat(special, self.starts)
        own = ~special | np.repeat(no_own, lengths)
        self.n_own = np.add.reduceat(own, self.starts, dtype=np.int64)
        text = np.repeat(np.arange(len(lengths)), lengths)
        shares = np.zeros((len(slots), len(own)), dtype=np.float32)
        target = np.zeros((len(slots), len(own)), dtype=np.int64)
        self.weights = np.ones((len(lengths), len(slots)))
        for i, how in enumerate(self._slots):
            counts = own if how.own else np.ones_like(own)
            if how.weight is not None:
                raw = how.weight(counts, place, zipf)
                total = np.add.reduceat(raw, self.starts)
                if (nothing := total == 0).any():
                    raw = np.where(nothing[text], own, raw)
                    total = np.add.reduceat(raw, self.starts)
                shares[i] = raw / total[text]
                self.weights[:, i] = np.where(nothing, NEGLIGIBLE * total, total)
            elif how.token is None:
                # Tokens that do not count go into an extra row, which is dropped.
                target[i] = np.where(counts, text, len(lengths))
            if how.own:
                self.weights[no_own, i] *= NEGLIGIBLE
        self._starts = torch.from_numpy(self.starts).to(device)
        self._ends = self._starts + torch.from_numpy(lengths - 1).to(device)
        self._all = torch.arange(len(own), device=device)
        self._shares = torch.from_numpy(shares).to(device)  # of tokens in averages
        self._target = torch.from_numpy(target).to(device)  # of maxima: row of each token

    def __call__(self, hidden: torch.Tensor, out: torch.Tensor) -> None:
        """Pool hidden states of shape (N, d) into ``out``, (B, len(slots), d), float32."""
        if self._pooled is not None:
            hidden = hidden[self._pooled]
        exact = hidden.float()  # for sums; single tokens and maxima need no more digits
        for i, how in enumerate(self._slots):
            if how.token is not None:
                out[:, i] = hidden[self._ends if how.token else self._starts]
            elif how.weight is None:
                rows = self._target[i][:, None].expand_as(hidden)
                lowest = hidden.new_full((len(out) + 1, hidden.shape[1]), -torch.inf)
                out[:, i] = lowest.scatter_reduce_(0, rows, hidden, "amax")[:-1]
            else:
                out[:, i] = embedding_bag(
                    *(self._all, exact, self._starts),
                    mode="sum",
                    per_sample_weights=self._shares[i],
                )
