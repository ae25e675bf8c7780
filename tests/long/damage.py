"""Alter the bytes of a store, one at a time, and look at what an encoder then returns.

Run by hand, with the extra `demo`: ``python tests/long/damage.py --every 100`` takes minutes.

A store of 30 texts lies in memory (/dev/shm) where that is possible. Bytes in use are altered
in three ways (lowest bit, highest bit, all bits), and all texts are encoded twice. Printed: how
many alterations had which outcome; "wrong" must not appear.
"""

import argparse
import collections
import itertools
import os
import tempfile
import warnings
from pathlib import Path

os.environ.setdefault("HF_HUB_OFFLINE", "1")

import numpy as np

from skcalib import BertEncoder, VectorStore
from skcalib.datasets import load_toy_sts, minilm_path
from skcalib.process.caches import VECTORS


def outcome(encoder, texts, expected):
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            found = [encoder.transform(texts) for _ in range(2)]
        except (OSError, ValueError) as error:
            return f"refused: {str(error)[:60]}"
    right = all(np.allclose(vectors, expected, atol=1e-5) for vectors in found)
    return f"{'right' if right else 'wrong'}, with {len(caught)} warnings"


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--every", type=int, default=1, help="only every n-th of the bytes")
    every = parser.parse_args().every
    folder = Path(tempfile.mkdtemp(dir="/dev/shm" if os.path.isdir("/dev/shm") else None))
    texts = np.unique(load_toy_sts().data)[:30].tolist()
    VECTORS.bound = 0  # else vectors are read from memory
    expected = BertEncoder(minilm_path(), layers=0).fit_transform(texts)
    store = VectorStore(folder, layers=(0,), pooling="mean")
    encoder = BertEncoder(minilm_path(), layers=0, memory=store).fit(texts)
    for start in range(0, 30, 3):
        encoder.transform(texts[start : start + 3])
    (file,) = folder.glob("*.sqlite")
    whole, outcomes = file.read_bytes(), collections.Counter()
    used = [i for i, byte in enumerate(whole) if byte]
    for i, mask in itertools.product(used[::every], (0x01, 0x80, 0xFF)):
        damaged = bytearray(whole)
        damaged[i] ^= mask
        file.write_bytes(damaged)
        outcomes[outcome(encoder, texts, expected)] += 1
    for what, n in outcomes.most_common():
        print(f"{n:6} {what}")


if __name__ == "__main__":
    main()
