"""The SQLite file of a store, which survives a kill and serves several processes."""

import os
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from filelock import FileLock, Timeout

from skcalib.base import warn

FORMAT = 5
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
CREATE TABLE arrays (
    block INTEGER, slot TEXT, crc INTEGER, data BLOB, PRIMARY KEY (block, slot)
);
CREATE TABLE texts (key BLOB PRIMARY KEY, block INTEGER, row INTEGER) WITHOUT ROWID;
CREATE INDEX texts_of_block ON texts (block);
INSERT INTO store VALUES (randomblob(16));
PRAGMA user_version = {FORMAT};
COMMIT
"""


def connect(path: Path) -> sqlite3.Connection:
    """Open the file, or create it; refuse a file with the format of another release."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise OSError(
            f"memory={str(path.parent)!r} cannot be made a folder: {error.strerror}. Give a "
            "folder on a local disk that you may write to."
        ) from error
    uri = path.as_uri()
    if path.exists() and not all(os.access(p, os.W_OK) for p in (path, path.parent)):
        uri += "?immutable=1"  # otherwise SQLite creates a file next to it, even to read
    db = sqlite3.connect(uri, uri=True, timeout=WAIT, isolation_level="IMMEDIATE")
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


def _format(db: sqlite3.Connection) -> int:
    return db.execute("PRAGMA user_version").fetchone()[0]


@contextmanager
def turn(folder: Path) -> Iterator[None]:
    """Hold a lock that lets one worker at a time encode for the store in a folder.

    A thread may acquire it again, and the lock is released when the process ends. In a
    read-only folder, or after `PATIENCE` seconds, work continues without the lock, and some
    texts may be encoded twice.
    """
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
