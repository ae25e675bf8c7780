"""The vector of a long text from those of its windows."""

from collections.abc import Iterator, Sequence

import numpy as np

from skcalib.encoders.sources import Records
from skcalib.encoders.store.poolings import Pooling


class Joined:
    """Records of texts from those of their windows, which come in any order.

    ``rows``, (n_windows,), is the row of the text of each window, in order; ``slots`` says how
    each vector of a window was pooled, and so how the windows join.
    """

    def __init__(self, rows: np.ndarray, slots: Sequence[Pooling]):
        self._rows, self._n_windows = rows, np.bincount(rows)
        self._is_last = np.append(rows[1:] != rows[:-1], True)
        self._of_last = np.array([how.token == -1 for how in slots])
        self._maxima = np.array([how.token is None and how.weight is None for how in slots])
        self._texts: dict[int, _Text] = {}  # those that lack windows

    def add(
        self, windows: np.ndarray, vectors: np.ndarray, counts: np.ndarray, weights: np.ndarray
    ) -> Iterator[Records]:
        """Yield the records of texts that b windows complete.

        ``vectors`` has shape (b, n_slots, d), ``counts`` (b, 4), ``weights`` (b, n_slots).
        """
        rows = self._rows[windows]
        whole = self._n_windows[rows] == 1
        if whole.all():
            yield Records(rows, vectors, counts)
            return
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
            some, texts = zip(*complete, strict=True)
            joined = np.stack([text.vectors for text in texts])
            yield Records(np.array(some), joined, np.stack([text.counts for text in texts]))


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
        # A maximum is over the windows of the largest weight: a window without anything to
        # count has a negligible one.
        larger = np.maximum(
            np.where(weights < self._weights, -np.inf, vectors),
            np.where(weights > self._weights, -np.inf, self._sums),
        )
        with np.errstate(invalid="ignore"):  # where entries are not finite, which is told later
            self._sums = np.where(self._maxima, larger, self._sums + weights * vectors)
        largest = np.maximum(self._weights, weights)
        self._weights = np.where(self._maxima, largest, self._weights + weights)
        self.counts += counts
        self.n_windows += 1

    @property
    def vectors(self) -> np.ndarray:
        """Vectors of the text, float32."""
        return (self._sums / np.where(self._maxima, 1, self._weights)).astype(np.float32)
