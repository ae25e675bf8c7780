"""Moments and eigendecompositions kept on disk, keyed on the content of the data.

Plain ``.npz`` files, read without pickle, written under another name and then renamed, each
with a checksum over its arrays and its key: a file that was cut short, altered or put in
another's place is computed anew. The last ones stay in memory too: a grid over what is done
with a spectrum asks for it time and again.
"""

from __future__ import annotations

import hashlib
import io
import os
import stat
import tempfile
import warnings
import zlib
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from skcalib._moments import Moments
from skcalib._row_threads import blas_threads, in_threads, row_chunks
from skcalib._spectrum import decompose

__all__ = ["Fit", "cache_folder", "fingerprint", "recall"]

FORMAT = 3  # raised with any change to what is stored, or to how it is computed
NAMES = ("n", "mean", "scatter", "cubic", "quartic", "variance", "basis")

# Kept in memory as well: so much of scatter matrices, as much of bases, and of samples. A
# sample of more than a quarter of it is not.
RECENT_BYTES = 2**26
HASHED_BYTES = 2**20  # of a sample at once, by one thread

Fit = tuple[Moments, tuple[np.ndarray, np.ndarray]]

_recent: dict[Path, Fit] = {}
_samples: dict[str, tuple[np.ndarray, ...]] = {}  # by fingerprint, with weights where given

# 2.6 times as fast as SHA-256 on a processor without instructions for that.
_hash = partial(hashlib.blake2b, digest_size=32)


def cache_folder(memory) -> Path | None:
    """Folder of ``memory``: None, a path, or a ``joblib.Memory``."""
    # Of a Memory only the location is taken: what joblib caches itself it pickles.
    location = getattr(memory, "location", memory)
    if "\0" in str(location):
        raise ValueError(f"memory={memory!r} names no folder: it holds a NUL.")
    return None if location is None else Path(location).expanduser() / "skcalib-whitening"


def fingerprint(X: np.ndarray, weight: np.ndarray | None = None) -> str:
    """Hash of shape, dtype and content."""
    sample = (X,) if weight is None else (X, weight)
    for digest, seen in reversed(list(_samples.items())):
        if _equal(sample, seen):  # which takes a twentieth of hashing
            return digest
    digest = _digest(sample)
    if 4 * _n_bytes(sample) <= RECENT_BYTES:
        _keep(_samples, digest, tuple(np.array(a, order="C") for a in sample), _n_bytes)
    return digest


def _equal(sample: tuple[np.ndarray, ...], other: tuple[np.ndarray, ...]) -> bool:
    return len(sample) == len(other) and all(
        a.shape == b.shape
        and a.dtype == b.dtype
        and np.array_equal(a[:1], b[:1])  # others seldom share the first row
        and np.array_equal(a, b)
        for a, b in zip(sample, other, strict=True)
    )


def _n_bytes(sample: tuple[np.ndarray, ...]) -> int:
    return sum(array.nbytes for array in sample)


def _digest(sample: tuple[np.ndarray, ...]) -> str:
    X, *weight = sample
    step = max(1, HASHED_BYTES // (X.itemsize * X.shape[1]))
    blocks = list(row_chunks(slice(0, len(X)), step))
    threads = min(blas_threads(), len(blocks))
    digests = [b""] * len(blocks)

    def digest(first):
        for i in range(first, len(blocks), threads):
            digests[i] = _hash(_bytes(X[blocks[i]])).digest()

    in_threads([partial(digest, first) for first in range(threads)])
    total = _hash(repr((FORMAT, X.shape, X.dtype.str)).encode())
    for part in digests:
        total.update(part)
    for array in weight:
        total.update(_bytes(array))
    return total.hexdigest()


def recall(folder: Path, key: str, n_features: int, compute: Callable[[], Moments]) -> Fit:
    """Moments and spectrum under ``key``, computed and stored where they are not there."""
    path = folder / f"{key}.npz"
    fit = _recent.get(path) or _read(path, key, n_features)
    if fit is None:
        moments = compute()
        fit = moments, decompose(moments.covariance())
        try:
            _write(path, key, fit)
        except OSError as error:  # a full or read-only disk
            warnings.warn(
                f"The fit could not be kept in {str(folder)!r}: {error}. It is good all the "
                "same. Free some space, or choose another folder.",
                UserWarning,
                stacklevel=2,
            )
    _remember(path, fit)
    return fit


def _remember(path: Path, fit: Fit) -> None:
    moments, spectrum = fit
    for array in (moments.mean, moments.scatter, moments.cubic, *spectrum):
        array.flags.writeable = False  # whitenings share them
    _keep(_recent, path, fit, lambda fit: fit[0].scatter.nbytes)


def _keep(recent: dict, key, value, n_bytes: Callable[[Any], int]) -> None:
    """Keep a value; the oldest ones make room."""
    # No lock, which a fork could leave held: each step is one operation of the dictionary.
    recent[key] = value
    while sum(map(n_bytes, list(recent.values()))) > RECENT_BYTES:
        recent.pop(next(iter(recent)), None)


def _no_link(path: str, flags: int) -> int:
    return os.open(path, flags | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0))


def _read(path: Path, key: str, n_features: int) -> Fit | None:
    most = 24 * n_features**2 + 2**16  # bytes: two matrices, a few vectors, and headers
    try:
        with open(path, "rb", opener=_no_link) as stream:
            status = os.fstat(stream.fileno())
            if not stat.S_ISREG(status.st_mode) or status.st_size > most:
                return None
            file = np.load(stream, allow_pickle=False)
            if sum(entry.file_size for entry in file.zip.infolist()) > most:
                return None
            arrays = {name: file[name] for name in (*NAMES, "checksum")}
    except Exception:  # whatever a damaged file makes zipfile or numpy raise
        return None
    if arrays.pop("checksum").tobytes() != _checksum(key, arrays).tobytes():
        return None
    n, quartic = arrays["n"].item(), arrays["quartic"].item()
    moments = Moments(n, arrays["mean"], arrays["scatter"], arrays["cubic"], quartic)
    return moments, (arrays["variance"], arrays["basis"])


def _write(path: Path, key: str, fit: Fit) -> None:
    moments, spectrum = fit
    values = (*(getattr(moments, name) for name in NAMES[:5]), *spectrum)
    arrays: dict[str, Any] = {
        name: np.asarray(value) for name, value in zip(NAMES, values, strict=True)
    }
    arrays["checksum"] = _checksum(key, arrays)
    archive = io.BytesIO()  # NumPy 1 leaves one on a full disk half open
    np.savez(archive, **arrays)
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, temporary = tempfile.mkstemp(dir=path.parent, suffix=".tmp")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(archive.getbuffer())
        os.replace(temporary, path)
    except BaseException:
        os.unlink(temporary)
        raise


def _bytes(array: np.ndarray) -> memoryview:
    return np.ascontiguousarray(array).data


def _checksum(key: str, arrays: dict[str, np.ndarray]) -> np.ndarray:
    total = zlib.crc32(key.encode())
    for name in NAMES:
        array = arrays[name]
        total = zlib.crc32(repr((name, array.shape, array.dtype.str)).encode(), total)
        total = zlib.crc32(_bytes(array), total)
    return np.array(total, dtype=np.uint32)
