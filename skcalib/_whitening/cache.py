"""Moments and eigendecompositions kept on disk, keyed on the content of the data.

The files are plain ``.npz``, read without pickle, and written under another name and then
renamed. Each holds its own key: a file that was cut short, altered or put in another's place
is computed anew. The last ones stay in memory too, for a grid asks for one time and again.
"""

from __future__ import annotations

import contextlib
import hashlib
import io
import os
import stat
import tempfile
import warnings
from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.utils import gen_batches

from skcalib._covariance.moments import Moments
from skcalib._covariance.spectrum import decompose
from skcalib._machine.limits import rows_within

__all__ = ["Fit", "cache_folder", "content_hash", "recall"]

FORMAT = 5  # raised with any change to what is stored, or to how it is computed
NAMES = ("n", "mean", "scatter", "cubic", "quartic", "variance", "basis")
RECENT_BYTES = 2**26  # scatter matrices kept in memory, and as much of bases
HASHED_BYTES = 2**20  # rows hashed at once
SAMPLE_BYTES = 2**23  # a larger sample is not kept in memory

Spectrum = tuple[np.ndarray, np.ndarray]
Fit = tuple[Moments, Spectrum]

_recent: dict[Path | None, Fit] = {}  # the latest last
_hashed: deque[tuple[np.ndarray, str]] = deque(maxlen=10)  # samples and their hashes


def cache_folder(memory: Any) -> Path | None:
    """Folder of ``memory``: None, a path, or a ``joblib.Memory``."""
    # Of a Memory only the location is used: what joblib caches itself it pickles.
    location = getattr(memory, "location", memory)
    if "\0" in str(location):
        raise ValueError(f"memory={memory!r} names no folder: it holds a NUL.")
    return None if location is None else Path(location).expanduser() / "skcalib-whitening"


def content_hash(X: np.ndarray, sample_weight: Any = None) -> str:
    """Hash of the shape, dtype and content of ``X`` and of its weights."""
    known = _hashed.copy() if sample_weight is None else ()
    for sample, digest in known:  # to compare takes a tenth of the time of hashing
        alike = sample.dtype == X.dtype and np.array_equal(sample[:1], X[:1])
        if alike and np.array_equal(sample, X):
            return digest
    # Most processors have instructions for SHA-256: 1.9 GB/s, where BLAKE2b takes in 1.0.
    total = hashlib.sha256(repr((FORMAT, X.shape, X.dtype.str)).encode())
    for rows in gen_batches(len(X), rows_within(HASHED_BYTES, X.shape[1], X.itemsize)):
        total.update(np.ascontiguousarray(X[rows]).data)
    if sample_weight is not None:
        total.update(np.asarray(sample_weight, dtype=np.float64, order="C").data)
    elif X.nbytes <= SAMPLE_BYTES:
        _hashed.append((X.copy(), total.hexdigest()))
    return total.hexdigest()


def recall(
    folder: Path, key: str, n_features: int, compute: Callable[[], Moments]
) -> tuple[Moments, Spectrum | None]:
    """Moments and spectrum under ``key``, computed and stored where they are missing.

    Too few samples have no covariance: there is no spectrum then, and nothing is stored.
    """
    path = folder / f"{key}.npz"
    fit = _recent.pop(path, None) or _read(path, key, n_features)
    if fit is None:
        moments = compute()
        if moments.n <= 1:
            return moments, None
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
    moments, spectrum = fit
    for array in (moments.mean, moments.scatter, moments.cubic, *spectrum):
        array.flags.writeable = False  # whitenings share them
    # No lock, which a fork could leave held: each step is one operation of the dictionary.
    _recent[path] = fit
    while sum(moments.scatter.nbytes for moments, _ in list(_recent.values())) > RECENT_BYTES:
        _recent.pop(next(iter([*_recent]), None), None)
    return fit


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
            # Read to their ends, where zipfile compares checksums; NumPy may stop before.
            if file.zip.testzip() is not None or str(file["key"]) != key:
                return None
            n, mean, scatter, cubic, quartic, variance, basis = (file[name] for name in NAMES)
    except Exception:  # whatever a damaged file makes zipfile or numpy raise
        return None
    return Moments(n.item(), mean, scatter, cubic, quartic.item()), (variance, basis)


def _write(path: Path, key: str, fit: Fit) -> None:
    moments, spectrum = fit
    values = (*(getattr(moments, name) for name in NAMES[:5]), *spectrum)
    archive = io.BytesIO()  # NumPy 1 leaves one on a full disk half open
    np.savez(archive, key=np.array(key), **dict(zip(NAMES, values, strict=True)))
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, temporary = tempfile.mkstemp(dir=path.parent, suffix=".tmp")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(archive.getbuffer())
        os.replace(temporary, path)
    except BaseException:
        with contextlib.suppress(FileNotFoundError):  # of an interrupt after it was renamed
            os.unlink(temporary)
        raise
