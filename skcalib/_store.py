"""Pooled hidden states of texts, on disk, so that a text meets a model once.

SQLite keeps them: it comes with Python, survives a kill at any moment, and lets several
processes read while one writes. The layout follows how vectors come and go. One forward pass
yields a *block*, a few dozen texts, as one array per *slot* (a layer and a pooling
primitive); a pipeline then reads a slot or two of many texts. So a row holds one slot of one
block, and the arrays are read back as they were written. Every array carries a checksum that
also covers the texts and the model it belongs to: whatever happens to the file, a wrong
vector is not returned but computed anew. Nor is anything that is found in the file taken to
be of the type that was written.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import sqlite3
import stat
import time
import warnings
import zlib
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from skcalib._claims import Claims
from skcalib._forks import fork_lock
from skcalib._vector_cache import COUNTS, Found, Shelf, forget, shelf_of, shrink

__all__ = ["Space", "VectorStore"]

FORMAT = 2
FILE = "skcalib-vectors.sqlite"
LOCK = "skcalib-vectors.lock"
MAX_OPEN = 16  # stores kept open per process, each with four file handles
# What SQLite says where the machine is at fault, and not what is in the file.
ENVIRONMENT = ("locked", "locking", "full", "readonly", "I/O", "unable to open", "interrupted")
SCHEMA = f"""
CREATE TABLE format (version INTEGER NOT NULL);
CREATE TABLE spaces (id INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE);
CREATE TABLE blocks (
    id INTEGER PRIMARY KEY AUTOINCREMENT, space INTEGER NOT NULL, hashes BLOB NOT NULL
);
CREATE TABLE arrays (
    block INTEGER NOT NULL, slot INTEGER NOT NULL, crc INTEGER NOT NULL, data BLOB NOT NULL,
    PRIMARY KEY (block, slot)
);
CREATE TABLE texts (
    space INTEGER NOT NULL, hash BLOB NOT NULL, block INTEGER NOT NULL, row INTEGER NOT NULL,
    PRIMARY KEY (space, hash)
) WITHOUT ROWID;
CREATE INDEX texts_of_block ON texts (block);
INSERT INTO format VALUES ({FORMAT})
"""
# All that a file of this format says about its tables; no trigger or view, which could run on.
KNOWN = {None, b"CREATE TABLE sqlite_sequence(name,seq)"}
KNOWN |= {statement.strip().encode() for statement in SCHEMA.split(";")}
MAX_HASHES = 2**18  # bytes: 16 for each text that is tokenised with others
WAIT = 60.0  # seconds, for the lock of another process

_lock = fork_lock()
_stuck: set[str] = set()  # paths whose lock was waited for in vain: no more, until it is free
_open_stores: OrderedDict[tuple[str, int], _Open] = OrderedDict()  # by path and process


class Space(NamedTuple):
    """What a vector depends on beside its text."""

    fingerprint: str  # of weights, configuration and tokenizer
    max_length: int
    dtype: str  # of the forward pass
    width: int  # d
    slots: tuple[int, ...]  # what is kept of each text


class _Open(NamedTuple):
    """A store in use by this process."""

    db: sqlite3.Connection
    claims: Claims
    identity: tuple[int, int] | None  # of the file, which others may put aside


class VectorStore:
    """Vectors of texts on disk, for `BertEncoder(memory=...)`.

    A folder name given as `memory` makes one with the defaults. Make one yourself to bound
    its size, to store less of each text, or to look inside.

    Parameters
    ----------
    location : path-like
        Folder; made when first written to.
    dtype : {"float32", "float16"}, default="float32"
        Precision on disk. float16 halves the size and rounds each entry to 11 bits. On
        MiniLM and STS-B that moves the cosine of raw vectors by at most 6e-5 and of whitened
        ones by at most 4e-4, and Spearman's rho by less than 0.01 points. Whiten such vectors
        with shrinkage or ``tol=1e-6``: rounding gives a little variance to directions that
        have none, which plain whitening would amplify.
    layers : tuple of int or None, default=None
        Hidden states to keep, counted as in `BertEncoder`. None keeps all, so that any
        choice of layers is read back. An encoder that asks for others is refused.
    max_bytes : int or None, default=None
        Size of the store's file after each batch; the oldest vectors make room, never those
        of the batch. While one is written, a journal of about three batches stands beside
        the file. None sets no bound.

    Notes
    -----
    A text takes ``n_layers * 6 * d * 4`` bytes: 64 kB for MiniLM (7 hidden states of 384
    dimensions), 240 kB for BERT-base (13 of 768). The six are the first token, and mean and
    maximum with and without special tokens, and the mean by Zipf's weights; every pooling
    follows from them.

    The file may be used by several processes at once, on a local disk: SQLite's locks do not
    work on every network file system. Each text is encoded by one of them, while the others
    go on with other texts. It holds numbers and hashes of texts, not the texts, and nothing in
    it can run code. A damaged file is made anew, with a warning; a full disk, a read-only
    folder or a lock that another process keeps for a minute costs what cannot be kept, with a
    warning. Checksums find what was damaged by accident; who may write to the folder can
    forge vectors, so let it be one that you trust.

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

    def __init__(self, location, *, dtype="float32", layers=None, max_bytes=None):
        self.location = location
        self.dtype = dtype
        self.layers = layers
        self.max_bytes = max_bytes

    def __repr__(self):
        """Show how to make an equal one."""
        options = {"dtype": "float32", "layers": None, "max_bytes": None}
        shown = [
            f"{k}={getattr(self, k)!r}" for k, v in options.items() if getattr(self, k) != v
        ]
        return f"VectorStore({', '.join([repr(str(self.location)), *shown])})"

    @property
    def path(self) -> Path:
        """File of the store."""
        return Path(self.location).expanduser() / FILE

    def __len__(self) -> int:
        """Return the number of texts, counted once per model and its settings."""
        if not self.path.exists():
            return 0
        return self._run(lambda db: db.execute("SELECT count(*) FROM texts").fetchone()[0])

    @property
    def n_bytes(self) -> int:
        """Size on disk in bytes."""
        files = (self.path.with_name(FILE + suffix) for suffix in ("", "-wal", "-shm"))
        return sum(file.stat().st_size for file in files if file.exists())

    def clear(self) -> None:
        """Forget all vectors and give the space on disk back."""

        def clear(db):
            with _transaction(db):
                for table in ("texts", "arrays", "blocks", "spaces"):
                    db.execute(f"DELETE FROM {table}")
            _give_back(db)

        if self.path.exists():
            self._run(clear)
        with _lock:
            forget(str(self.path))

    def read(
        self, space: Space, texts: Sequence[str], slots: Sequence[int]
    ) -> tuple[np.ndarray, dict[int, Found]]:
        """Vectors of the texts that the store knows.

        Parameters
        ----------
        space : Space
        texts : sequence of distinct str
        slots : sequence of int
            From `space.slots`, or `COUNTS`.

        Returns
        -------
        known : ndarray of shape (n_texts,), bool
        found : dict of Found
            Of each slot the vectors of the known texts, float32 of width d; of `COUNTS` three
            int32 each: tokens attended to, tokens of the text's own, whether cut off.
        """
        with _lock:
            shelf = shelf_of(str(self.path), self._name(space), space.width)
            known, found = shelf.find(texts, slots)
            if not known.all() and self.path.exists():
                new = [texts[i] for i in np.flatnonzero(~known).tolist()]
                try:
                    self._run(lambda db: self._load(db, space, new, slots, shelf))
                except sqlite3.Error as error:
                    self._warn("Vectors could not be read from", error)
                known, found = shelf.find(texts, slots)
            shrink()
        return known, found

    def write(self, space: Space, texts: Sequence[str], arrays: dict[int, np.ndarray]) -> None:
        """Keep the vectors of one block, all or nothing.

        Where the disk is full or read-only, vectors are not kept, with a warning.

        Parameters
        ----------
        space : Space
        texts : sequence of str
        arrays : dict of ndarray
            For each slot of the space an array of shape (n_texts, d), and the counts.
        """
        hashes = b"".join(_hash(t) for t in texts)
        rows = []
        for slot, array in arrays.items():
            data = array.astype(np.int32 if slot == COUNTS else self.dtype).tobytes()
            rows.append((slot, self._checksum(space, hashes, slot, data), data))

        def write(db):
            with _transaction(db):
                db.execute(
                    "INSERT OR IGNORE INTO spaces (name) VALUES (?)", (self._name(space),)
                )
                number = self._number(db, space)
                insert = "INSERT INTO blocks (space, hashes) VALUES (?, ?)"
                block = db.execute(insert, (number, hashes)).lastrowid
                insert = f"INSERT INTO arrays VALUES ({block}, ?, ?, ?)"
                db.executemany(insert, rows)
                # Another process may have been faster with some: either vector is right.
                insert = f"INSERT OR REPLACE INTO texts VALUES ({number}, ?, {block}, ?)"
                db.executemany(insert, [(_hash(t), i) for i, t in enumerate(texts)])
                self._make_room(db, block)
            if self.max_bytes is not None:
                _give_back(db)

        try:
            self._run(write)
            _stuck.discard(str(self.path))
        except sqlite3.Error as error:
            self._warn("Vectors could not be kept in", error)

    def claim(self, owner: object, space: Space, texts: Sequence[str]) -> list[bool]:
        """Ask to be the only one who encodes some texts, until `release`.

        Parameters
        ----------
        owner : object
            Who asks; only it can give back what it gets.
        space : Space
        texts : sequence of str

        Returns
        -------
        granted : list of bool
            False for a text that another thread or process is encoding now.
        """
        salt = zlib.crc32(self._name(space).encode())
        numbers = [(int.from_bytes(_hash(t)[:7], "little") ^ salt) for t in texts]
        with _lock:
            try:
                return self._open().claims.take(owner, numbers)
            except sqlite3.Error:  # writing will say so
                return [True] * len(numbers)

    def release(self, owner: object) -> None:
        """Give back what was claimed.

        Parameters
        ----------
        owner : object
            Who claimed it.
        """
        with _lock:
            opened = _open_stores.get((str(self.path), os.getpid()))
            if opened is not None:
                opened.claims.release(owner)

    def _warn(self, what: str, error: Exception) -> None:
        remedy = "Free some space, or choose another folder."
        if "locked" in str(error):
            remedy = (
                f"Another process has held it for {WAIT:g} seconds; end that one if it is "
                "stuck. Until it lets go, nobody waits for it again, and nothing is kept."
            )
        warnings.warn(
            f"{what} {str(self.path)!r}: {error}. They are computed all the same. {remedy}",
            UserWarning,
            stacklevel=3,
        )

    def _load(self, db, space: Space, texts: list[str], slots, shelf: Shelf) -> None:
        """Put what the file has of some texts onto the shelf."""
        by_hash = {_hash(t): t for t in texts}
        digests, number = list(by_hash), self._number(db, space)
        members: dict[int, dict[bytes, int]] = {}
        for start in range(0, len(digests), 900):
            group = digests[start : start + 900]
            marks = ",".join("?" * len(group))
            query = f"SELECT hash, block, row FROM texts WHERE space = ? AND hash IN ({marks})"
            query += " AND typeof(block) = 'integer' AND typeof(row) = 'integer'"
            for digest, block, row in db.execute(query, (number, *group)):
                members.setdefault(block, {})[digest] = row
        damaged = []
        for block, found in members.items():
            arrays = self._read_block(db, space, block, slots, found)
            if arrays is None:
                damaged.append(block)
                continue
            rows = list(found.values())
            names = [by_hash[digest] for digest in found]
            shelf.add(names, {slot: array[rows] for slot, array in arrays.items()})
        if damaged:
            with contextlib.suppress(sqlite3.OperationalError), _transaction(db):
                _delete(db, damaged)  # unless the file is read-only
            warnings.warn(
                f"{len(damaged)} blocks of the store {str(self.path)!r} are damaged; their "
                "texts are encoded anew.",
                UserWarning,
                stacklevel=2,
            )

    def _read_block(self, db, space: Space, block: int, slots, members):
        """Arrays of a block, or None if anything about it is not as it was written."""
        # Types and sizes are looked at first: a forged value may be as large as memory.
        query = "SELECT hashes FROM blocks WHERE id = ?"
        query += " AND typeof(hashes) = 'blob' AND length(hashes) <= ?"
        (hashes,) = db.execute(query, (block, MAX_HASHES)).fetchone() or (None,)
        if not isinstance(hashes, bytes) or any(
            not isinstance(row, int) or hashes[16 * row : 16 * row + 16] != digest
            for digest, row in members.items()
        ):
            return None
        arrays = {}
        query = "SELECT crc, data FROM arrays WHERE block = ? AND slot = ? AND typeof(crc)"
        query += " = 'integer' AND typeof(data) = 'blob' AND length(data) = ?"
        for slot in slots:
            width, dtype = (3, np.int32) if slot == COUNTS else (space.width, self.dtype)
            n_bytes = len(hashes) // 16 * width * np.dtype(dtype).itemsize
            crc, data = db.execute(query, (block, slot, n_bytes)).fetchone() or (None, None)
            if (
                not isinstance(data, bytes)
                or len(data) != n_bytes
                or crc != self._checksum(space, hashes, slot, data)
            ):
                return None
            arrays[slot] = np.frombuffer(data, dtype=dtype).reshape(-1, width)
        return arrays

    def _checksum(self, space: Space, hashes: bytes, slot: int, data: bytes) -> int:
        about = self._name(space).encode() + hashes + slot.to_bytes(4, "little", signed=True)
        return zlib.crc32(data, zlib.crc32(about))

    def _make_room(self, db, newest: int) -> None:
        """Delete the oldest blocks, never the newest, until the bound holds."""
        while self.max_bytes is not None:
            count, free, size = (
                db.execute(f"PRAGMA {name}").fetchone()[0]
                for name in ("page_count", "freelist_count", "page_size")
            )
            query = "SELECT id FROM blocks WHERE id < ? ORDER BY id LIMIT 1"
            oldest = [block for (block,) in db.execute(query, (newest,))]
            if (count - free) * size <= self.max_bytes or not oldest:
                return
            _delete(db, oldest)

    def _name(self, space: Space) -> str:
        return "|".join(map(str, (*space[:3], self.dtype, *space.slots)))

    def _number(self, db, space: Space) -> int | None:
        query = "SELECT id FROM spaces WHERE name = ?"
        return (db.execute(query, (self._name(space),)).fetchone() or (None,))[0]

    def _run(self, operation: Callable):
        """Carry out an operation on the file, which starts anew if it turns out damaged."""
        with _lock:
            identity = _identity(self.path)
            try:
                return self._attempt(operation)
            except (sqlite3.Error, UnicodeDecodeError) as error:  # the latter from its message
                if self._is_environment(error):
                    if "locked" in str(error):
                        _stuck.add(str(self.path))
                    raise
                self._start_anew(identity, error)
                return self._attempt(operation)

    def _attempt(self, operation: Callable):
        db = self._open().db
        db.execute(f"PRAGMA busy_timeout = {1000 * self._patience:.0f}")
        try:
            return operation(db)
        finally:
            # Here and not in `_transaction`: an interrupt may come between any two lines.
            if db.in_transaction:
                db.execute("ROLLBACK")

    @property
    def _patience(self) -> float:
        return 0.0 if str(self.path) in _stuck else WAIT

    def _is_environment(self, error: Exception) -> bool:
        """Whether a new file in this place would fail alike."""
        if "readonly" in str(error) and self._is_writable():
            return False  # the file's header says so, and we did not write that
        return any(sign in str(error) for sign in ENVIRONMENT)

    def _is_writable(self) -> bool:
        return all(os.access(path, os.W_OK) for path in (self.path, self.path.parent))

    def _start_anew(self, identity, error: Exception) -> None:
        """Put the damaged file aside, unless another process has done so already."""
        self._close()
        claims = Claims(self.path.with_name(LOCK))
        try:
            with claims.exclusive(self._patience):
                if _identity(self.path) != identity:
                    return
                aside = self.path.with_name(f"{FILE}.damaged-{time.time_ns()}")
                while aside.exists():  # by a clock that was set back
                    aside = aside.with_name(f"{aside.name}-1")
                os.replace(self.path, aside)
                for suffix in ("-wal", "-shm"):
                    self.path.with_name(FILE + suffix).unlink(missing_ok=True)
        except OSError as refused:  # a read-only folder
            raise sqlite3.OperationalError(f"it is damaged ({error}), and {refused}") from error
        finally:
            claims.close()
        warnings.warn(
            f"The store {str(self.path)!r} is damaged ({error}). It was put aside as "
            f"{aside.name!r}; its texts are encoded anew.",
            UserWarning,
            stacklevel=4,
        )

    def _open(self) -> _Open:
        key = (str(self.path), os.getpid())  # a connection must not be carried over a fork
        if key in _open_stores:
            if _open_stores[key].identity == _identity(self.path):
                _open_stores.move_to_end(key)
                return _open_stores[key]
            self._close()  # deleted, or put aside
        self.path.parent.mkdir(parents=True, exist_ok=True)
        claims = Claims(self.path.with_name(LOCK))
        try:
            with claims.exclusive(self._patience):
                db = self._connect()
        except BaseException as error:
            claims.close()
            if isinstance(error, TimeoutError):
                _stuck.add(key[0])
                raise sqlite3.OperationalError(str(error)) from error
            raise
        _open_stores[key] = _Open(db, claims, _identity(self.path))
        while len(_open_stores) > MAX_OPEN:
            _shut(_open_stores.popitem(last=False)[1])
        return _open_stores[key]

    def _connect(self) -> sqlite3.Connection:
        for suffix in ("", "-wal", "-shm", "-journal"):
            file = self.path.with_name(FILE + suffix)
            if os.path.lexists(file) and not stat.S_ISREG(file.lstat().st_mode):
                raise sqlite3.OperationalError(f"unable to open {file.name}, a link or no file")
        options: dict = {"check_same_thread": False, "isolation_level": None}
        db = sqlite3.connect(self.path, timeout=self._patience, **options)
        try:
            try:
                _prepare(db)
            except sqlite3.OperationalError:
                if not self.path.exists() or self._is_writable():
                    raise
                db.close()
                uri = f"{self.path.resolve().as_uri()}?immutable=1"
                db = sqlite3.connect(uri, uri=True, **options)
            db.text_factory = bytes  # damage may turn bytes into text, which is then no UTF-8
            db.execute("PRAGMA trusted_schema = OFF")
            schema = {sql for (sql,) in db.execute("SELECT sql FROM sqlite_master")}
            if b"CREATE TABLE format (version INTEGER NOT NULL)" not in schema:
                raise sqlite3.DatabaseError("its format is not there")
            (version,) = db.execute(
                "SELECT version FROM format WHERE typeof(version) = 'integer'"
            ).fetchone() or (None,)
            if not isinstance(version, int) or version < 1:
                raise sqlite3.DatabaseError("its format is not there")
            if version != FORMAT:
                raise ValueError(
                    f"The store {str(self.path)!r} has format {version}; this release of "
                    f"skcalib reads format {FORMAT}. Use the release that wrote it, or another "
                    "folder."
                )
            if not schema <= KNOWN:
                raise sqlite3.DatabaseError("it has tables, triggers or views of another's")
        except BaseException:
            db.close()
            raise
        return db

    def _close(self) -> None:
        opened = _open_stores.pop((str(self.path), os.getpid()), None)
        if opened is not None:
            _shut(opened)


def _identity(path: Path) -> tuple[int, int] | None:
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_dev, status.st_ino


def _shut(opened: _Open) -> None:
    opened.db.close()
    opened.claims.close()


def _prepare(db: sqlite3.Connection) -> None:
    """Set the connection up, and make the tables of a new file."""
    # A file that has tables is another release's until its format has been read.
    if _is_new(db):
        db.execute("PRAGMA page_size = 16384")
        db.execute("PRAGMA auto_vacuum = INCREMENTAL")
        db.execute("PRAGMA journal_mode = WAL")
        with _transaction(db):
            for statement in SCHEMA.split(";") if _is_new(db) else ():  # others are fast, too
                db.execute(statement)
    db.execute("PRAGMA synchronous = NORMAL")


def _is_new(db: sqlite3.Connection) -> bool:
    return db.execute("SELECT count(*) FROM sqlite_master").fetchone() == (0,)


def _give_back(db: sqlite3.Connection) -> None:
    """Give free pages and the journal back to the disk, unless others are reading."""
    db.executescript("PRAGMA incremental_vacuum")  # execute() would give back one page
    db.execute("PRAGMA busy_timeout = 0")
    db.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()


@contextlib.contextmanager
def _transaction(db: sqlite3.Connection) -> Iterator[None]:
    """All or nothing; waits for other writers first, never half-way.

    Left by an error it stays open, for `VectorStore._attempt` to roll back.
    """
    db.execute("BEGIN IMMEDIATE")
    yield
    db.execute("COMMIT")


def _delete(db: sqlite3.Connection, blocks: Sequence[int]) -> None:
    marks = ",".join("?" * len(blocks))
    for table, column in (("texts", "block"), ("arrays", "block"), ("blocks", "id")):
        db.execute(f"DELETE FROM {table} WHERE {column} IN ({marks})", tuple(blocks))


def _hash(text: str) -> bytes:
    return hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=16).digest()
