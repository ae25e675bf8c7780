"""Vectors that encoders made, or read from a store, lately in this process.

A search fits and scores many pipelines on the same texts: only the first of each hidden state
runs the model or reads the file.
"""

from __future__ import annotations

import sys
import threading
from collections import OrderedDict
from collections.abc import Hashable, Sequence

import numpy as np

__all__ = ["RECENT", "Recent"]


class Recent:
    """Vectors of texts, in a table for each origin; ``bound`` is the most bytes to hold.

    The table used longest ago makes room, and a table beyond the bound is begun anew. An origin
    is what decides, beside a text, what its vector is and where it is kept.
    """

    def __init__(self, bound: int = 256 * 2**20):
        self.bound = bound
        self._lock = threading.RLock()  # an interrupt may leave it to the thread that held it
        self._tables: OrderedDict[Hashable, _Table] = OrderedDict()

    def clear(self) -> None:
        """Forget all vectors."""
        with self._lock:
            self._tables.clear()

    def read(
        self, origin: Hashable, texts: Sequence[str], vectors: np.ndarray, counts: np.ndarray
    ) -> np.ndarray:
        """Fill in the rows of texts that are known; return the positions of the others."""
        with self._lock:
            table = self._tables.get(origin)
            if table is None:
                return np.arange(len(texts))
            self._tables.move_to_end(origin)
            rows = np.array([table.rows.get(text, -1) for text in texts])
            table.parts = [np.concatenate(table.parts)] if table.parts[1:] else table.parts
            found = table.parts[0][rows[rows >= 0]]
        vectors[rows >= 0], counts[rows >= 0] = found["vector"], found["counts"]
        return np.flatnonzero(rows < 0)

    def write(
        self, origin: Hashable, texts: Sequence[str], vectors: np.ndarray, counts: np.ndarray
    ) -> None:
        """Keep vectors of texts, and counts of each, for `read`."""
        shapes = [("vector", "f4", vectors.shape[1:]), ("counts", "i4", counts.shape[1:])]
        part = np.empty(len(texts), dtype=shapes)
        part["vector"], part["counts"] = vectors, counts
        with self._lock:
            table = self._tables.setdefault(origin, _Table())
            self._tables.move_to_end(origin)
            start = sum(map(len, table.parts))
            table.parts.append(part)
            table.rows.update(zip(texts, range(start, start + len(texts)), strict=True))
            # Python takes some 150 bytes for an entry of a dict, beside the text itself.
            table.n_bytes += part.nbytes + sum(sys.getsizeof(text) + 150 for text in texts)
            while sum(table.n_bytes for table in self._tables.values()) > self.bound:
                self._tables.popitem(last=False)


class _Table:
    def __init__(self) -> None:
        self.rows: dict[str, int] = {}  # of each text, over all parts
        self.parts: list[np.ndarray] = []
        self.n_bytes = 0


RECENT = Recent()
