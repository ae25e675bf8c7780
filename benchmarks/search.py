"""What the bank of a `SearchEncoder` costs: documents and queries encoded from their vectors.

    python benchmarks/search.py [--rows 1000000] [--banks 100 1000 2000]

The vectors are those of ``scale.py``. `fit` and `encode_document` subtract the mean, compare
with the bank and append two columns; the encoder before it takes far longer (``encode.py``).
Without a bank the hubs are left out (``hub_weight=0``).
"""

import argparse
import tempfile
import time
from pathlib import Path

import numpy as np
from scale import BLOCK, FEATURES, vectors

from skcalib import SearchEncoder

FITTED, QUERIES = 20_000, 2000


def main(n, banks, folder):
    X = vectors(n, folder / "vectors.npy")
    fitted = np.array(X[: min(FITTED, n)])
    rng = np.random.default_rng(1)
    spread = np.arange(1, FEATURES + 1) ** -0.5
    rows = rng.choice(len(fitted), max(banks), replace=False)
    queries = fitted[rows] + rng.normal(size=(len(rows), FEATURES)) * spread + 0.3 * spread
    for size in (0, *banks):
        search = SearchEncoder(hub_weight=0.75 if size else 0)
        bank, start = queries[: size or 100], time.perf_counter()
        search.fit(fitted, queries=bank)
        seconds = time.perf_counter() - start
        start = time.perf_counter()
        for first in range(0, n, BLOCK):
            search.encode_document(X[first : first + BLOCK])
        encoding = time.perf_counter() - start
        start = time.perf_counter()
        search.encode_query(queries[np.arange(QUERIES) % len(queries)])
        asking = (time.perf_counter() - start) / QUERIES * 1e6
        print(
            f"bank of {size}: fit of {len(fitted):,} in {seconds:.1f} s, {n:,} documents in "
            f"{encoding:.1f} s ({n / encoding:,.0f} a second), {asking:.0f} µs a query",
            flush=True,
        )


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--banks", type=int, nargs="+", default=[100, 1000, 2000])
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        main(arguments.rows, arguments.banks, Path(folder))
