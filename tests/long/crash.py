"""Kill processes that write to one store, at random moments, and look at what is left.

Run by hand, with the extra `demo`: ``python tests/long/crash.py --rounds 100`` takes minutes.

In each round one to four processes encode overlapping texts into one store, each text a batch;
all are killed after a random time, and the next round goes on with the same store. Then a text
that a process told to be finished must be there, and all vectors must be those without a store.
"""

import argparse
import multiprocessing
import os
import random
import sys
import tempfile
import time

os.environ.setdefault("HF_HUB_OFFLINE", "1")

import numpy as np

from skcalib import BertEncoder, VectorStore
from skcalib.datasets import load_toy_sts, minilm_path

FORK = multiprocessing.get_context("fork")  # libraries and model are loaded once, in the parent


def write(encoder, texts, seed, pipe):
    os.write(pipe, b"ready\n")
    for text in random.Random(seed).sample(texts, len(texts)):
        encoder.transform([text])
        os.write(pipe, f"{text}\n".encode())  # so short a line is written whole or not at all


def start(*arguments):
    """Return a process that writes, and the lines that it tells."""
    read_end, write_end = os.pipe()
    process = FORK.Process(target=write, args=(*arguments, write_end))
    process.start()
    os.close(write_end)
    return process, os.fdopen(read_end)


def killed(writers, seconds):
    """Kill all writers after some time; return the texts that they told to be finished."""
    for _, lines in writers:
        lines.readline()
    time.sleep(seconds)
    for process, _ in writers:
        process.kill()
    finished = set()
    for process, lines in writers:
        with lines:
            finished |= set(lines.read().splitlines())
        process.join()
    return sorted(finished)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=100)
    parser.add_argument("--longest", type=float, default=1.0, help="seconds until a kill")
    options = parser.parse_args()
    rng, folder = np.random.default_rng(0), tempfile.mkdtemp()
    sentences = np.unique(load_toy_sts().data).tolist()
    plain = BertEncoder(minilm_path(), layers=0).fit(sentences)
    encoder = BertEncoder(minilm_path(), layers=0, memory=folder).fit(sentences)
    n_told = n_kills = lost = wrong = 0
    for number in range(options.rounds):
        texts = [f"{sentence} {number}" for sentence in sentences]
        writers = [start(encoder, texts, i) for i in range(1 + number % 4)]
        finished = killed(writers, rng.uniform(0, options.longest))
        n_kills, n_told = n_kills + len(writers), n_told + len(finished)
        n_before = len(VectorStore(folder))
        if finished:
            encoder.transform(finished)
        lost += len(VectorStore(folder)) - n_before
        right = np.isclose(encoder.transform(texts), plain.transform(texts), atol=1e-5)
        wrong += np.sum(~right.all(axis=1))
    print(
        f"{n_kills} kills, {n_told} texts told finished, of which {lost} are lost, {wrong} ",
        "wrong vectors",
    )
    return int(bool(wrong or lost))


if __name__ == "__main__":
    sys.exit(main())
