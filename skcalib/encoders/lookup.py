"""Vectors of texts: from memory, else from disk, else from the model; new vectors are kept.

A source yields vectors of distinct texts: a model, or a disk, which asks a model for those that
it lacks. `recall` looks into the memory of this process before it asks a source.
"""

from collections.abc import Callable, Generator, Hashable, Iterator, Sequence
from contextlib import closing, contextmanager, nullcontext
from contextvars import ContextVar
from itertools import compress
from typing import Any, NamedTuple

import joblib
import numpy as np
from sklearn.utils import gen_batches

from skcalib.base import is_fitted, progress
from skcalib.callbacks import begin_texts, count_texts, fit_task
from skcalib.encoders.recipe import Slots
from skcalib.encoders.store import Vectors, VectorStore, turn
from skcalib.inputs.texts import TextTransformer, as_texts, distinct
from skcalib.process import caches

# Texts that are tokenized and sorted together: enough for lengths to repeat.
BLOCK = 16384
TURN = 1024  # texts that a worker encodes before another one gets its turn


class Records(NamedTuple):
    """What a source returns for b of the requested texts."""

    rows: np.ndarray  # (b,) positions among the texts
    vectors: np.ndarray  # (b, n_slots, width)
    # (b, 4) int32: numbers of tokens that are pooled, own and unknown (of a text without
    # content, all own ones), and whether the text was cut.
    counts: np.ndarray


_notes: ContextVar[dict[str, bool] | None] = ContextVar("notes", default=None)


@contextmanager
def noting_content() -> Iterator[dict[str, bool]]:
    """Yield a dict in which encoders note which texts have a token that one of them knows."""
    notes: dict[str, bool] = {}
    token = _notes.set(notes)
    try:
        # Workers of a union would note into dicts of their own.
        with joblib.parallel_config(backend="sequential"):
            yield notes
    finally:
        _notes.reset(token)


class WithMemory(TextTransformer):
    """Base of an encoder with a parameter ``memory``; if it is fitted, its pickle has none."""

    memory: Any

    @fit_task(prefer_skip_nested_validation=True, n_subtasks=None)
    def fit_transform(self, X: Any, y: None = None) -> Any:
        """Fit, and return the vectors of `transform`; each hundredth of the texts is a task.

        Parameters
        ----------
        X : list of str, or any container of strings
            The texts.
        y : None
            Ignored.

        Returns
        -------
        Z : ndarray of shape (n_texts, n_features), float32
            Their vectors.
        """
        texts = as_texts(X)
        begin_texts(len(texts))
        return self.fit(texts).transform(texts)

    def __getstate__(self) -> dict[str, Any]:
        state: Any = super().__getstate__()
        return {**state, "memory": None} if is_fitted(self) else state


class Model:
    """A source that computes vectors, the slots, of each text."""

    key: Hashable  # of the requested slots, in memory
    name: str | None  # of the model and its settings, on disk
    reading: str = ""  # of a tokenizer, see `Tokens.reading`
    around: tuple[str, ...] = ("", "")  # the parts of a prompt around each text
    width: int  # of a slot
    slots: Slots
    batch_size: int = 1  # texts of a request, if that matters

    def keep_in(self, store: VectorStore) -> None:
        """Compute all slots that a store keeps, too."""

    def encode(self, texts: Sequence[str]) -> Iterator[Records]:
        """Yield all slots of distinct texts, batch by batch."""
        raise NotImplementedError

    def cause(self) -> str:
        """Explain why an entry may not be finite, and what to do."""
        raise NotImplementedError


class Disk:
    """A store that asks a model for vectors that it lacks, during one call; to be closed."""

    def __init__(self, store: VectorStore, model: Model):
        model.keep_in(store)
        self._model, self._dtype = model, store.dtype
        self._stored = Vectors(store, model.name, model.width, model.around, model.reading)

    def close(self) -> None:
        """Close the store."""
        self._stored.close()

    def cause(self) -> str:
        """Explain why an entry may not be finite, and what to do."""
        return self._model.cause()

    @property
    def key(self) -> Hashable:
        """Key of the vectors in memory; a new or cleared store gets a new one."""
        return self._model.key, self._dtype, self._stored.store_id

    def encode(self, texts: Sequence[str]) -> Generator[Records, None, None]:
        """Yield the requested slots; keep all slots of new texts."""
        size = self._model.batch_size
        size *= max(TURN // size, 1)  # whole batches, since each request may have a price
        for block in gen_batches(len(texts), size * max(BLOCK // size, 1)):
            rows = yield from self._known(texts, np.arange(block.start, block.stop))
            for start in range(0, len(rows), size):
                with turn(self._stored.path.parent):
                    # Another worker may have encoded some meanwhile.
                    new = yield from self._known(texts, rows[start : start + size])
                    yield from self._new(texts, new)

    def _known(
        self, texts: Sequence[str], rows: np.ndarray
    ) -> Generator[Records, None, np.ndarray]:
        """Yield what the store has for some rows of the texts; return the other rows."""
        slots = self._model.slots
        names = [slots.names[i] for i in slots.needed]
        known, vectors, counts = self._stored.read([texts[row] for row in rows], names)
        if known.any():
            yield Records(rows[known], vectors[known], counts[known])
        return rows[~known]

    def _new(self, texts: Sequence[str], rows: np.ndarray) -> Iterator[Records]:
        """Yield the model's slots of some rows of the texts, and keep every slot."""
        if not len(rows):
            return
        model, new = self._model, [texts[row] for row in rows]
        # Memory may have the texts, if it has every slot that the disk keeps.
        has_all = model.slots.needed == list(range(len(model.slots.names)))
        batches = recall(new, model) if has_all else model.encode(new)
        for records in batches:
            encoded = [new[row] for row in records.rows]
            _check_entries(records.vectors, encoded, self._dtype, self.cause)
            # Return the bits that a later call will read.
            vectors = records.vectors.astype(self._dtype).astype(np.float32, copy=False)
            self._stored.write(encoded, model.slots.names, vectors, records.counts)
            yield Records(rows[records.rows], vectors[:, model.slots.needed], records.counts)


def _check_entries(
    vectors: np.ndarray, texts: Sequence[str], dtype: Any, cause: Callable[[], str]
) -> None:
    """Refuse vectors that overflow a dtype, or are so small that they lose digits in it."""
    largest = np.abs(vectors.reshape(len(texts), -1)).max(axis=1)
    limits = np.finfo(dtype)
    is_right = (largest == 0) | ((largest >= limits.tiny) & (largest <= limits.max))
    if not is_right.all():
        i = int(np.argmin(is_right))
        raise ValueError(
            f"The vector of the text {texts[i]!r:.60} is not finite, or too small, in "
            f"{limits.dtype} (largest entry {largest[i]:.1g}): {cause()}"
        )


def recall(texts: Sequence[str], source: Model | Disk) -> Generator[Records, None, None]:
    """Yield the requested slots of distinct texts, from memory or else from the source."""
    known, key = np.zeros(len(texts), dtype=bool), source.key
    for rows, vectors, counts in caches.VECTORS.read(key, texts):
        known[rows] = True
        yield Records(rows, vectors, counts)
    if known.all():
        return
    rows, new = np.flatnonzero(~known), list(compress(texts, ~known))
    for records in source.encode(new):
        encoded = [new[row] for row in records.rows.tolist()]
        _check_entries(records.vectors, encoded, records.vectors.dtype, source.cause)
        caches.VECTORS.write(source.key, encoded, records.vectors, records.counts)
        yield records._replace(rows=rows[records.rows])


def vectors_of(
    texts: Sequence[str],
    model: Model,
    memory: Any,
    merge: Callable[[np.ndarray], np.ndarray],
    *,
    verbose: bool | int,
) -> tuple[np.ndarray, np.ndarray]:
    """Return vectors of texts, (n_texts, n), and the sums of the last three counts.

    ``merge(slots)`` makes vectors, (b, n), from the requested slots.
    """
    unique, inverse = distinct(texts)
    times = np.bincount(inverse)  # that each distinct text occurs
    vectors, counts = np.empty((0, 0), np.float32), np.empty((len(unique), 4), np.int32)
    opened: Any = nullcontext(model)
    if memory is not None:
        store = memory if isinstance(memory, VectorStore) else VectorStore(memory)
        opened = closing(Disk(store, model))
    shown = progress(len(texts), unit="text", desc="encode", verbose=verbose)
    with shown as bar, opened as source, closing(recall(unique, source)) as batches:
        for rows, slots, numbers in batches:
            merged = merge(slots)
            if not len(vectors):
                vectors = np.empty((len(unique), merged.shape[1]), merged.dtype)
            elif merged.dtype.itemsize > vectors.itemsize:  # a model that answers in both
                vectors = vectors.astype(merged.dtype)
            vectors[rows], counts[rows] = merged, numbers
            bar.update(n := int(times[rows].sum()))
            count_texts(n)
    _, own, unknown, _ = counts.T
    has_content = (unknown < own) | (own == 0)
    if (notes := _notes.get()) is not None:
        for text, has in zip(unique, has_content.tolist(), strict=True):
            notes[text] = has or notes.get(text, False)
    # The special tokens of an empty text count as its own, but none of them is unknown.
    counts[unknown == counts[:, 0], 1:3] = 0
    return vectors if len(unique) == len(inverse) else vectors[inverse], times @ counts[:, 1:]
