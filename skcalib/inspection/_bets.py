"""Bets on the ranks of a stream among a fixed reference, whose capital rarely grows by chance.

The scores of the reference cut the line into ``n + 1`` gaps. If the rows of reference and
stream are exchangeable, the gaps that the stream falls into are those of a Pólya urn: the next
row falls into a bin of ``a`` gaps that holds ``c`` of the ``t`` rows before it with probability
``(a + c) / (n + 1 + t)``, whatever the distribution. This law includes that the reference is
finite, so that a bet against it gains nothing from the reference's own sampling error, however
long the stream. Bets are on the shares of the bins since some row, by the estimator of
Krichevsky and Trofimov, ``(c + 1/2) / (t + k/2)`` for k bins. A bet's capital, the ratio of
both probabilities, is a martingale. So is the sum over bets that start at different rows: the
probability that it ever reaches ``1 / rate`` is at most ``rate`` (Ville's inequality).
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
        rows = np.arange(self.n_seen, self.n_seen + len(scores))
        bins, seen = self._counted(scores, ties)
        own = np.take_along_axis(seen[:-1], bins[..., None], axis=2)[..., 0]
        of_urn = np.log((self._gaps[bins] + own) / (self._n_gaps + rows[:, None]))
        gains = _log_shares(own, rows, len(self._gaps)) - of_urn
        first = self._first + np.cumsum(gains, axis=0)
        total = 0.5 * _exp(first)
        for level in range(N_LENGTHS):
            # These shares add up to a half.
            share = 0.5 / (level + 1) / (level + 2 if level < N_LENGTHS - 1 else 1)
            total += share * self._of_length(level, rows, bins, seen, own, of_urn)
        self._first, self._counts = first[-1], seen[-1]
        self.n_seen += len(rows)
        return total

    def _of_length(
        self,
        level: int,
        rows: np.ndarray,
        bins: np.ndarray,
        seen: np.ndarray,
        own: np.ndarray,
        of_urn: np.ndarray,
    ) -> np.ndarray:
        """Capital of the bets of one length after each row, (T, S), of 1 in all."""
        length = SHORTEST << level
        number, within = np.divmod(rows, length)
        began = np.maximum(number * length - rows[0], 0)
        counts = np.take_along_axis(seen[began], bins[..., None], axis=2)[..., 0]
        is_older = number * length < rows[0]  # than this call
        older = np.take_along_axis(self._starts[level].T, bins[is_older], axis=0)
        counts[is_older] = older
        gains = _log_shares(own - counts, within, len(self._gaps)) - of_urn
        sums = np.cumsum(np.concatenate([np.zeros_like(gains[:1]), gains]), axis=0)
        logs = sums[1:] - sums[began]
        logs[is_older] += self._current[level]
        # The i-th bet of a length has this share of their capital. What is left is kept for
        # later ones, and what ended bets have become is kept as well.
        left = 1 / np.log2(number + 2)[:, None], 1 / np.log2(number + 3)[:, None]
        capital = (left[0] - left[1]) * _exp(logs)
        ended = np.where(within[:, None] == length - 1, capital, 0)
        kept = np.cumsum(np.concatenate([self._kept[level : level + 1], ended]), axis=0)
        self._kept[level] = kept[-1]
        if within[-1] == length - 1:
            self._starts[level], self._current[level] = seen[-1], 0
        else:
            self._current[level] = logs[-1]
            if not is_older[-1]:
                self._starts[level] = seen[began[-1]]
        return capital + kept[:-1] + left[1]

    def _counted(self, scores: np.ndarray, ties: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Bins of rows, (T, S), and the counts of bins before and after each, (T + 1, S, k)."""
        x, u = scores[..., None], ties[..., None]
        above = (self._bounds < x) | ((self._bounds == x) & (self._bound_ties < u))
        bins = above.sum(axis=2)
        ones = np.zeros((len(bins) + 1, *self._counts.shape), np.int64)
        ones[0] = self._counts
        np.put_along_axis(ones[1:], bins[..., None], 1, axis=2)
        return bins, np.cumsum(ones, axis=0)


def _log_shares(counts: np.ndarray, n_before: np.ndarray, k: int) -> np.ndarray:
    """Logarithm of the estimated share of each row's bin, from the rows before it."""
    return np.log((counts + 0.5) / (n_before[:, None] + k / 2))


def _exp(logarithm: np.ndarray) -> np.ndarray:
    return np.exp(np.minimum(logarithm, LARGEST))
