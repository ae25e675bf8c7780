"""Vectors of texts: from memory, else from disk, else from the model; new vectors are kept.

A source returns the vectors of texts. A model is a source, and so is a disk, which asks a model
for what it lacks. `recall` looks into the memory of this process before it asks a source, and
`vectors_of` asks for each distinct text once.
"""

import sys
import threading
from abc import ABC, abstractmethod
from collections import OrderedDict
from collections.abc import Callable, Generator, Hashable, Iterable, Iterator, Sequence
from contextlib import closing, nullcontext
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from sklearn.utils import gen_batches

from skcalib.encoders.store.database import turn
from skcalib.encoders.store.store import VectorStore
from skcalib.encoders.store.vectors import Vectors
from skcalib.utils.base import progress
from skcalib.utils.texts import distinct

# Number of texts that are read, looked up on disk, tokenized and sorted together: enough for
# lengths to repeat, few enough for texts and token ids to need little memory.
BLOCK = 16384
TURN = 1024  # texts that a worker encodes before it lets others have their turn


class Records(NamedTuple):
    """What a source returns for b of the texts that it was asked for."""

    rows: np.ndarray  # (b,) positions among the texts
    vectors: np.ndarray  # (b, n)
    counts: np.ndarray  # (b, 4) int32: tokens pooled, own, unknown; whether the text was cut
    kept: bool = True  # False if a disk could not keep them


class Model(ABC):
    """A source that needs no other source, and what a disk has to know about it."""

    key: Hashable
    name: str | None  # on disk
    prompt: str = ""  # before each text
    width: int  # of a vector in a slot
    slots: Sequence[str]  # ways to make a vector, all of which a disk keeps
    asked: Sequence[int]  # positions of the slots that an answer is made from
    not_finite: str  # why an entry may not be finite, for the error
    batch_size: int = 1  # texts of a request, if that matters
    note: Callable[[str], None] = staticmethod(lambda note: None)  # shows it beside the bar

    @abstractmethod
    def answer(self, texts: Sequence[str]) -> Iterator[Records]:
        """Yield the records of distinct texts, batch by batch."""

    @abstractmethod
    def every(self, texts: Sequence[str]) -> Iterator[Records]:
        """Yield records with the vectors of all slots, (b, n_slots, width)."""

    @abstractmethod
    def merged(self, vectors: np.ndarray, counts: np.ndarray) -> np.ndarray:
        """Vectors of an answer, (b, n), from those of the slots, (b, n_asked, width)."""


class _Part:
    """Records that were kept together."""

    def __init__(self, key: Hashable, texts: Sequence[str], records: Records):
        self.key, self.texts = key, texts
        self.vectors, self.counts = records.vectors, records.counts
        # Python needs about 250 bytes for a dict entry, in addition to the text.
        self.n_bytes = records.vectors.nbytes + records.counts.nbytes
        self.n_bytes += sum(sys.getsizeof(text) + 250 for text in texts)


class Memory:
    """Records that sources returned recently in this process, at most ``bound`` bytes.

    The least recently used ones are dropped first. A search fits and scores many pipelines on
    the same texts: only the first pipeline of each layer runs the model or reads the disk.
    """

    def __init__(self, bound: int = 256 * 2**20):
        self.bound = bound
        self._lock = threading.RLock()  # an interrupt may leave it locked by this thread
        self.clear()

    def clear(self) -> None:
        """Forget all records."""
        with self._lock:
            self._places: dict[Hashable, dict[str, tuple[_Part, int]]] = {}
            self._parts: OrderedDict[_Part, None] = OrderedDict()  # by their last use
            self._n_bytes = 0

    def read(self, key: Hashable, texts: Sequence[str]) -> Iterator[Records]:
        """Yield the records that a source gave for some of the texts."""
        found: dict[_Part, tuple[list[int], list[int]]] = {}
        with self._lock:
            places = self._places.get(key, {})
            for i, text in enumerate(texts):
                if text in places:
                    part, row = places[text]
                    rows, inside = found.setdefault(part, ([], []))
                    rows.append(i)
                    inside.append(row)
            for part in found.keys() & self._parts.keys():
                self._parts.move_to_end(part)
        for part, (rows, inside) in found.items():
            yield Records(np.array(rows), part.vectors[inside], part.counts[inside])

    def write(self, key: Hashable, texts: Sequence[str], records: Records) -> None:
        """Keep the records that a source gave for these texts."""
        part = _Part(key, texts, records)
        with self._lock:
            self._parts[part] = None
            self._n_bytes += part.n_bytes
            places = self._places.setdefault(key, {})
            places.update((text, (part, row)) for row, text in enumerate(texts))
            while self._n_bytes > self.bound:
                self._forget(self._parts.popitem(last=False)[0])

    def _forget(self, part: _Part) -> None:
        self._n_bytes -= part.n_bytes
        places = self._places[part.key]
        for text in part.texts:
            if text in places and places[text][0] is part:
                del places[text]
        if not places:
            del self._places[part.key]


MEMORY = Memory()


class Disk:
    """A store that asks a model for what it lacks, for one call of the user; to be closed."""

    def __init__(self, store: VectorStore, model: Model):
        self._model, self._dtype = model, store.dtype
        self._stored = Vectors(store, model.name, model.width, model.prompt)
        self.close, self.not_finite = self._stored.close, model.not_finite

    @property
    def key(self) -> Hashable:
        """Key of the vectors in memory; a new, cleared or unreadable store gets a new one.

        So texts that such a store lacks reach the store, and memory does not answer for them.
        """
        return self._model.key, self._dtype, self._stored.store_id or object()

    def answer(self, texts: Sequence[str]) -> Generator[Records, None, None]:
        """Yield what the store has; ask the model for the rest, and keep all its slots."""
        size = self._model.batch_size
        size *= max(TURN // size, 1)  # whole batches, which a price per request may depend on
        for block in gen_batches(len(texts), size * max(BLOCK // size, 1)):
            rows = yield from self._known(texts, np.arange(block.start, block.stop))
            for some in gen_batches(len(rows), size) if len(rows) else ():
                with turn(self._stored.path.parent):
                    # Another worker may have encoded some since.
                    new = yield from self._known(texts, rows[some])
                    yield from self._new(texts, new)

    def read(self, texts: Sequence[str]) -> Records:
        """Return what the store has for some texts."""
        slots = [self._model.slots[i] for i in self._model.asked]
        known, vectors, counts = self._stored.read(texts, slots)
        rows, counts = np.flatnonzero(known), counts[known]
        return Records(rows, self._model.merged(vectors[known], counts), counts)

    def _known(
        self, texts: Sequence[str], rows: np.ndarray
    ) -> Generator[Records, None, np.ndarray]:
        """Yield what the store has for some rows of the texts; return the other rows."""
        records = self.read([texts[row] for row in rows])
        if len(records.rows):
            yield records._replace(rows=rows[records.rows])
        return np.delete(rows, records.rows)

    def _new(self, texts: Sequence[str], rows: np.ndarray) -> Iterator[Records]:
        """Yield what the model returns for some rows of the texts, and keep every slot."""
        new = [texts[row] for row in rows]
        for records in self._model.every(new) if new else ():
            some = [new[row] for row in records.rows]
            _check_entries(records.vectors, some, self._dtype, self.not_finite)
            # Return exactly the bits that will be read later.
            vectors = records.vectors.astype(self._dtype).astype(np.float32, copy=False)
            vectors = vectors.reshape(len(some), len(self._model.slots), self._model.width)
            kept = self._stored.write(some, self._model.slots, vectors, records.counts)
            vectors = self._model.merged(vectors[:, self._model.asked], records.counts)
            yield Records(rows[records.rows], vectors, records.counts, kept)


def _check_entries(
    vectors: np.ndarray, texts: Sequence[str], dtype: Any, not_finite: str
) -> None:
    """Refuse vectors that overflow a dtype, or are so small that they lose digits in it."""
    largest = np.abs(vectors.reshape(len(texts), -1)).max(axis=1)
    limits = np.finfo(dtype)
    is_right = (largest == 0) | ((largest >= limits.tiny) & (largest <= limits.max))
    if not is_right.all():
        i = int(np.argmin(is_right))
        raise ValueError(
            f"The vector of the text {texts[i]!r:.60} is not finite, or too small, in "
            f"{limits.dtype} (largest entry {largest[i]:.1g}): {not_finite}"
        )


def store_of(memory: Any) -> VectorStore | None:
    """Store for the parameter ``memory`` of an encoder."""
    return memory if isinstance(memory, VectorStore | None) else VectorStore(memory)


def recall(texts: Sequence[str], source: Model | Disk) -> Generator[Records, None, None]:
    """Yield the records of distinct texts: from memory, else from the source."""
    known = np.zeros(len(texts), dtype=bool)
    for records in MEMORY.read(source.key, texts):
        known[records.rows] = True
        yield records
    rows = np.flatnonzero(~known)
    new = [texts[row] for row in rows.tolist()]
    for records in source.answer(new) if new else ():
        some = [new[row] for row in records.rows.tolist()]
        _check_entries(records.vectors, some, records.vectors.dtype, source.not_finite)
        if records.kept:
            MEMORY.write(source.key, some, records)
        yield records._replace(rows=rows[records.rows])


def vectors_of(
    blocks: Iterable[Sequence[str]],
    model: Model,
    store: VectorStore | None,
    *,
    total: int | None,
    verbose: bool | int,
) -> tuple[np.ndarray, np.ndarray]:
    """Return vectors of blocks of texts, (n_texts, n), and the sums of the last three counts.

    The array grows in place by a 32nd at a time, so that memory never holds it twice.
    """
    with (
        progress(total, unit="text", desc="encode", verbose=bool(verbose)) as advance,
        nullcontext(model) if store is None else closing(Disk(store, model)) as source,
    ):
        model.note = partial(advance, 0)
        of_blocks = (_of_block(texts, source, advance) for texts in blocks)
        vectors, counts = next(of_blocks)
        n_rows = len(vectors)
        for block, more in of_blocks:
            stop = n_rows + len(block)
            if stop > len(vectors):
                shape = max(stop, stop * 33 // 32), vectors.shape[1]
                vectors.resize(shape, refcheck=False)
            vectors[n_rows:stop] = block
            n_rows, counts = stop, counts + more
    if n_rows < len(vectors):
        vectors.resize((n_rows, vectors.shape[1]), refcheck=False)
    return vectors, counts


def _of_block(
    texts: Sequence[str], source: Model | Disk, advance: Callable[[int], None]
) -> tuple[np.ndarray, np.ndarray]:
    unique, inverse = distinct(texts)
    times = np.bincount(inverse)  # that each distinct text occurs
    vectors, counts = np.empty((0, 0), np.float32), np.empty((len(unique), 4), np.int32)
    with closing(recall(unique, source)) as batches:
        for rows, some, numbers, _ in batches:
            if not len(vectors):
                vectors = np.empty((len(unique), some.shape[1]), some.dtype)
            elif some.dtype.itemsize > vectors.itemsize:  # a model that answers in both
                vectors = vectors.astype(some.dtype)
            vectors[rows], counts[rows] = some, numbers
            advance(int(times[rows].sum()))
    return vectors if len(unique) == len(texts) else vectors[inverse], times @ counts[:, 1:]
