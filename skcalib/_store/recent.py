"""Vectors that encoders made, or read from a store, lately in this process.

A search fits and scores many pipelines on the same texts. The vectors stay here for it, up to
a bound in bytes, so that only the first pipeline of each hidden state runs the model or reads
the file.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence

import numpy as np

from skcalib._machine.forks import fork_lock

__all__ = ["RECENT", "Recent"]

BOUND = 256 * 2**20  # bytes, over all encoders
ENTRY = 200  # bytes that Python takes for a text beside its characters and its vector


class Recent:
    """Vectors of texts, in a table for each origin.

    The table used longest ago makes room for new vectors. One that alone exceeds the bound
    goes too, and is begun anew.

    Parameters
    ----------
    bound : int
        Most bytes to hold.
    """

    def __init__(self, bound: int = BOUND):
        self.bound = bound
        self._lock = fork_lock()
        self._tables: OrderedDict[str, _Table] = OrderedDict()

    def clear(self) -> None:
        """Forget all vectors."""
        with self._lock:
            self._tables.clear()

    def read(
        self, origin: str, texts: Sequence[str], vectors: np.ndarray, truncated: np.ndarray
    ) -> np.ndarray:
        """Fill in the rows of texts that are known.

        Parameters
        ----------
        origin : str
            What decides, beside the text, what its vector is and where it is kept.
        texts : sequence of str
        vectors : ndarray of shape (n_texts, n_features)
            Written to.
        truncated : ndarray of shape (n_texts,), bool
            Written to: whether a text was cut off.

        Returns
        -------
        missing : ndarray of int
            Positions of the texts that are not known.
        """
        with self._lock:
            if origin not in self._tables:
                return np.arange(len(texts))
            self._tables.move_to_end(origin)
            table = self._tables[origin]
            rows = np.array([table.rows.get(text, -1) for text in texts], dtype=np.intp)
            known = np.flatnonzero(rows >= 0)
            vectors[known] = table.vectors[rows[known]]
            truncated[known] = table.truncated[rows[known]]
        return np.flatnonzero(rows < 0)

    def write(
        self, origin: str, texts: Sequence[str], vectors: np.ndarray, truncated: np.ndarray
    ) -> None:
        """Keep the vectors of distinct texts, in rows as `read` gives them back."""
        with self._lock:
            table = self._tables.setdefault(origin, _Table(vectors.shape[1]))
            self._tables.move_to_end(origin)
            table.add(texts, vectors, truncated)
            while self._tables and sum(t.n_bytes for t in self._tables.values()) > self.bound:
                self._tables.popitem(last=False)


class _Table:
    """Vectors of texts that have one origin."""

    def __init__(self, width: int):
        self.rows: dict[str, int] = {}  # of each text
        self.vectors = np.empty((0, width), dtype=np.float32)
        self.truncated = np.empty(0, dtype=bool)
        self._n_characters = 0

    @property
    def n_bytes(self) -> int:
        return self.vectors.nbytes + ENTRY * len(self.rows) + self._n_characters

    def add(self, texts: Sequence[str], vectors: np.ndarray, truncated: np.ndarray) -> None:
        places = [i for i, text in enumerate(texts) if text not in self.rows]
        new = [texts[i] for i in places]
        start, stop = len(self.rows), len(self.rows) + len(new)
        for array in (self.vectors, self.truncated):
            if stop > len(array):
                array.resize((stop + stop // 8, *array.shape[1:]), refcheck=False)
        self.vectors[start:stop] = vectors[places]
        self.truncated[start:stop] = truncated[places]
        self._n_characters += sum(map(len, new))
        # Last and in one operation, so that an interrupt leaves no text without its vector.
        self.rows.update(zip(new, range(start, stop), strict=True))


RECENT = Recent()
