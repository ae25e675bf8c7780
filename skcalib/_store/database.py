"""The SQLite file of a store: opened, checked, and set aside if it is damaged.

SQLite comes with Python, survives a kill at any moment, and lets several processes read
while one writes. The file is not trusted: it may be damaged, another program's, or forged.
"""

from __future__ import annotations

import contextlib
import os
import sqlite3
import stat
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, TypeVar

from filelock import Timeout

from skcalib._store.claims import hold

__all__ = ["Database", "delete_all", "delete_blocks", "give_back", "size_on_disk"]

FORMAT = 2
WAIT = 60.0  # seconds, for the lock of another process
# One forward pass yields a block of a few dozen texts or more, as one array per slot (a layer
# and a way of pooling); a pipeline reads a slot or two of many texts. So a row of `arrays`
# holds one slot of one block.
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
# All that a file of this format says about itself. A trigger or a view could run for ever.
KNOWN = {None, b"CREATE TABLE sqlite_sequence(name,seq)"}
KNOWN |= {statement.strip().encode() for statement in SCHEMA.split(";")}
# SQLite's messages have one of these words where the machine is at fault, not the file.
ENVIRONMENT = ("locked", "locking", "full", "readonly", "I/O", "unable to open", "interrupted")

Result = TypeVar("Result")

_given_up: set[Path] = set()  # files whose lock was waited for in vain, until it is free


class Database:
    """The file of a store; one thread at a time, and to be closed.

    A connection lives as long as one call of the user: the child of a fork must not inherit
    one, and files are free between calls.

    Parameters
    ----------
    path : Path
        Of the file, which is made with its folder when it is first used.
    """

    def __init__(self, path: Path):
        self.path = path
        self._connection: sqlite3.Connection | None = None
        self._identity: tuple[int, int] | None = None

    def run(self, operation: Callable[[sqlite3.Connection], Result]) -> Result:
        """Return ``operation(connection)``; a file that turns out damaged is made anew first.

        Raises
        ------
        sqlite3.Error
            If the machine is at fault: no space, no permission, a lock of another process.
        OSError
            If the folder cannot be made.
        ValueError
            If another release wrote the file.
        """
        try:
            return self._attempt(operation)
        except (sqlite3.Error, UnicodeDecodeError) as error:  # the latter from a message
            if self._is_environment(error):
                if "locked" in str(error):
                    _given_up.add(self.path)
                raise
            self._set_aside(error)
            return self._attempt(operation)

    def write(self, operation: Callable[[sqlite3.Connection], None]) -> None:
        """Run an operation as a transaction, all or nothing; errors are those of `run`."""

        def transaction(db: sqlite3.Connection) -> None:
            with db:
                db.execute("BEGIN IMMEDIATE")  # waits for other writers now, never half-way
                operation(db)

        self.run(transaction)
        _given_up.discard(self.path)

    def close(self) -> None:
        """Close the connection, if there is one."""
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()

    def _attempt(self, operation: Callable[[sqlite3.Connection], Result]) -> Result:
        if self._connection is None:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            with self._exclusive():
                self._connection = self._connect()
        self._connection.execute(f"PRAGMA busy_timeout = {1000 * self._patience:.0f}")
        return operation(self._connection)

    @property
    def _patience(self) -> float:
        return 0.0 if self.path in _given_up else WAIT

    @contextlib.contextmanager
    def _exclusive(self) -> Iterator[None]:
        """Context in which no other process opens the file or sets it aside."""
        with contextlib.ExitStack() as stack:
            lock_file = self.path.with_suffix(".lock")
            try:
                stack.enter_context(hold([lock_file], timeout=self._patience))
            except Timeout as error:
                _given_up.add(self.path)
                raise sqlite3.OperationalError("its lock file is locked") from error
            yield

    def _connect(self) -> sqlite3.Connection:
        for file in _files(self.path):
            status = _status(file)
            if status is not None and not stat.S_ISREG(status.st_mode):
                raise sqlite3.OperationalError(f"unable to open {file.name}, a link or no file")
        options: dict[str, Any] = {"check_same_thread": False, "isolation_level": None}
        db = sqlite3.connect(self.path, timeout=self._patience, **options)
        try:
            self._identity = _identity(self.path)
            try:
                self._prepare(db)
            except sqlite3.OperationalError:
                if not self.path.exists() or self._is_writable():
                    raise
                db.close()
                uri = f"{self.path.resolve().as_uri()}?immutable=1"
                db = sqlite3.connect(uri, uri=True, **options)
            db.text_factory = bytes  # damage may turn bytes into text, which is then no UTF-8
            db.execute("PRAGMA trusted_schema = OFF")
            self._check(db)
        except BaseException:
            db.close()
            raise
        return db

    def _prepare(self, db: sqlite3.Connection) -> None:
        """Set the connection up, and make the tables of a new file."""
        # A file that has tables may be of another release: its format has not been read.
        if _is_empty(db):
            db.execute("PRAGMA page_size = 16384")
            db.execute("PRAGMA auto_vacuum = INCREMENTAL")
            db.execute("PRAGMA journal_mode = WAL")
            with db:
                db.execute("BEGIN IMMEDIATE")
                # Another process may have made the tables since, where locks do not work.
                for statement in SCHEMA.split(";") if _is_empty(db) else ():
                    db.execute(statement)
        db.execute("PRAGMA synchronous = NORMAL")

    def _check(self, db: sqlite3.Connection) -> None:
        """Refuse a file of another release, or with anything else in it."""
        schema = {sql for (sql,) in db.execute("SELECT sql FROM sqlite_master")}
        version = None
        if b"CREATE TABLE format (version INTEGER NOT NULL)" in schema:
            query = "SELECT version FROM format WHERE typeof(version) = 'integer'"
            (version,) = db.execute(query).fetchone() or (None,)
        if not isinstance(version, int) or version < 1:
            raise sqlite3.DatabaseError("its format is not there")
        if version != FORMAT:
            raise ValueError(
                f"The store {str(self.path)!r} has format {version}; this release of skcalib "
                f"reads format {FORMAT}. Use the release that wrote it, or another folder."
            )
        if not schema <= KNOWN:
            raise sqlite3.DatabaseError("it has tables, triggers or views of another's")

    def _is_environment(self, error: Exception) -> bool:
        """Whether a new file in this place would fail alike."""
        if "readonly" in str(error) and self._is_writable():
            return False  # the header of the file says so, which skcalib does not write
        return any(sign in str(error) for sign in ENVIRONMENT)

    def _is_writable(self) -> bool:
        return all(os.access(path, os.W_OK) for path in (self.path, self.path.parent))

    def _set_aside(self, error: Exception) -> None:
        """Rename the damaged file, unless another process has done so already."""
        self.close()
        try:
            with self._exclusive():
                if _identity(self.path) != self._identity:
                    return
                aside = self.path.with_name(f"{self.path.name}.damaged-{time.time_ns()}")
                while aside.exists():  # by a clock that was set back
                    aside = aside.with_name(f"{aside.name}-1")
                os.replace(self.path, aside)
                for file in _files(self.path):
                    file.unlink(missing_ok=True)
        except OSError as refused:  # a read-only folder
            raise sqlite3.OperationalError(f"it is damaged ({error}), and {refused}") from error
        warnings.warn(
            f"The store {str(self.path)!r} is damaged ({error}). It was put aside as "
            f"{aside.name!r}; its texts are encoded anew.",
            UserWarning,
            stacklevel=4,
        )


def give_back(db: sqlite3.Connection) -> None:
    """Give free pages and the journal back to the disk, unless others are reading."""
    db.executescript("PRAGMA incremental_vacuum")  # execute() would give back one page
    db.execute("PRAGMA busy_timeout = 0")
    db.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()


def delete_all(db: sqlite3.Connection) -> None:
    """Delete all vectors."""
    for table in ("texts", "arrays", "blocks", "spaces"):
        db.execute(f"DELETE FROM {table}")


def delete_blocks(db: sqlite3.Connection, blocks: Sequence[int]) -> None:
    """Delete blocks with their arrays and texts."""
    marks = ",".join("?" * len(blocks))
    for table, column in (("texts", "block"), ("arrays", "block"), ("blocks", "id")):
        db.execute(f"DELETE FROM {table} WHERE {column} IN ({marks})", tuple(blocks))


def size_on_disk(path: Path) -> int:
    """Return the bytes of a file and of those that SQLite keeps beside it."""
    return sum(status.st_size for file in _files(path) if (status := _status(file)))


def _is_empty(db: sqlite3.Connection) -> bool:
    return db.execute("SELECT count(*) FROM sqlite_master").fetchone() == (0,)


def _files(path: Path) -> list[Path]:
    return [path.with_name(path.name + s) for s in ("", "-wal", "-shm", "-journal")]


def _identity(path: Path) -> tuple[int, int] | None:
    """Return device and inode of a file, None if there is none."""
    status = _status(path)
    return (status.st_dev, status.st_ino) if status else None


def _status(path: Path) -> os.stat_result | None:
    """Return the status of a file or link, None if there is none.

    Asked in one call: SQLite removes its files beside the store at any moment, when the last
    connection of another process closes.
    """
    with contextlib.suppress(OSError):
        return path.lstat()
    return None
