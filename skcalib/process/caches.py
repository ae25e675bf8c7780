"""What this process keeps between calls to save time, and `clear_caches`, which drops it.

Nothing here changes a result. A search fits and scores many pipelines on the same texts, and a
grid over the dimensions of a whitening would decompose one covariance again and again.
"""

import hashlib
import sys
from collections import OrderedDict
from collections.abc import Callable, Hashable, Sequence
from functools import lru_cache
from typing import Any

import numpy as np

from skcalib.process.forks import fork_safe_lock

MOMENTS_BYTES = 2**27  # of scatter matrices and eigenvectors together


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
            self._rows: OrderedDict[tuple[Hashable, str], Any] = OrderedDict()
            self._n_bytes = 0

    def read(self, key: Hashable, texts: Sequence[str]) -> list[tuple[np.ndarray, ...]]:
        """Return the places of texts that are known, their vectors and their counts."""
        with self._lock:
            known = [i for i, text in enumerate(texts) if (key, text) in self._rows]
            for i in known:
                self._rows.move_to_end((key, texts[i]))
            rows = [self._rows[key, texts[i]] for i in known]
        return [(np.array(known), *map(np.stack, zip(*rows, strict=True)))] if known else []

    def write(
        self, key: Hashable, texts: Sequence[str], vectors: np.ndarray, counts: np.ndarray
    ) -> None:
        """Keep the vectors and counts of texts."""
        with self._lock:
            for text, *row in zip(texts, vectors, counts, strict=True):
                self._drop(key, text)
                self._rows[key, text] = tuple(part.copy() for part in row)
                self._n_bytes += _n_bytes(text, *row)
            while self._n_bytes > self.bound:
                self._drop(*next(iter(self._rows)))

    def _drop(self, key: Hashable, text: str) -> None:
        if row := self._rows.pop((key, text), None):
            self._n_bytes -= _n_bytes(text, *row)


def _n_bytes(text: str, *row: np.ndarray) -> int:
    # Python needs about 500 bytes for an entry and its arrays, in addition to the text.
    return sys.getsizeof(text) + sum(part.nbytes for part in row) + 500


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


_moments: OrderedDict[Hashable, Any] = OrderedDict()  # the latest last
_lock = fork_safe_lock()


def moments_of(compute: Callable[[np.ndarray], Any], X: np.ndarray) -> Any:
    """Return ``compute(X)``, from memory if it knows a sample of the same bytes.

    The result has a matrix ``scatter``, and may keep its eigenvectors. Its arrays are
    read-only, since later fits share them.
    """
    # A larger sample may be on disk, and hashing it would read it once more.
    if X.nbytes > 2**30:
        return compute(X)
    # Most processors have instructions for SHA-256: 1.5 GB/s, where BLAKE2b reaches 0.8.
    content = hashlib.sha256(np.ascontiguousarray(X).data).digest()
    key = X.shape, X.dtype.str, content
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


def clear_caches() -> None:
    """Drop what this process keeps to save time, in main memory and on GPUs.

    These are vectors of texts (up to 256 MiB), decompositions of samples (up to 128 MiB), the
    four models used last, and fingerprints of models. Fitted estimators and stores on disk do
    not change. The next call loads the model again.

    Examples
    --------
    >>> from skcalib import clear_caches
    >>> clear_caches()
    """
    VECTORS.clear()
    with _lock:  # another thread may be fitting
        _moments.clear()
    with _models_lock:
        _models.clear()
    fingerprint_of.cache_clear()
