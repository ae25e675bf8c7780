"""Two long lists matched: time, and the share of pairs that an approximate index finds.

    pip install -c constraints.txt '.[docs]'
    python benchmarks/matcher.py [--rows 100000] [--exact]

Half of the records of each list have a partner in the other. The vectors are those of
``scale.py``, topics within topics in a narrow cone, and a partner differs by noise. Without
``--exact`` only the index is timed; its pairs are compared with the planted ones.
"""

import argparse
import tempfile
import time
import warnings
from pathlib import Path

import numpy as np
from scale import FEATURES, FaissNeighbors, vectors

from skcalib import Matcher

NOISE = 0.5


def lists(n, folder):
    """Return two lists of n vectors; the first half of each are the same things."""
    rng = np.random.default_rng(1)
    things = np.array(vectors(3 * n // 2, folder / "things.npy"))
    first, second = things[:n].copy(), np.vstack([things[: n // 2], things[n:]])
    for each in (first, second):
        spread = np.arange(1, FEATURES + 1, dtype=np.float32) ** -0.5
        for start in range(0, n, 50_000):
            part = each[start : start + 50_000]
            part += NOISE * spread * rng.normal(size=part.shape).astype(np.float32)
    return first, second


def main(n, exact, folder):
    first, second = lists(n, folder)
    n_lists = max(16, int(2 * n**0.5))
    ways = {
        f"{probes} of {n_lists} inverted lists": FaissNeighbors(11, n_lists, probes)
        for probes in (8, 32)
    }
    if exact:
        ways["all records compared"] = None
    for name, neighbors in ways.items():
        start = time.perf_counter()
        matcher = Matcher(neighbors=neighbors).fit(first, second)
        seconds = time.perf_counter() - start
        i, j = matcher.pairs_.T
        true = (i == j) & (i < n // 2)
        print(
            f"{n:,} x {n:,}, {name}: {seconds:.0f} s, {len(matcher.mutual_pairs_):,} mutual, "
            f"{true.sum():,} true of {n // 2:,}, {(~true).sum():,} false",
            flush=True,
        )


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=100_000)
    parser.add_argument("--exact", action="store_true")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        main(arguments.rows, arguments.exact, Path(folder))
