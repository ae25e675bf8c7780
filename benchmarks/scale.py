"""A million texts: what each step of the way costs, and what is lost where it is approximate.

Run by hand, with 6 GB of memory and 3 GB of disk per million texts::

    pip install -c constraints.txt '.[docs]'
    python benchmarks/scale.py [--rows 1000000]

The vectors have a random structure: topics within topics, in a narrow cone, with variances that
fall like those of MiniLM. Recall is the share of the ten nearest texts that an index finds.
``encode.py`` measures the encoding.
"""

import argparse
import tempfile
import time
from contextlib import contextmanager
from pathlib import Path

import faiss
import numpy as np
from numpy.lib.format import open_memmap
from scipy.sparse import csr_array
from sklearn.base import BaseEstimator, TransformerMixin

from skcalib import NeighborSmoothing, SimilarityScale, Whitening

FEATURES, KEPT, BLOCK, QUERIES = 384, 128, 50_000, 2000


# An index of faiss as the neighbours of a NeighborSmoothing.
class FaissNeighbors(TransformerMixin, BaseEstimator):
    """Nearest fitted vectors by an index of inverted lists."""

    def __init__(self, n_neighbors=10, n_lists=1024, n_probes=32):
        self.n_neighbors = n_neighbors
        self.n_lists = n_lists
        self.n_probes = n_probes

    def fit(self, X, y=None):
        description = f"IVF{self.n_lists},Flat"
        self.index_ = faiss.index_factory(X.shape[1], description, faiss.METRIC_INNER_PRODUCT)
        self.index_.train(X[:: max(1, len(X) // (64 * self.n_lists))])
        self.index_.add(X)
        self.index_.nprobe = self.n_probes
        return self

    def transform(self, X):
        cosines, rows = self.index_.search(np.ascontiguousarray(X), self.n_neighbors)
        found = rows >= 0  # a query may see fewer texts than it asks for
        ends = np.concatenate([[0], found.sum(axis=1).cumsum()])
        shape = len(X), self.index_.ntotal
        return csr_array((1 - cosines[found], rows[found], ends), shape=shape)


# The end of the index.


@contextmanager
def step(what, rows=None):
    """Print the seconds of a step, and its rows a second."""
    start = time.perf_counter()
    yield
    seconds = time.perf_counter() - start
    rate = f"{rows / seconds:14,.0f} rows/s" if rows else ""
    print(f"{what:48}{seconds:9.1f} s{rate}", flush=True)


def vectors(n, path):
    """Write n vectors with topics of 1,000 texts within topics of 50,000."""
    rng = np.random.default_rng(0)
    spread = np.arange(1, FEATURES + 1) ** -0.5
    coarse = rng.normal(size=(max(2, n // 50_000), FEATURES))
    fine = rng.normal(size=(max(2, n // 1000), FEATURES))
    middle = rng.normal(size=FEATURES) * spread * 2
    out = open_memmap(path, "w+", np.float32, (n, FEATURES))
    for start in range(0, n, BLOCK):
        rows = slice(start, min(start + BLOCK, n))
        size = rows.stop - start
        topic = rng.integers(len(fine), size=size)
        x = 0.5 * coarse[topic % len(coarse)] + 0.5 * fine[topic]
        out[rows] = middle + (x + rng.normal(size=(size, FEATURES))) * spread
    out.flush()
    return np.load(path, mmap_mode="r")


def search(what, index, queries, exact):
    """Time of a search, and the share of the exact ten nearest that it finds."""
    start = time.perf_counter()
    found = index.search(queries, 10)[1]
    milliseconds = (time.perf_counter() - start) / len(queries) * 1e3
    recall = np.mean([len(set(a) & set(b)) / 10 for a, b in zip(found, exact, strict=True)])
    print(f"{what:48}{milliseconds:9.2f} ms a query, recall {recall:.3f}", flush=True)


def main(n, folder):
    path = folder / "vectors.npy"
    with step(f"write {n:,} x {FEATURES} vectors", n):
        X = vectors(n, path)
    with step("fit, from the memory map", n):
        whitening = Whitening(KEPT, power="auto").fit(X)
    parts = Whitening(KEPT, power="auto")
    with step("fit, in parts by partial_fit", n):
        for start in range(0, n, BLOCK):
            parts.partial_fit(X[start : start + BLOCK])
    cosine = np.abs(parts.transform(X[:1000]) - whitening.transform(X[:1000])).max()
    print(f"{'':48}{cosine:9.0e} largest difference to one fit")
    calibrated = open_memmap(folder / "calibrated.npy", "w+", np.float32, (n, KEPT))
    with step(f"transform to {KEPT} dimensions, into a file", n):
        for start in range(0, n, BLOCK):
            calibrated[start : start + BLOCK] = whitening.transform(X[start : start + BLOCK])
    with step("SimilarityScale"):
        threshold = SimilarityScale().fit(calibrated).threshold(1e-4)
    print(f"{'':48}{threshold:9.3f} is the threshold of 1e-4")

    rng = np.random.default_rng(1)
    sample = rng.choice(n, QUERIES, replace=False)
    exact = NeighborSmoothing()
    with step("fit NeighborSmoothing, exact", n):
        exact.fit(calibrated)
    with step(f"  smooth {QUERIES:,} of its texts", QUERIES):
        expected = exact.transform(calibrated[sample])
    smoothing = NeighborSmoothing(neighbors=FaissNeighbors())
    with step("fit NeighborSmoothing, by inverted lists", n):
        smoothing.fit(calibrated)
    with step(f"  smooth {QUERIES:,} of its texts", QUERIES):
        found = smoothing.transform(calibrated[sample])
    same = np.sum(expected * found, axis=1)
    print(f"{'':48}{np.mean(same):9.4f} cosine with the exact, {np.min(same):.3f} at least")
    smooth = open_memmap(folder / "smooth.npy", "w+", np.float32, (n, KEPT))
    with step("  smooth all", n):
        for start in range(0, n, BLOCK):
            smooth[start : start + BLOCK] = smoothing.transform(
                calibrated[start : start + BLOCK]
            )

    unit = np.array(calibrated)
    faiss.normalize_L2(unit)
    queries = unit[sample]
    flat = faiss.IndexFlatIP(KEPT)
    flat.add(unit)
    nearest = flat.search(queries, 10)[1]
    search("search, all vectors (faiss)", flat, queries, nearest)
    inverted = smoothing.neighbors_.index_
    for probes in (8, 32, 128):
        inverted.nprobe = probes
        search(f"search, {probes} of 1,024 lists", inverted, queries, nearest)
    graph = faiss.IndexHNSWFlat(KEPT, 16, faiss.METRIC_INNER_PRODUCT)
    with step("build a graph (HNSW, 16 links)", n):
        graph.add(unit)
    for breadth in (32, 128):
        graph.hnsw.efSearch = breadth
        search(f"search, HNSW with efSearch={breadth}", graph, queries, nearest)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=1_000_000)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        main(arguments.rows, Path(folder))
