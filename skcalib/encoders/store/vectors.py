"""Vectors of texts in the file of a store.

Each array has a checksum, and each vector is stored with the key of its text, so that a damaged
file costs time but never gives a wrong vector.
"""

import hashlib
import sqlite3
import time
import zlib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from skcalib.base import warn
from skcalib.encoders.store.database import connect
from skcalib.encoders.store.store import VectorStore

# Errors of a damaged file, rather than of the machine.
DAMAGE = {sqlite3.SQLITE_ERROR, sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB}
ARRAY = "SELECT crc, data FROM arrays WHERE block = ? AND slot = ?"


class Vectors:
    """Vectors of one model in a store, for one call of the user; to be closed.

    ``model`` identifies everything that a vector of d = ``width`` numbers depends on, except
    its text and what is put ``around`` it. After the first error of the machine, such as a full
    disk, this call keeps nothing more.
    """

    def __init__(
        self,
        store: VectorStore,
        model: str | None,
        width: int,
        around: tuple[str, ...] = ("", ""),
    ):
        self.path, self._width = store._path, width
        self._around = around
        self._model = hashlib.blake2b(f"{model}|{width}|{store.dtype}".encode()).digest()
        row = [("key", "V16"), ("counts", "<i4", (4,)), ("vector", store.dtype, (width,))]
        self._row = np.dtype(row)
        self._db: sqlite3.Connection | None = None
        self._inode: int | None = None
        self._readable = self._writable = True

    def close(self) -> None:
        """Close the file."""
        if self._db is not None:
            self._db.close()
        self._db = None

    @property
    def store_id(self) -> bytes | None:
        """Id of this store, a new one after it was cleared; None if it cannot be read."""
        row = self._run("read", lambda db: db.execute("SELECT id FROM store").fetchone())
        return row and row[0]

    def read(
        self, texts: Sequence[str], slots: Sequence[str]
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return which of n distinct texts are known, (n,), and their vectors and counts.

        Vectors have shape (n, n_slots, d), counts (n, 4). Rows of unknown texts are arbitrary.
        """
        keys = [self._key(text) for text in texts]
        known = np.zeros(len(texts), dtype=bool)
        counts = np.empty((len(texts), 4), dtype=np.int32)
        vectors = np.empty((len(texts), len(slots), self._width), dtype=np.float32)

        def load(db: sqlite3.Connection) -> int:
            n_damaged = 0
            for block, places in _places(db, keys).items():
                out, rows = map(list, zip(*places, strict=True))
                expected = b"".join([keys[i] for i in out])
                try:
                    for j, slot in enumerate(slots):
                        crc, data = db.execute(ARRAY, (block, slot)).fetchone()
                        if crc != _checksum(slot, data):
                            raise ValueError("other bytes than were written")
                        stored = np.frombuffer(data, self._row)[rows]
                        if stored["key"].tobytes() != expected:
                            raise ValueError("rows of other texts")
                        vectors[out, j], counts[out] = stored["vector"], stored["counts"]
                    known[out] = True
                # Damaged values are missing, or have another type or size.
                except (TypeError, ValueError, IndexError):
                    n_damaged += 1
            return n_damaged

        n_damaged = self._run("read", load)
        if n_damaged:
            self._warn(f"has {n_damaged} damaged blocks; their texts are encoded again.")
        return known, vectors, counts

    def write(
        self,
        texts: Sequence[str],
        slots: Sequence[str],
        vectors: np.ndarray,
        counts: np.ndarray,
    ) -> bool:
        """Keep arrays such as `read` returns, all or none; return whether they were kept."""
        keys = [self._key(text) for text in texts]
        rows = np.empty(len(texts), self._row)
        rows["key"], rows["counts"] = np.frombuffer(b"".join(keys), "V16"), counts

        def insert(db: sqlite3.Connection) -> bool:
            db.execute("BEGIN IMMEDIATE")
            (block,) = db.execute("SELECT ifnull(max(block), 0) + 1 FROM arrays").fetchone()
            for j, slot in enumerate(slots):
                rows["vector"] = vectors[:, j]
                data = rows.tobytes()
                array = block, slot, _checksum(slot, data), data
                db.execute("INSERT INTO arrays VALUES (?, ?, ?, ?)", array)
            # Some texts may be in an older block already, damaged or from another process.
            places = [(key, block, row) for row, key in enumerate(keys)]
            db.executemany("INSERT OR REPLACE INTO texts VALUES (?, ?, ?)", places)
            return True

        return bool(self._run("written", insert))

    def _key(self, text: str) -> bytes:
        content = text.join(self._around).encode("utf-8", "surrogatepass")
        return hashlib.blake2b(content, digest_size=16, key=self._model).digest()

    def _run(self, done: str, operation: Callable[[sqlite3.Connection], Any]) -> Any:
        """Return the result of a transaction, None if the file cannot be read or written."""
        if not (self._readable if done == "read" else self._writable):
            return None
        try:
            if self._db is None:
                self._db = connect(self.path)
                self._inode = self.path.stat().st_ino
            with self._db as db:
                return operation(db)
        except (sqlite3.Error, UnicodeDecodeError) as error:  # or a garbled message
            self.close()
            code = getattr(error, "sqlite_errorcode", sqlite3.SQLITE_CORRUPT) & 0xFF
            if code not in DAMAGE or not self._set_aside(error):
                # A file that cannot be read is not written; one that cannot be written is read.
                self._writable, self._readable = False, done == "written"
                self._warn(
                    f"could not be {done}: {error}. Vectors are computed but not kept. Free "
                    "some space, end a process that holds the lock, or choose another folder."
                )
            return None

    def _set_aside(self, error: Exception) -> bool:
        """Rename the damaged file unless another process has; return whether that worked."""
        aside = Path(f"{self.path}.damaged-{time.time_ns()}")
        try:
            if self._inode not in (None, self.path.stat().st_ino):
                return True
            self.path.rename(aside)
            for suffix in ("-wal", "-shm"):
                Path(f"{self.path}{suffix}").unlink(missing_ok=True)
        except OSError:
            return False
        self._warn(f"is damaged ({error}). It was renamed to {aside.name!r}; a new one starts.")
        return True

    def _warn(self, what: str) -> None:
        warn(f"The store {str(self.path)!r} {what}")


def _checksum(slot: str, data: bytes) -> int:
    return zlib.crc32(data, zlib.crc32(slot.encode()))


def _places(db: sqlite3.Connection, keys: list[bytes]) -> dict[int, list[tuple[int, int]]]:
    """Find texts: for each block, their positions among the keys and in the block."""
    position = {key: i for i, key in enumerate(keys)}
    places: dict[int, list[tuple[int, int]]] = {}
    for i in range(0, len(keys), 900):  # SQLite accepts at least 999 parameters
        some = keys[i : i + 900]
        query = f"SELECT key, block, row FROM texts WHERE key IN ({','.join('?' * len(some))})"
        for key, block, row in db.execute(query, some):
            if key in position:  # a damaged index finds others
                places.setdefault(block, []).append((position[key], row))
    return places
