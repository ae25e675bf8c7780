"""Vectors of texts in the file of a store.

Each array has a checksum that also covers its texts and its model. Nothing that is found in
the file is taken to be of the type that was written. So a damaged file costs time and never
gives a wrong vector.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import shutil
import sqlite3
import warnings
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from skcalib._store import database
from skcalib._store.claims import Share, share_out
from skcalib._store.database import Database, delete_blocks, give_back, size_on_disk
from skcalib._store.store import VectorStore

__all__ = ["COUNTS", "Found", "Space", "Vectors"]

# Slot of three int32: tokens attended to, the text's own, and twice the unknown ones, plus one
# if the text was cut off.
COUNTS = -1
MAX_HASHES = 2**18  # bytes: 16 for each text that is tokenised with others
TEXTS_OF_QUERY = 900  # SQLite takes 999 parameters at least

ROW = 100  # bytes of a text beside its vectors: counts, hash, and place in the index

_warned_of_disk: set[Path] = set()  # files of stores


class Found(NamedTuple):
    """Vectors of texts that share a block."""

    positions: np.ndarray  # (n,) of the texts among those asked for
    arrays: dict[int, np.ndarray]  # of each slot, (n, d) float32; counts (n, 3) int32


class Space(NamedTuple):
    """What a vector depends on beside its text."""

    fingerprint: str  # of weights, configuration and tokenizer
    max_length: int
    dtype: str  # of the forward pass
    width: int  # d
    slots: tuple[int, ...]  # what is kept of each text


class Vectors:
    """Vectors of one space in a store; for one thread, and to be closed.

    Parameters
    ----------
    store : VectorStore
    space : Space
    """

    def __init__(self, store: VectorStore, space: Space):
        self._path, self._dtype, self._max_bytes = store._path, store.dtype, store.max_bytes
        self._database, self._space = Database(self._path), space
        self._name = "|".join(map(str, (*space[:3], store.dtype, *space.slots)))

    def close(self) -> None:
        """Close the file, which is opened when it is first needed."""
        self._database.close()

    def read(self, texts: Sequence[str], slots: Sequence[int]) -> list[Found]:
        """Find the texts that the store knows.

        Parameters
        ----------
        texts : sequence of distinct str
        slots : sequence of int
            From `space.slots`, or `COUNTS`.

        Returns
        -------
        found : list of Found
            Their vectors, block by block.
        """
        if not self._path.exists():
            return []
        by_hash = {_hash(text): i for i, text in enumerate(texts)}
        try:
            return self._database.run(lambda db: self._load(db, by_hash, slots))
        except sqlite3.Error as error:
            self._warn("Vectors could not be read from", error)
            return []

    def write(self, texts: Sequence[str], arrays: dict[int, np.ndarray]) -> bool:
        """Keep the vectors of one block, all or nothing; return whether they are kept.

        Where the disk is full or read-only they are not, with a warning.

        Parameters
        ----------
        texts : sequence of str
        arrays : dict of ndarray
            For each slot of the space an array of shape (n_texts, d), and the counts.
        """
        hashes = [_hash(text) for text in texts]
        rows = []
        for slot, array in arrays.items():
            data = array.astype(self._layout(slot)[1]).tobytes()
            rows.append((slot, self._checksum(b"".join(hashes), slot, data), data))

        def insert(db: sqlite3.Connection) -> None:
            db.execute("INSERT OR IGNORE INTO spaces (name) VALUES (?)", (self._name,))
            query = "SELECT id FROM spaces WHERE name = ?"
            # A damaged index may not find it: None is an error in the next statement.
            (space,) = db.execute(query, (self._name,)).fetchone() or (None,)
            query = "INSERT INTO blocks (space, hashes) VALUES (?, ?)"
            block = db.execute(query, (space, b"".join(hashes))).lastrowid
            db.executemany(f"INSERT INTO arrays VALUES ({block}, ?, ?, ?)", rows)
            # Another process may have been faster with some: either vector is right.
            query = f"INSERT OR REPLACE INTO texts VALUES ({space}, ?, {block}, ?)"
            db.executemany(query, [(digest, i) for i, digest in enumerate(hashes)])
            self._make_room(db, block)

        try:
            self._database.write(insert)
            if self._max_bytes is not None:
                self._database.run(give_back)
        except sqlite3.Error as error:
            self._warn("Vectors could not be kept in", error)
            return False
        return True

    def check_disk(self, texts: Sequence[str]) -> None:
        """Warn, once a process, if new ones of distinct texts would take all free disk."""
        free = shutil.disk_usage(next(filter(os.path.isdir, self._path.parents), ".")).free
        vector = self._space.width * np.dtype(self._dtype).itemsize
        of_text = len(self._space.slots) * vector + ROW
        if self._path in _warned_of_disk or len(texts) * of_text <= free:
            return
        n_new = len(texts) - self._n_known(texts)
        added = n_new * of_text
        if self._max_bytes is not None:
            added = min(added, self._max_bytes - size_on_disk(self._path))
        if added > free:
            _warned_of_disk.add(self._path)
            warnings.warn(
                f"{n_new:,} new texts add {added / 1e6:,.0f} MB to the store "
                f"{str(self._path)!r}, whose disk has {free / 1e6:,.0f} MB free. Once it is "
                "full, vectors are computed and not kept. Make a VectorStore with layers=, "
                "poolings= or dtype='float16', which keep less of each text, or with "
                "max_bytes=, or choose another folder.",
                UserWarning,
                stacklevel=3,
            )

    def _n_known(self, texts: Sequence[str]) -> int:
        """Return how many of the texts the file lists."""
        starts = range(0, len(texts), TEXTS_OF_QUERY)  # a million hashes are never in memory

        def count(db: sqlite3.Connection) -> int:
            groups = ([_hash(t) for t in texts[i : i + TEXTS_OF_QUERY]] for i in starts)
            return sum(len(self._places(db, group)) for group in groups)

        with contextlib.suppress(sqlite3.Error):  # of which `read` tells
            return self._database.run(count) if self._path.exists() else 0
        return 0

    def shares(self, texts: Sequence[str]) -> list[Share]:
        """Divide texts into the shares that `claim_one` takes."""
        name = self._name.encode()
        return share_out(self._path.parent, [zlib.crc32(_hash(t) + name) for t in texts])

    def _warn(self, what: str, error: Exception) -> None:
        remedy = "Free some space, or choose another folder."
        if "locked" in str(error):
            remedy = (
                f"Another process has held it for {database.WAIT:g} seconds; end that one if "
                "it is stuck. Until it lets go, nobody waits for it again, and nothing is kept."
            )
        warnings.warn(
            f"{what} {str(self._path)!r}: {error}. They are computed all the same. {remedy}",
            UserWarning,
            stacklevel=3,
        )

    def _load(
        self, db: sqlite3.Connection, by_hash: dict[bytes, int], slots: Sequence[int]
    ) -> list[Found]:
        """Find texts in the file, given their positions by their hashes."""
        blocks: dict[int, dict[bytes, int]] = {}
        for digest, (block, row) in self._places(db, list(by_hash)).items():
            blocks.setdefault(block, {})[digest] = row
        found, damaged = [], []
        for block, rows in blocks.items():
            if (arrays := self._read_block(db, block, rows, slots)) is None:
                damaged.append(block)
            else:
                found.append(Found(np.array([by_hash[digest] for digest in rows]), arrays))
        if damaged:
            with contextlib.suppress(sqlite3.OperationalError), db:  # it may be read-only
                db.execute("BEGIN IMMEDIATE")
                delete_blocks(db, damaged)
            warnings.warn(
                f"{len(damaged)} blocks of the store {str(self._path)!r} are damaged; their "
                "texts are encoded anew.",
                UserWarning,
                stacklevel=2,
            )
        return found

    def _places(
        self, db: sqlite3.Connection, hashes: list[bytes]
    ) -> dict[bytes, tuple[int, int]]:
        """Return block and row of the texts that the file lists."""
        places = {}
        for start in range(0, len(hashes), TEXTS_OF_QUERY):
            group = hashes[start : start + TEXTS_OF_QUERY]
            marks = ",".join("?" * len(group))
            query = "SELECT hash, block, row FROM texts WHERE space = (SELECT id FROM spaces"
            query += f" WHERE name = ?) AND hash IN ({marks}) AND typeof(block) = 'integer'"
            query += " AND typeof(row) = 'integer' AND row >= 0"
            for digest, block, row in db.execute(query, (self._name, *group)):
                places[digest] = block, row
        return places

    def _read_block(
        self, db: sqlite3.Connection, block: int, rows: dict[bytes, int], slots: Sequence[int]
    ) -> dict[int, np.ndarray] | None:
        """Return rows of a block's arrays, or None if it is damaged."""
        # The query looks at types and sizes: a forged value may be as large as memory.
        query = "SELECT hashes FROM blocks WHERE id = ?"
        query += " AND typeof(hashes) = 'blob' AND length(hashes) <= ?"
        (hashes,) = db.execute(query, (block, MAX_HASHES)).fetchone() or (b"",)
        if any(hashes[16 * row : 16 * row + 16] != digest for digest, row in rows.items()):
            return None
        arrays, places = {}, np.array([*rows.values()])
        query = "SELECT crc, data FROM arrays WHERE block = ? AND slot = ? AND typeof(crc)"
        query += " = 'integer' AND typeof(data) = 'blob' AND length(data) = ?"
        for slot in slots:
            width, dtype = self._layout(slot)
            n_bytes = len(hashes) // 16 * width * dtype.itemsize
            crc, data = db.execute(query, (block, slot, n_bytes)).fetchone() or (None, b"")
            if crc is None or crc != self._checksum(hashes, slot, data):
                return None
            array = np.frombuffer(data, dtype=dtype).reshape(-1, width)[places]
            arrays[slot] = array if slot == COUNTS else array.astype(np.float32, copy=False)
        return arrays

    def _layout(self, slot: int) -> tuple[int, np.dtype]:
        """Return width and dtype of a slot's arrays in the file."""
        if slot == COUNTS:
            return 3, np.dtype(np.int32)
        return self._space.width, np.dtype(self._dtype)

    def _checksum(self, hashes: bytes, slot: int, data: bytes) -> int:
        about = self._name.encode() + hashes + slot.to_bytes(4, "little", signed=True)
        return zlib.crc32(data, zlib.crc32(about))

    def _make_room(self, db: sqlite3.Connection, newest: int | None) -> None:
        """Delete the oldest blocks, never the newest, until the bound holds."""
        while self._max_bytes is not None:
            count, free, size = (
                db.execute(f"PRAGMA {name}").fetchone()[0]
                for name in ("page_count", "freelist_count", "page_size")
            )
            query = "SELECT id FROM blocks WHERE id < ? ORDER BY id LIMIT 1"
            oldest = [block for (block,) in db.execute(query, (newest,))]
            if (count - free) * size <= self._max_bytes or not oldest:
                return
            delete_blocks(db, oldest)


def _hash(text: str) -> bytes:
    return hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=16).digest()
