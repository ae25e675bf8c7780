"""What this process keeps between calls to save time, and `clear_caches`, which drops it.

Nothing here changes a result. Vectors are kept because a search fits and scores many pipelines
on the same texts, moments because a grid over the dimensions of a whitening would decompose one
covariance again and again, models because loading one takes seconds, and fingerprints of models
because reading their files takes seconds, too.
"""

import hashlib
import sys
from collections import OrderedDict
from collections.abc import Callable, Hashable, Sequence
from functools import lru_cache
from typing import Any

import numpy as np
from sklearn.utils import gen_batches

from skcalib.process.forks import fork_safe_lock

MOMENTS_BYTES = 2**27  # of scatter matrices and eigenvectors together


class _Part:
    """Vectors that were written together."""

    def __init__(
        self, key: Hashable, texts: Sequence[str], vectors: np.ndarray, counts: np.ndarray
    ):
        self.key, self.texts = key, texts
        self.vectors, self.counts = vectors, counts
        # Python needs about 250 bytes for a dict entry, in addition to the text.
        self.n_bytes = vectors.nbytes + counts.nbytes
        self.n_bytes += sum(sys.getsizeof(text) + 250 for text in texts)


class VectorMemory:
    """Vectors of texts that were encoded recently, at most ``bound`` bytes.

    A key identifies the encoder. The least recently used vectors are dropped first.
    """

    def __init__(self, bound: int = 256 * 2**20):
        self.bound = bound
        self._lock = fork_safe_lock()
        self.clear()

    def clear(self) -> None:
        """Drop all vectors."""
        with self._lock:
            self._places: dict[Hashable, dict[str, tuple[_Part, int]]] = {}
            self._parts: OrderedDict[_Part, None] = OrderedDict()  # by their last use
            self._n_bytes = 0

    def read(self, key: Hashable, texts: Sequence[str]) -> list[tuple[np.ndarray, ...]]:
        """Return the rows of texts that are known, their vectors and their counts, in parts."""
        by_part: dict[_Part, tuple[list[int], list[int]]] = {}
        with self._lock:
            places = self._places.get(key, {})
            for i, text in enumerate(texts):
                if text in places:
                    part, row = places[text]
                    rows, inside = by_part.setdefault(part, ([], []))
                    rows.append(i)
                    inside.append(row)
            for part in by_part.keys() & self._parts.keys():
                self._parts.move_to_end(part)
        return [
            (np.array(rows), part.vectors[inside], part.counts[inside])
            for part, (rows, inside) in by_part.items()
        ]

    def write(
        self, key: Hashable, texts: Sequence[str], vectors: np.ndarray, counts: np.ndarray
    ) -> None:
        """Keep the vectors and counts of some texts."""
        part = _Part(key, texts, vectors, counts)
        with self._lock:
            self._parts[part] = None
            self._n_bytes += part.n_bytes
            places = self._places.setdefault(key, {})
            places.update((text, (part, row)) for row, text in enumerate(texts))
            while self._n_bytes > self.bound:
                self._drop(self._parts.popitem(last=False)[0])

    def _drop(self, part: _Part) -> None:
        self._n_bytes -= part.n_bytes
        places = self._places[part.key]
        for text in part.texts:
            if text in places and places[text][0] is part:
                del places[text]
        if not places:
            del self._places[part.key]


VECTORS = VectorMemory()


N_MODELS = 4  # kept at most
_models: OrderedDict[Hashable, Any] = OrderedDict()  # the latest last
_loading = fork_safe_lock()  # transformers loads one model at a time
_models_lock = fork_safe_lock()  # never held for long


def model_of(load: Callable[..., Any], *key: Hashable) -> Any:
    """Return ``load(*key)``, from memory if it is among the models used last.

    Threads do not load one model twice. One that finds its model waits for no other's loading.
    """
    if (model := _known_model((load, *key))) is None:
        with _loading:
            model = _known_model((load, *key)) or load(*key)
            with _models_lock:
                _models[(load, *key)] = model
                while len(_models) > N_MODELS:
                    _models.popitem(last=False)
    return model


def _known_model(key: Hashable) -> Any:
    with _models_lock:
        if key in _models:
            _models.move_to_end(key)
        return _models.get(key)


@lru_cache(maxsize=64)
def fingerprint_of(compute: Callable[..., str], *key: Hashable) -> str:
    """Return ``compute(*key)``, from memory if it is among the fingerprints used last."""
    return compute(*key)


_moments: OrderedDict[bytes, Any] = OrderedDict()  # the latest last
_lock = fork_safe_lock()


def moments_of(compute: Callable[[np.ndarray], Any], X: np.ndarray) -> Any:
    """Return ``compute(X)``, from memory if it knows a sample of the same bytes.

    The result has a matrix ``scatter``, and may keep its
    eigenvectors. Its arrays are read-only, since later fits share them.
    """
    # A larger sample may be on disk, and hashing it would read it once more.
    if X.nbytes > 2**30:
        return compute(X)
    key = _content_hash(X)
    with _lock:
        moments = _moments.pop(key, None)
    if moments is None:
        moments = compute(X)
        for value in vars(moments).values():
            if isinstance(value, np.ndarray):
                value.flags.writeable = False
    with _lock:
        _moments[key], n_bytes = moments, 0
        for known in reversed([*_moments]):
            n_bytes += 2 * _moments[known].scatter.nbytes
            if n_bytes > MOMENTS_BYTES:
                del _moments[known]
    return moments


def _content_hash(X: np.ndarray) -> bytes:
    # Most processors have instructions for SHA-256: 1.5 GB/s, where BLAKE2b reaches 0.8.
    total = hashlib.sha256(repr((X.shape, X.dtype.str)).encode())
    for rows in gen_batches(len(X), 2**20 // X[0].nbytes + 1):
        total.update(np.ascontiguousarray(X[rows]).data)
    return total.digest()


# Warnings that were shown, each with its file and line.
SHOWN: set[tuple[str, type[Warning], str, int]] = set()


def clear_caches() -> None:
    """Drop what this process keeps to save time, in main memory and on GPUs.

    These are vectors of texts (up to 256 MiB), decompositions of samples (up to 128 MiB), the
    four models used last, fingerprints of models, and the list of warnings shown. Fitted
    estimators and stores on disk do not change. The next call loads the model again.

    Examples
    --------
    >>> from skcalib import clear_caches
    >>> clear_caches()
    """
    VECTORS.clear()
    with _lock:  # another thread may be fitting
        _moments.clear()
    SHOWN.clear()
    with _models_lock:
        _models.clear()
    fingerprint_of.cache_clear()
