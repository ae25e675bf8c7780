"""Vectors of the stores that are in this process's memory.

What a store has read from its file stays here, so that the next candidate of a search finds
it in no time. A *shelf* holds the vectors of one store and space, in a *slab* for each slot.
Nothing here is locked: the store's own lock is held around every call.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

__all__ = ["COUNTS", "Found", "Shelf", "forget", "shelf_of", "shrink"]

COUNTS = -1  # the slot of token counts, three to a text
CACHE_BYTES = 256 * 2**20  # over all stores
ASKED_TEXTS = 2**17  # of the last searches of a shelf, remembered with what they found

_shelves: OrderedDict[tuple[str, str], Shelf] = OrderedDict()  # the latest used last


class Found(NamedTuple):
    """Vectors that were found, not yet copied."""

    array: np.ndarray  # the slab's own, whose rows never change
    rows: np.ndarray

    def take(self, part: slice = slice(None), out: np.ndarray | None = None) -> np.ndarray:
        """Copy the vectors, or a part of them."""
        # With the default mode NumPy would copy twice.
        return self.array.take(self.rows[part], axis=0, out=out, mode="clip")


def shelf_of(path: str, space: str, width: int) -> Shelf:
    """Shelf of a store's space, an empty one the first time."""
    found = _shelves.setdefault((path, space), Shelf(width))
    _shelves.move_to_end((path, space))
    return found


def forget(path: str) -> None:
    """Drop all vectors of a store."""
    for key in [key for key in _shelves if key[0] == path]:
        del _shelves[key]


def shrink() -> None:
    """Drop the slabs that were not used for longest, until the bound holds."""
    total = sum(s.n_bytes for s in _shelves.values())
    while total > CACHE_BYTES:
        key, oldest = next(iter(_shelves.items()))
        total -= oldest.n_bytes
        oldest.drop()
        if oldest:
            total += oldest.n_bytes
        else:
            del _shelves[key]


class Shelf:
    """Vectors of texts, by slot; each slot has those of the texts that were put there."""

    def __init__(self, width: int):
        self._width = width
        self._numbers: dict[str, int] = {}  # of the texts that any slot has
        self._asked: deque[tuple[list[str], np.ndarray]] = deque()
        self._slabs: OrderedDict[int, _Slab] = OrderedDict()  # the latest used last

    def __bool__(self) -> bool:
        """Whether anything is there."""
        return bool(self._slabs)

    @property
    def n_bytes(self) -> int:
        """Memory in use; a text costs its characters and an entry of the dictionary."""
        n_asked = sum(len(texts) for texts, _ in self._asked)
        slabs = sum(slab.n_bytes for slab in self._slabs.values())
        return 200 * len(self._numbers) + 16 * n_asked + slabs

    def find(
        self, texts: Sequence[str], slots: Sequence[int]
    ) -> tuple[np.ndarray, dict[int, Found]]:
        """Look for texts in some slots.

        Parameters
        ----------
        texts : sequence of distinct str
        slots : sequence of int

        Returns
        -------
        known : ndarray of shape (n_texts,), bool
            Whether all of these slots have a text.
        found : dict of Found
            Of each slot the vectors of the known texts.
        """
        numbers = self._find(texts)
        rows = {slot: self._slab(slot).find(numbers) for slot in slots}
        known = np.logical_and.reduce([r >= 0 for r in rows.values()])
        return known, {
            slot: Found(self._slabs[slot].array, rows[slot][known]) for slot in slots
        }

    def add(self, texts: Sequence[str], arrays: dict[int, np.ndarray]) -> None:
        """Put vectors of texts into slots; those that are there already stay.

        Parameters
        ----------
        texts : sequence of str
        arrays : dict of ndarray of shape (n_texts, width)
        """
        for text in texts:
            self._numbers.setdefault(text, len(self._numbers))
        # Each text once: a damaged index may have listed one twice.
        numbers, first = np.unique([self._numbers[t] for t in texts], return_index=True)
        for slot, array in arrays.items():
            self._slab(slot).add(numbers, array[first])

    def drop(self) -> None:
        """Forget the slot that was not used for longest."""
        self._slabs.popitem(last=False)

    def _find(self, texts: Sequence[str]) -> np.ndarray:
        """Return the number of each text, -1 where it has none."""
        # A search asks for the same texts again with every candidate. To compare lists of
        # the same objects takes a hundredth of looking each of them up.
        for asked, numbers in self._asked:
            if asked == texts:
                return numbers
        get = self._numbers.get
        numbers = np.array([get(t, -1) for t in texts], dtype=np.intp)
        if (numbers >= 0).all():
            self._asked.append((list(texts), numbers))
            while sum(len(asked) for asked, _ in self._asked) > ASKED_TEXTS:
                self._asked.popleft()
        return numbers

    def _slab(self, slot: int) -> _Slab:
        if slot not in self._slabs:
            width, dtype = (3, np.int32) if slot == COUNTS else (self._width, np.float32)
            self._slabs[slot] = _Slab(width, dtype)
        self._slabs.move_to_end(slot)
        return self._slabs[slot]


class _Slab:
    """Vectors of one slot: an array that grows, and the row in it of each text's number."""

    def __init__(self, width: int, dtype):
        self._n_rows = 0
        self._buffer = np.empty((0, width), dtype=dtype)
        self._rows = np.array([-1])  # by number; the last stands for all that are not there

    @property
    def array(self) -> np.ndarray:
        return self._buffer[: self._n_rows]

    @property
    def n_bytes(self) -> int:
        return self._buffer.nbytes + self._rows.nbytes

    def find(self, numbers: np.ndarray) -> np.ndarray:
        """Row of each text, -1 where there is none."""
        return self._rows[np.minimum(numbers, len(self._rows) - 1)]

    def add(self, numbers: np.ndarray, vectors: np.ndarray) -> None:
        """Append the vectors of texts, those that are new, given by rising number."""
        new = self.find(numbers) < 0
        if not new.any():
            return
        numbers, vectors = numbers[new], vectors[new]
        start, stop = self._n_rows, self._n_rows + len(numbers)
        if stop > len(self._buffer):
            grown = np.empty((max(stop, 2 * start), self._buffer.shape[1]), self._buffer.dtype)
            grown[:start] = self._buffer[:start]
            self._buffer = grown
        if (missing := int(numbers[-1]) + 2 - len(self._rows)) > 0:
            longer = np.full(len(self._rows) + max(missing, len(self._rows)), -1)
            longer[: len(self._rows)] = self._rows
            self._rows = longer
        self._buffer[start:stop] = vectors
        self._n_rows = stop  # first: an interrupt leaves at worst a row that is no text's
        self._rows[numbers] = np.arange(start, stop)
