"""The SQLite file of a store, which survives a kill and serves several processes."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from filelock import FileLock

__all__ = ["connect", "turn"]

FORMAT = 5
WAIT = 60.0  # seconds, for another process that writes
PATIENCE = 600.0  # seconds, for one's turn
# A batch of texts is a block, of one array per slot (a layer and a way of pooling), since a
# pipeline reads a slot or two of many texts. The id of a store changes when it is cleared.
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
    """Open the file, which is made if it is not there; refuse that of another release."""
    path.parent.mkdir(parents=True, exist_ok=True)
    uri = path.as_uri()
    if path.exists() and not all(os.access(p, os.W_OK) for p in (path, path.parent)):
        uri += "?immutable=1"  # otherwise SQLite makes a file beside it, even to read
    db = sqlite3.connect(uri, uri=True, timeout=WAIT, isolation_level="IMMEDIATE")
    try:
        db.executescript("PRAGMA trusted_schema = OFF; PRAGMA synchronous = NORMAL")
        if not _format(db):
            with turn(path.parent):
                if not _format(db):  # nor has another process made the tables since
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
    """Context in which nobody else encodes for the store in a folder; one thread may nest it.

    It ends with the process, however that ends. Where no lock can be had, in a read-only folder
    or beside a worker that hangs, work goes on without, and some texts may be encoded twice.
    """
    lock = FileLock(folder / "skcalib-vectors.lock", is_singleton=True)
    with suppress(OSError, NotImplementedError):  # the former also when time is up
        lock.acquire(timeout=PATIENCE)
    try:
        yield
    finally:
        lock.release()
