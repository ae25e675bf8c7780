"""Flip every byte of a store, one at a time, and look at what is read.

Run by hand, for minutes::

    python benchmarks/damage.py

A store of 30 texts in ten blocks lies on a file system in memory (/dev/shm) where there is one.
Each byte in use is altered in three ways (lowest bit, highest bit, all bits); what the store
then gives is compared with what was written, missing texts are written again, and all is read
once more.

Printed: number of alterations by outcome. "wrong" and "error" must not appear, but for the few
bits that tell the format of the file: another release's file is refused.
"""

import collections
import itertools
import os
import tempfile
import warnings

import numpy as np

import skcalib._store as store_module
import skcalib._vector_cache as vector_cache
from skcalib._store import COUNTS, Space, VectorStore

SPACE = Space("f" * 64, 40, "float32", 4, (0, 1))
TEXTS = [f"text {i}" for i in range(30)]


def outcome(store, arrays):
    try:
        known, found = store.read(SPACE, TEXTS, [0, COUNTS])
        missing = np.flatnonzero(~known)
        if len(missing):
            some = {slot: array[missing] for slot, array in arrays.items()}
            store.write(SPACE, [TEXTS[i] for i in missing], some)
    except Exception as error:
        return "refused" if "has format" in str(error) else f"error {type(error).__name__}"
    right = all(np.array_equal(found[slot].take(), arrays[slot][known]) for slot in (0, COUNTS))
    return ("all read" if known.all() else "some written anew") if right else "wrong"


def main():
    rng = np.random.default_rng(0)
    arrays = {slot: rng.normal(size=(30, 4)).astype(np.float32) for slot in (0, 1)}
    arrays[COUNTS] = np.arange(90).reshape(30, 3)
    shm = "/dev/shm" if os.path.isdir("/dev/shm") else None
    store = VectorStore(tempfile.mkdtemp(dir=shm))
    for rows in np.array_split(np.arange(30), 10):
        some = {slot: array[rows] for slot, array in arrays.items()}
        store.write(SPACE, [TEXTS[i] for i in rows], some)
    key = str(store.path), os.getpid()
    store_module._open_stores[key].db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    store._close()
    whole = store.path.read_bytes()
    outcomes = collections.Counter()
    used = [i for i, byte in enumerate(whole) if byte]
    for i, mask in itertools.product(used, (0x01, 0x80, 0xFF)):
        damaged = bytearray(whole)
        damaged[i] ^= mask
        store.path.write_bytes(damaged)
        vector_cache._shelves.clear()
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            outcomes[outcome(store, arrays), f"{len(caught)} warnings"] += 1
        store._close()
        for file in store.path.parent.glob("*.damaged-*"):
            file.unlink()
    for (what, how), n in outcomes.most_common():
        print(f"{n:6} {what}, {how}")


if __name__ == "__main__":
    main()
