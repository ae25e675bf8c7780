"""The SQLite file of a store.

SQLite comes with Python, survives a kill at any moment, and lets several processes read
while one writes.
"""

from __future__ import annotations

import os
import sqlite3
from pathlib import Path

from skcalib._store.claims import turn

__all__ = ["connect"]

FORMAT = 3
WAIT = 60.0  # seconds, for the lock of another process
# One forward pass yields a block of a few dozen texts or more, as one array per slot (a layer
# and a way of pooling); a pipeline reads a slot or two of many texts. So a row of `arrays`
# holds one slot of one block. The id of a store changes when it is cleared.
SCHEMA = f"""
PRAGMA page_size = 16384;
PRAGMA auto_vacuum = INCREMENTAL;
PRAGMA journal_mode = WAL;
BEGIN IMMEDIATE;
CREATE TABLE store (id BLOB);
CREATE TABLE arrays (
    block INTEGER, slot INTEGER, crc INTEGER, data BLOB, PRIMARY KEY (block, slot)
);
CREATE TABLE texts (key BLOB PRIMARY KEY, block INTEGER, row INTEGER) WITHOUT ROWID;
CREATE INDEX texts_of_block ON texts (block);
INSERT INTO store VALUES (randomblob(16));
PRAGMA user_version = {FORMAT};
COMMIT
"""


def connect(path: Path) -> sqlite3.Connection:
    """Open the file, which is made with its folder if it is not there.

    Raises
    ------
    sqlite3.Error
        If the file is damaged, locked or cannot be opened.
    ValueError
        If another release wrote it.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    uri = path.as_uri()
    if path.exists() and not all(os.access(p, os.W_OK) for p in (path, path.parent)):
        uri += "?immutable=1"  # otherwise SQLite makes a file beside it, even to read
    db = sqlite3.connect(uri, uri=True, timeout=WAIT, isolation_level="IMMEDIATE")
    try:
        db.execute("PRAGMA trusted_schema = OFF")
        db.execute("PRAGMA synchronous = NORMAL")
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
