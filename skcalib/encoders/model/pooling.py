"""Vectors of texts from hidden states, and of long texts from those of their windows.

Every pooling follows from a few vectors of a layer, the slots, computed together in one pass
over its hidden states: all poolings cost about as much as one.
"""

from collections.abc import Iterator

import numpy as np
import torch
from torch.nn.functional import embedding_bag

from skcalib.encoders.lookup import Records
from skcalib.encoders.recipe import POOLINGS, Slots

# Factor of the weight of a window without a token to count: lost to rounding next to others.
NEGLIGIBLE = 1e-12


class Pooler:
    """Pools hidden states of B texts with N tokens laid end to end, layer by layer.

    In a text without tokens of its own (an empty one) special tokens count as these. A text
    whose weights are all 0 is averaged over its own tokens with equal weights. A text of which
    ``skip`` and ``second`` leave no token is pooled whole.
    """

    def __init__(
        self,
        lengths: np.ndarray,  # (B,)
        special: np.ndarray,  # (N,) which tokens are special
        zipf: np.ndarray | None,  # (N,) Zipf weights, if a slot needs them
        slots: Slots,
        width: int,
        device: torch.device | str = "cpu",
        skip: tuple[int, int] = (0, 0),  # tokens at the beginning and at the end: a prompt's
        second: np.ndarray | None = None,  # (B, 2) where the only tokens to pool begin and end
    ):
        self._layers = np.array(slots.layers)
        self._poolings = [POOLINGS[name] for name in slots.poolings]
        n_poolings = len(self._poolings)
        shape = len(lengths), len(self._layers), n_poolings, width
        self._vectors = torch.empty(shape, dtype=torch.float32, device=device)
        position = np.concatenate([*map(np.arange, lengths)])
        first, self.lengths = _pooled_part(skip, second, lengths)
        begin, stop = (np.repeat(x, lengths) for x in (first, first + self.lengths))
        self._mask = pooled = (position >= begin) & (position < stop)
        self._pooled = None if pooled.all() else torch.from_numpy(pooled).to(device)
        place = position + 1.0 if second is None else position - begin + 1.0
        place, special = place[pooled], special[pooled]
        zipf = None if zipf is None else zipf[pooled]
        lengths = self.lengths
        starts = np.cumsum(lengths) - lengths
        no_own = np.logical_and.reduceat(special, starts)
        own = ~special | np.repeat(no_own, lengths)
        self.n_own = np.add.reduceat(own, starts, dtype=np.int64)
        text = np.repeat(np.arange(len(lengths)), lengths)
        shares = np.zeros((n_poolings, len(own)), dtype=np.float32)
        target = np.zeros((n_poolings, len(own)), dtype=np.int64)
        weights = np.ones((len(lengths), n_poolings))
        for i, how in enumerate(self._poolings):
            counts = own if how.own else np.ones_like(own)
            if how.maximum:
                # Tokens that do not count go into an extra row, which is dropped.
                target[i] = np.where(counts, text, len(lengths))
            elif how.token is None:
                raw = counts * (1.0 if how.weight is None else how.weight(place, zipf))
                shares[i], weights[:, i] = _shares(raw, own, starts, text)
            if how.own:
                weights[no_own, i] *= NEGLIGIBLE
        # (B, n_slots), what a mean is divided by; 1 for single tokens and maxima.
        self.weights = np.tile(weights, len(self._layers))
        self._starts = torch.from_numpy(starts).to(device)
        self._ends = self._starts + torch.from_numpy(lengths - 1).to(device)
        self._all = torch.arange(len(own), device=device)
        self._shares = torch.from_numpy(shares).to(device)  # of tokens in averages
        self._target = torch.from_numpy(target).to(device)  # of maxima: row of each token

    def count(self, mask: np.ndarray) -> np.ndarray:
        """Count the tokens of each text that are pooled and in a mask, (N,)."""
        return np.add.reduceat(mask[self._mask], self._starts.cpu().numpy(), dtype=np.int64)

    def add(self, layer: int, hidden: torch.Tensor) -> None:
        """Pool the hidden states of a layer, of shape (N, d)."""
        if self._pooled is not None:
            hidden = hidden[self._pooled]
        exact = hidden.float()  # for sums; single tokens and maxima need no more digits
        for place in np.flatnonzero(self._layers == layer).tolist():
            out = self._vectors[:, place]
            for i, how in enumerate(self._poolings):
                if how.token is not None:
                    out[:, i] = hidden[self._ends if how.token else self._starts]
                elif how.maximum:
                    rows = self._target[i][:, None].expand_as(hidden)
                    lowest = hidden.new_full((len(out) + 1, hidden.shape[1]), -torch.inf)
                    out[:, i] = lowest.scatter_reduce_(0, rows, hidden, "amax")[:-1]
                else:
                    shares = self._shares[i]
                    out[:, i] = embedding_bag(
                        self._all, exact, self._starts, mode="sum", per_sample_weights=shares
                    )

    @property
    def token_shares(self) -> np.ndarray:
        """Weights of the N tokens in each mean, (n_poolings, N): they add up to 1 in a text."""
        out = np.zeros((len(self._poolings), len(self._mask)))
        out[:, self._mask] = self._shares.cpu().numpy()
        return out

    @property
    def vectors(self) -> np.ndarray:
        """Vectors of the texts, (B, n_slots, d), once every layer was added."""
        return self._vectors.flatten(1, 2).cpu().numpy()


def _pooled_part(
    skip: tuple[int, int], second: np.ndarray | None, lengths: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Return where the tokens of each text that are pooled begin, and how many they are."""
    if second is None:
        first, n = np.full_like(lengths, skip[0]), lengths - sum(skip)
    else:
        first, n = second[:, 0], second[:, 1] - second[:, 0]
    return np.where(n > 0, first, 0), np.where(n > 0, n, lengths)


def _shares(
    raw: np.ndarray, own: np.ndarray, starts: np.ndarray, text: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Return the share of each token in the mean of its text, and the weight of each text."""
    total = np.add.reduceat(raw, starts)
    if (nothing := total == 0).any():
        raw = np.where(nothing[text], own, raw)
        total = np.add.reduceat(raw, starts)
    return raw / total[text], np.where(nothing, NEGLIGIBLE * total, total)


class Joined:
    """Records of texts from those of their windows, which come in any order.

    Windows are combined as they were pooled: means and first tokens by a weighted mean, maxima
    by the maximum; the last token is that of the last window.
    """

    def __init__(self, rows: np.ndarray, slots: Slots):
        poolings = [POOLINGS[name] for name in slots.poolings] * len(slots.layers)
        self._rows, self._n_windows = rows, np.bincount(rows)
        self._is_last = np.append(rows[1:] != rows[:-1], True)
        self._of_last = np.array([how.token == -1 for how in poolings])
        self._maxima = np.array([how.maximum for how in poolings])
        self._texts: dict[int, _Text] = {}  # those that lack windows

    def add(
        self, windows: np.ndarray, vectors: np.ndarray, counts: np.ndarray, weights: np.ndarray
    ) -> Iterator[Records]:
        """Yield the records of texts that b windows complete."""
        rows = self._rows[windows]
        whole = self._n_windows[rows] == 1
        if whole.any():
            yield Records(rows[whole], vectors[whole], counts[whole])
        weights = np.where(self._of_last & ~self._is_last[windows, None], 0, weights)
        complete = []
        for i in np.flatnonzero(~whole):
            row = int(rows[i])
            text = self._texts.setdefault(row, _Text(self._maxima, vectors.shape[2]))
            text.add(vectors[i], counts[i], weights[i])
            if text.n_windows == self._n_windows[row]:
                complete.append((row, self._texts.pop(row)))
        if complete:
            places, texts = zip(*complete, strict=True)
            joined = np.stack([text.vectors for text in texts])
            yield Records(np.array(places), joined, np.stack([text.counts for text in texts]))


class _Text:
    """Sums over the windows of a text that were seen: (n_slots, d), in float64."""

    def __init__(self, maxima: np.ndarray, d: int):
        self._maxima = maxima[:, None]
        self._sums = np.where(self._maxima, -np.inf, np.zeros(d))
        self._weights = np.zeros((len(maxima), 1))
        self.counts, self.n_windows = np.zeros(4, np.int32), 0

    def add(self, vectors: np.ndarray, counts: np.ndarray, weights: np.ndarray) -> None:
        """Add a window."""
        weights = weights[:, None]
        # A maximum is over the windows that have something to count.
        larger = np.maximum(
            np.where(weights < self._weights, -np.inf, vectors),
            np.where(weights > self._weights, -np.inf, self._sums),
        )
        with np.errstate(invalid="ignore"):  # entries that are not finite are refused later
            self._sums = np.where(self._maxima, larger, self._sums + weights * vectors)
        largest = np.maximum(self._weights, weights)
        self._weights = np.where(self._maxima, largest, self._weights + weights)
        self.counts += counts
        self.n_windows += 1

    @property
    def vectors(self) -> np.ndarray:
        """Vectors of the text, float32."""
        return (self._sums / np.where(self._maxima, 1, self._weights)).astype(np.float32)
