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
ENTRY = 400  # bytes that Python takes for an entry beside its numbers and characters


class Recent:
    """Vectors of texts; those used longest ago make room for new ones.

    Parameters
    ----------
    bound : int
        Most bytes to hold.
    """

    def __init__(self, bound: int = BOUND):
        self.bound = bound
        self._lock = fork_lock()
        self._entries: OrderedDict[tuple[str, str], tuple[np.ndarray, bool]]
        self.clear()

    def clear(self) -> None:
        """Forget all vectors."""
        with self._lock:
            self._entries, self._n_bytes = OrderedDict(), 0

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
        missing = []
        with self._lock:
            for row, text in enumerate(texts):
                key = origin, text
                if (found := self._entries.get(key)) is None:
                    missing.append(row)
                else:
                    self._entries.move_to_end(key)
                    vectors[row], truncated[row] = found
        return np.array(missing, dtype=np.intp)

    def write(
        self, origin: str, texts: Sequence[str], vectors: np.ndarray, truncated: np.ndarray
    ) -> None:
        """Keep the vectors of texts, in rows as `read` gives them back."""
        with self._lock:
            for text, vector, cut in zip(texts, vectors, truncated.tolist(), strict=True):
                if (origin, text) not in self._entries:
                    self._entries[origin, text] = vector.copy(), cut
                    self._n_bytes += _size(text, vector)
            while self._n_bytes > self.bound:
                (_, text), (vector, _) = self._entries.popitem(last=False)
                self._n_bytes -= _size(text, vector)


def _size(text: str, vector: np.ndarray) -> int:
    return ENTRY + len(text) + vector.nbytes


RECENT = Recent()
