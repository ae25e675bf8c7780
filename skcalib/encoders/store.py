"""VectorStore, and the SQLite file with its vectors, which serves several processes.

Each array has a checksum, and each vector is stored with the key of its text, so that a damaged
file never gives a wrong vector.
"""

import hashlib
import os
import sqlite3
import zlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import KW_ONLY, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from filelock import FileLock, Timeout

from skcalib.base import warn
from skcalib.compat import StrOptions, validate_parameter_constraints
from skcalib.encoders.recipe import POOLINGS

CONSTRAINTS = {"dtype": [StrOptions({"float32", "float16"})]}
ARRAY = "SELECT crc, data FROM arrays WHERE block = ? AND slot = ?"
# Errors of a damaged file, rather than of the machine.
DAMAGE = {sqlite3.SQLITE_ERROR, sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB}

FORMAT = 6
WAIT = 60.0  # seconds to wait for another process that writes
SILENCE = 10.0  # seconds to wait for a turn before a warning
PATIENCE = 600.0  # seconds to wait for a turn after it
# A batch of texts is a block with one array per slot (a layer with a pooling), because a
# pipeline reads one or two slots of many texts. The id of a store changes when it is cleared.
SCHEMA = f"""
PRAGMA page_size = 16384;
PRAGMA auto_vacuum = INCREMENTAL;
PRAGMA journal_mode = WAL;
BEGIN IMMEDIATE;
CREATE TABLE store (id BLOB);
CREATE TABLE readings (model BLOB PRIMARY KEY, reading TEXT);
CREATE TABLE arrays (
    block INTEGER, slot TEXT, crc INTEGER, data BLOB, PRIMARY KEY (block, slot)
);
CREATE TABLE texts (key BLOB PRIMARY KEY, block INTEGER, row INTEGER) WITHOUT ROWID;
CREATE INDEX texts_of_block ON texts (block);
INSERT INTO store VALUES (randomblob(16));
PRAGMA user_version = {FORMAT};
COMMIT
"""


@dataclass(eq=False)
class VectorStore:
    """Vectors of texts on disk, for the parameter ``memory`` of `BertEncoder` or `TextEncoder`.

    ``memory=folder`` creates one with the defaults.

    Parameters
    ----------
    location : path-like
        Folder; the first write creates it.
    dtype : {"float32", "float16"}, default="float32"
        Precision on disk. float16 halves the size and changes Spearman's rho on STS-B by less
        than 0.01 points (times 100).
    layers : sequence of int or None, default=None
        Hidden states to keep, as in `BertEncoder`; None keeps all. An encoder that needs
        others, or another pooling, raises an error.
    pooling : str, sequence of str or None, default=None
        Poolings to keep, as in `BertEncoder`; of "mean" and "max" also "_own". None keeps all,
        "last", "weighted_mean" and "mean_without_first" only for decoders or when used.

    Notes
    -----
    A text needs ``n_states * n_poolings * (4 * d + 32)`` bytes: 66 kB for MiniLM (7 hidden
    states of 384 dimensions), 242 kB for BERT-base (13 of 768), both with six poolings. With
    the nine of a decoder SmolLM2-135M needs 652 kB: pass the ``layers`` that you will compare.

    Several processes may use the file at once if it is on a local disk. It holds numbers and
    hashes of texts, not the texts, and nothing in it can run code. Use a folder that you trust:
    anyone who can write to it can forge vectors.

    Examples
    --------
    >>> import tempfile
    >>> from skcalib import BertEncoder, VectorStore
    >>> from skcalib.datasets import minilm_path
    >>> store = VectorStore(tempfile.mkdtemp())
    >>> encoder = BertEncoder(minilm_path(), memory=store).fit(["A dog barks."])
    >>> first = encoder.transform(["A dog barks.", "It rains."])
    >>> len(store)
    2
    >>> again = encoder.set_params(pooling="cls").fit_transform(["It rains."])  # no model run
    >>> store.clear()
    >>> len(store)
    0
    """

    location: str | os.PathLike[str]
    _: KW_ONLY
    dtype: str = "float32"
    layers: Sequence[int] | None = None
    pooling: str | Sequence[str] | None = None

    def __post_init__(self) -> None:
        dtype = {"dtype": self.dtype}
        validate_parameter_constraints(CONSTRAINTS, dtype, type(self).__name__)
        if not self._poolings or not set(self._poolings) <= set(POOLINGS):
            raise ValueError(
                f"The 'pooling' parameter of VectorStore must be {StrOptions(set(POOLINGS))}, "
                f"or several, or None. Got {self.pooling!r} instead."
            )

    def __len__(self) -> int:
        """Return the number of texts, counted once per model and its settings."""
        if not self._path.exists():
            return 0
        with _refusing(self._path), closing(connect(self._path)) as db:
            return db.execute("SELECT count(*) FROM texts").fetchone()[0]

    @property
    def n_bytes(self) -> int:
        """Size of the file in bytes."""
        return self._path.stat().st_size if self._path.exists() else 0

    def clear(self) -> None:
        """Delete all vectors and free the disk space."""
        if self._path.exists():
            with _refusing(self._path), closing(connect(self._path)) as db:
                db.executescript(
                    "BEGIN IMMEDIATE; DELETE FROM texts; DELETE FROM arrays;"
                    "DELETE FROM readings; UPDATE store SET id = randomblob(16); COMMIT;"
                    "PRAGMA incremental_vacuum"
                )

    @property
    def _path(self) -> Path:
        return Path(self.location).expanduser().absolute() / "skcalib-vectors.sqlite"

    @property
    def _poolings(self) -> Sequence[str]:
        if self.pooling is None:
            return list(POOLINGS)
        return [self.pooling] if isinstance(self.pooling, str) else self.pooling


class Vectors:
    """Vectors of one model in a store, for one call of the user; to be closed."""

    def __init__(
        self,
        store: VectorStore,
        model: str | None,
        width: int,
        around: tuple[str, ...] = ("", ""),
        reading: str = "",
    ):
        self.path, self._width = store._path, width
        self._around, self._reading = around, reading
        self._model = hashlib.blake2b(f"{model}|{width}|{store.dtype}".encode()).digest()
        row = [("key", "V16"), ("counts", "<i4", (4,)), ("vector", store.dtype, (width,))]
        self._row = np.dtype(row)
        self._db: sqlite3.Connection | None = None

    def close(self) -> None:
        """Close the file."""
        if self._db is not None:
            self._db.close()
        self._db = None

    @property
    def store_id(self) -> bytes:
        """Id of this store, a new one after it was cleared."""
        row = self._run(lambda db: db.execute("SELECT id FROM store").fetchone())
        if row is None:
            raise _damaged(self.path, "it has no id")
        return row[0]

    def read(
        self, texts: Sequence[str], slots: Sequence[str]
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return which texts are known, (n,), vectors (n, n_slots, d), and counts (n, 4)."""
        keys = [self._key(text) for text in texts]
        known = np.zeros(len(texts), dtype=bool)
        counts = np.empty((len(texts), 4), dtype=np.int32)
        vectors = np.empty((len(texts), len(slots), self._width), dtype=np.float32)

        def load(db: sqlite3.Connection) -> None:
            query = "SELECT 1 FROM readings WHERE model = ? AND reading != ?"
            if db.execute(query, (self._model, self._reading)).fetchone():
                raise ValueError(
                    f"The store {str(self.path)!r} was written by a release of transformers "
                    "that splits texts into other tokens than the installed one. Install that "
                    "release, or give another folder."
                )
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
                except (TypeError, ValueError, IndexError) as error:
                    raise _damaged(self.path, f"in block {block}") from error

        self._run(load)
        return known, vectors, counts

    def write(
        self,
        texts: Sequence[str],
        slots: Sequence[str],
        vectors: np.ndarray,
        counts: np.ndarray,
    ) -> None:
        """Keep arrays such as `read` returns, all or none."""
        keys = [self._key(text) for text in texts]
        rows = np.empty(len(texts), self._row)
        rows["key"], rows["counts"] = np.frombuffer(b"".join(keys), "V16"), counts

        def insert(db: sqlite3.Connection) -> None:
            db.execute("BEGIN IMMEDIATE")
            row = self._model, self._reading
            db.execute("INSERT OR IGNORE INTO readings VALUES (?, ?)", row)
            (block,) = db.execute("SELECT ifnull(max(block), 0) + 1 FROM arrays").fetchone()
            for j, slot in enumerate(slots):
                rows["vector"] = vectors[:, j]
                data = rows.tobytes()
                array = block, slot, _checksum(slot, data), data
                db.execute("INSERT INTO arrays VALUES (?, ?, ?, ?)", array)
            # Some texts may be in an older block already, from another process.
            places = [(key, block, row) for row, key in enumerate(keys)]
            db.executemany("INSERT OR REPLACE INTO texts VALUES (?, ?, ?)", places)

        self._run(insert)

    def _key(self, text: str) -> bytes:
        content = text.join(self._around).encode("utf-8", "surrogatepass")
        return hashlib.blake2b(content, digest_size=16, key=self._model).digest()

    def _run(self, operation: Callable[[sqlite3.Connection], Any]) -> Any:
        """Return the result of a transaction."""
        try:
            with _refusing(self.path):
                if self._db is None:
                    self._db = connect(self.path)
                with self._db as db:
                    return operation(db)
        except (OSError, ValueError):
            self.close()
            raise


def _checksum(slot: str, data: bytes) -> int:
    return zlib.crc32(data, zlib.crc32(slot.encode()))


def _places(db: sqlite3.Connection, keys: list[bytes]) -> dict[int, list[tuple[int, int]]]:
    """Find texts: for each block, their positions among the keys and in the block."""
    position = {key: i for i, key in enumerate(keys)}
    places: dict[int, list[tuple[int, int]]] = {}
    for i in range(0, len(keys), 900):  # SQLite accepts at least 999 parameters
        part = keys[i : i + 900]
        query = f"SELECT key, block, row FROM texts WHERE key IN ({','.join('?' * len(part))})"
        for key, block, row in db.execute(query, part):
            if key in position:  # a damaged index finds others
                places.setdefault(block, []).append((position[key], row))
    return places


def connect(path: Path) -> sqlite3.Connection:
    """Open the file, or create it; refuse a file with the format of another release."""
    path.parent.mkdir(parents=True, exist_ok=True)
    db = sqlite3.connect(path, timeout=WAIT, isolation_level="IMMEDIATE")
    try:
        db.executescript("PRAGMA trusted_schema = OFF; PRAGMA synchronous = NORMAL")
        if not _format(db):
            with turn(path.parent):
                if not _format(db):  # another process may have made the tables since
                    db.executescript(SCHEMA)
        if _format(db) != FORMAT:
            raise ValueError(
                f"The store {str(path)!r} has format {_format(db)}; this release of skcalib "
                f"reads format {FORMAT}. Use the release that wrote it, or another folder."
            )
    except BaseException:
        db.close()
        raise
    return db


@contextmanager
def _refusing(path: Path) -> Iterator[None]:
    """Say in one sentence that a file is damaged or out of reach, and what to do."""
    try:
        yield
    except (sqlite3.Error, UnicodeDecodeError) as error:  # or a garbled message
        code = getattr(error, "sqlite_errorcode", sqlite3.SQLITE_CORRUPT) & 0xFF
        if code in DAMAGE:
            raise _damaged(path, error) from error
        raise OSError(
            f"The store {str(path)!r} cannot be read or written: {error}. Free some space, end "
            "a process that holds its lock, or give another folder that you may write to. What "
            "was kept before stays."
        ) from error


def _damaged(path: Path, what: object) -> ValueError:
    return ValueError(
        f"The store {str(path)!r} is damaged ({what}). Delete this file or give another "
        "folder; its texts are then encoded again."
    )


def _format(db: sqlite3.Connection) -> int:
    return db.execute("PRAGMA user_version").fetchone()[0]


@contextmanager
def turn(folder: Path) -> Iterator[None]:
    """Let one worker at a time encode for the store in a folder, if a lock works in time."""
    # A thread may acquire it again; it is released when the process ends.
    lock = FileLock(folder / "skcalib-vectors.lock", is_singleton=True)
    with suppress(OSError, NotImplementedError):  # OSError includes a timeout
        try:
            lock.acquire(timeout=SILENCE)
        except Timeout:
            warn(
                f"Another process or thread encodes for the store {str(folder)!r}; this one "
                f"waits for its turn, at most {PATIENCE:.0f} seconds."
            )
            lock.acquire(timeout=PATIENCE)
    try:
        yield
    finally:
        lock.release()
