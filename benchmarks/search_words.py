"""What the words of a `SearchEncoder` cost: fit, queries and memory, with bm25s and faiss.

    SKCALIB_DATA=folder python benchmarks/search_words.py [--rows 1000000]

Documents are windows of 8 to 24 words of the sentences of the STS sets, and queries are windows
of 3 to 8 words. Their vectors are those of ``scale.py``, looked up by text, so the times are
without an encoder, and those of the processor, which other processes do not lengthen. Each
contender has a process of its own; its memory is the largest beyond that of texts and vectors.
"""

import argparse
import json
import multiprocessing
import tempfile
import time
from functools import partial
from pathlib import Path

import bm25s
import faiss
import numpy as np
from scale import FEATURES, vectors
from turns import sentences, spread

from skcalib import SearchEncoder, TextEncoder

BANK, ASKED, FOUND, ROUNDS = 100, 1000, 10, 3


def windows(n, shortest, longest, seed):
    """Return n distinct windows of the words of all sentences."""
    words, rng = " ".join(sentences()).split(), np.random.default_rng(seed)
    found = {}
    while len(found) < n:
        lengths = rng.integers(shortest, longest + 1, size=n)
        starts = rng.integers(0, len(words) - longest, size=n)
        for start, length in zip(starts, lengths, strict=True):
            found[" ".join(words[start : start + length])] = None
    return list(found)[:n]


class Ours:
    """A search whose encoders look vectors up."""

    def __init__(self, weight, documents, queries, D, Q):
        row_of = {text: row for row, text in enumerate(documents)}
        asked = {text: row for row, text in enumerate(queries)}
        by_side = (
            TextEncoder(lambda texts, X=X, of=of: X[[of[text] for text in texts]])
            for X, of in ((D, row_of), (Q, asked))
        )
        encoder, of_queries = by_side
        self.search = SearchEncoder(encoder, query_encoder=of_queries, lexical_weight=weight)
        self.data = documents, queries

    def fit(self):
        documents, queries = self.data
        self.search.fit(documents, queries=queries[-BANK:])

    def find(self, rows):
        self.search.kneighbors([self.data[1][row] for row in rows], FOUND)


class Words:
    """The index of bm25s."""

    def __init__(self, documents, queries, D, Q):
        self.data = documents, queries

    def fit(self):
        self.index = bm25s.BM25()
        self.index.index(bm25s.tokenize(self.data[0], show_progress=False), show_progress=False)

    def find(self, rows):
        asked = [self.data[1][row] for row in rows]
        tokens = bm25s.tokenize(asked, return_ids=False, show_progress=False)
        self.index.retrieve(tokens, k=FOUND, show_progress=False)


class Vectors:
    """The exact index of faiss."""

    def __init__(self, documents, queries, D, Q):
        self.data = D, Q

    def fit(self):
        self.index = faiss.IndexFlatIP(FEATURES)
        self.index.add(np.asarray(self.data[0]))

    def find(self, rows):
        self.index.search(self.data[1][rows], FOUND)


def megabytes(kind):
    """Return the memory of this process now, "VmRSS", or at most, "VmHWM", on Linux."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(kind)) / 1024


def measure(name, contender, n, folder):
    """Print the seconds of the fit, the milliseconds of a query, and the memory."""
    D = np.load(folder / "vectors.npy")
    Q = D[:: max(1, n // (ASKED + BANK))][: ASKED + BANK] + np.float32(0.1)
    documents, queries = json.loads((folder / "texts.json").read_text())
    Path("/proc/self/clear_refs").write_text("5")  # the peak begins here
    before = megabytes("VmRSS")
    contender = contender(documents, queries, D, Q)
    start = time.process_time()
    contender.fit()
    fit = time.process_time() - start
    contender.find([0])
    times = {}
    for size, rounds in ((1, 4 * ROUNDS), (ASKED, ROUNDS)):
        times[size] = []
        for turn in range(rounds):
            start = time.process_time()
            contender.find(np.arange(turn, turn + size) % ASKED)
            times[size].append((time.process_time() - start) / size * 1e3)
    more = megabytes("VmHWM") - before
    cells = [name, f"{fit:.1f}", *map(spread, times.values()), f"{more:,.0f}"]
    print("| " + " | ".join(cells) + " |", flush=True)


def main(n, folder, chosen):
    vectors(n, folder / "vectors.npy")
    texts = windows(n, 8, 24, 0), windows(ASKED + BANK, 3, 8, 1)
    (folder / "texts.json").write_text(json.dumps(texts))
    print("| | fit, s | one query, ms | of a thousand, ms each | memory, MB |")
    print("|---|---:|---:|---:|---:|")
    ways = {
        "`SearchEncoder`": partial(Ours, 0.4),
        "`SearchEncoder(lexical_weight=0)`": partial(Ours, 0),
        "bm25s": Words,
        "faiss, `IndexFlatIP`": Vectors,
    }
    for i, (name, contender) in enumerate(ways.items()):
        if chosen is None or i in chosen:
            given = name, contender, n, folder
            process = multiprocessing.get_context("spawn").Process(target=measure, args=given)
            process.start()
            process.join()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--only", type=int, nargs="+", help="numbers of contenders, from 0")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        main(arguments.rows, Path(folder), arguments.only)
