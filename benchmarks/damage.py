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

import argparse
import collections
import itertools
import os
import tempfile
import warnings
from pathlib import Path

import numpy as np

from skcalib import VectorStore
from skcalib._store.vectors import COUNTS, Space, Vectors

SPACE = Space("f" * 64, 40, "float32", 4, (0, 1))
TEXTS = [f"text {i}" for i in range(30)]


def outcome(vectors, arrays):
    try:
        found = vectors.read(TEXTS, [0, COUNTS])
        known = {i for part in found for i in part.positions.tolist()}
        missing = [i for i in range(len(TEXTS)) if i not in known]
        if missing:
            some = {slot: array[missing] for slot, array in arrays.items()}
            vectors.write([TEXTS[i] for i in missing], some)
    except Exception as error:
        return "refused" if "has format" in str(error) else f"error {type(error).__name__}"
    finally:
        vectors.close()
    right = all(
        np.array_equal(part.arrays[slot], arrays[slot][part.positions])
        for part in found
        for slot in (0, COUNTS)
    )
    return ("some written anew" if missing else "all read") if right else "wrong"


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--every", type=int, default=1, help="only every n-th of the bytes")
    options = parser.parse_args()
    rng = np.random.default_rng(0)
    arrays = {slot: rng.normal(size=(30, 4)).astype(np.float32) for slot in (0, 1)}
    arrays[COUNTS] = np.arange(90).reshape(30, 3)
    shm = "/dev/shm" if os.path.isdir("/dev/shm") else None
    folder = Path(tempfile.mkdtemp(dir=shm))
    vectors = Vectors(VectorStore(folder), SPACE)
    for rows in np.array_split(np.arange(30), 10):
        some = {slot: array[rows] for slot, array in arrays.items()}
        vectors.write([TEXTS[i] for i in rows], some)
    vectors.close()
    (file,) = folder.glob("*.sqlite")
    whole = file.read_bytes()
    outcomes = collections.Counter()
    used = [i for i, byte in enumerate(whole) if byte][:: options.every]
    for i, mask in itertools.product(used, (0x01, 0x80, 0xFF)):
        damaged = bytearray(whole)
        damaged[i] ^= mask
        file.write_bytes(damaged)
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            outcomes[outcome(vectors, arrays), f"{len(caught)} warnings"] += 1
        for aside in folder.glob("*.damaged-*"):
            aside.unlink()
    for (what, how), n in outcomes.most_common():
        print(f"{n:6} {what}, {how}")


if __name__ == "__main__":
    main()
