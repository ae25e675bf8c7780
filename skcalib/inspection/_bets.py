"""Bets on the ranks of a stream among a fixed reference, whose capital rarely ever grows.

The scores of the reference cut the line into ``n + 1`` gaps. If the rows of reference and stream
are exchangeable, the gaps that the stream falls into are those of a Pólya urn: the next row falls
into a bin of ``a`` gaps that holds ``c`` of the ``t`` rows before it with probability
``(a + c) / (n + 1 + t)``, whatever the distribution. This law includes that the reference is
finite, so that a bet against it gains nothing from the reference's own sampling error, however
long the stream. Bets are placed on the shares that were seen since some row, by the estimator
of Krichevsky and Trofimov, ``(c + 1/2) / (t + k/2)`` for k bins. A bet's capital is a
martingale, and so is the sum over the bets that start at different rows: with probability
``1 - rate`` it never reaches ``1 / rate`` (Ville's inequality).
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

# Bins halve toward both ends of the reference: the extreme ones have this share of it.
SMALLEST = 2.0**-6
# Rows of the shortest bets, and the number of lengths, each twice the one before.
SHORTEST, N_LENGTHS = 8, 16
LARGEST = 600.0  # of the logarithm of a capital; exp(600) is finite
ROWS = 4096  # at once


def gaps_below(n: int) -> np.ndarray:
    """Numbers of gaps below the bounds of bins, for a reference of n scores."""
    shares = 0.5 ** np.arange(1, 1 - np.log2(SMALLEST))
    ranks = np.rint((n + 1) * np.concatenate([shares, 1 - shares])).astype(int)
    return np.unique(np.clip(ranks, 1, n))


@dataclass
class Bets:
    """Bets on S scores at once, against a reference of n rows.

    ``scores`` and ``ties``, of shape (n, S), are those of the reference; random ``ties`` order
    equal scores.
    """

    scores: np.ndarray
    ties: np.ndarray
    n_seen: int = field(default=0, init=False)

    def __post_init__(self) -> None:
        n, width = self.scores.shape
        below = gaps_below(n)
        order = np.lexsort((self.ties, self.scores), axis=0)[below - 1]
        self._bounds = np.take_along_axis(self.scores, order, axis=0).T.copy()  # (S, k - 1)
        self._bound_ties = np.take_along_axis(self.ties, order, axis=0).T.copy()
        self._gaps = np.diff(below, prepend=0, append=n + 1)  # (k,)
        self._n_gaps = n + 1
        del self.scores, self.ties
        k = len(self._gaps)
        self._counts = np.zeros((width, k), np.int64)
        # One bet begins at the first row and never ends. It has half of the capital. Those of
        # each length follow one another, and what they end with is kept.
        self._first = np.zeros(width)  # logarithm of the capital
        self._starts = np.zeros((N_LENGTHS, width, k), np.int64)  # counts where a bet began
        self._current = np.zeros((N_LENGTHS, width))
        self._kept = np.zeros((N_LENGTHS, width))

    def capital(self, scores: np.ndarray, ties: np.ndarray) -> np.ndarray:
        """Capital of each score after each row, (T, S); it begins at 1."""
        parts = [
            self._of_some(scores[i : i + ROWS], ties[i : i + ROWS])
            for i in range(0, len(scores), ROWS)
        ]
        return np.concatenate([np.empty((0, len(self._first))), *parts])

    def _of_some(self, scores: np.ndarray, ties: np.ndarray) -> np.ndarray:
        n_rows, start = len(scores), self.n_seen
        rows = np.arange(start, start + n_rows)[:, None]
        bins, seen = self._counted(scores, ties)
        own = np.take_along_axis(seen[:-1], bins[..., None], axis=2)[..., 0]
        of_null = np.log((self._gaps[bins] + own) / (self._n_gaps + rows))
        k = len(self._gaps)
        first = self._first + np.cumsum(np.log((own + 0.5) / (rows + k / 2)) - of_null, axis=0)
        total = 0.5 * _exp(first)
        for level in range(N_LENGTHS):
            length = SHORTEST << level
            number = rows[:, 0] // length
            began = np.maximum(number * length - start, 0)  # row of this call, 0 if before
            at_start = np.take_along_axis(seen[began], bins[..., None], axis=2)[..., 0]
            if started_before := number[0] * length < start:
                old = number == number[0]
                ids = np.broadcast_to(self._starts[level], (n_rows, *self._counts.shape))
                earlier = np.take_along_axis(ids, bins[..., None], axis=2)[..., 0]
                at_start[old] = earlier[old]
            within = rows - number[:, None] * length
            gains = np.log((own - at_start + 0.5) / (within + k / 2)) - of_null
            sums = np.concatenate([np.zeros((1, gains.shape[1])), np.cumsum(gains, axis=0)])
            logs = sums[1:] - sums[began]
            if started_before:
                logs[old] += self._current[level]
            # Of all bets of a length, the i-th has this share of the capital; all add up to 1.
            left = 1 / np.log2(np.array([number + 2, number + 3]))
            capital = (left[0] - left[1])[:, None] * _exp(logs)
            ends = within[:, 0] == length - 1
            kept = np.zeros((n_rows + 1, gains.shape[1]))
            kept[0] = self._kept[level]
            kept[1:][ends] = capital[ends]
            kept = np.cumsum(kept, axis=0)
            share = 0.5 / ((level + 1) * (level + 2))
            if level == N_LENGTHS - 1:
                share = 0.5 / (level + 1)  # so that the shares add up to a half
            total += share * (capital + kept[:-1] + left[1][:, None])
            self._kept[level] = kept[-1]
            if ends[-1]:
                self._starts[level], self._current[level] = seen[-1], 0
            else:
                if began[-1] or not started_before:
                    self._starts[level] = seen[began[-1]]
                self._current[level] = logs[-1]
        self._first, self._counts = first[-1], seen[-1]
        self.n_seen += n_rows
        return total

    def _counted(self, scores: np.ndarray, ties: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Bins of rows, (T, S), and the counts of bins before and after each, (T + 1, S, k)."""
        x, u = scores[..., None], ties[..., None]
        above = (self._bounds < x) | ((self._bounds == x) & (self._bound_ties < u))
        bins = above.sum(axis=2)
        ones = np.zeros((len(bins) + 1, *self._counts.shape), np.int64)
        ones[0] = self._counts
        np.put_along_axis(ones[1:], bins[..., None], 1, axis=2)
        return bins, np.cumsum(ones, axis=0)


def _exp(logarithm: np.ndarray) -> np.ndarray:
    return np.exp(np.minimum(logarithm, LARGEST))
