"""Kill processes that write to one store, at random moments, and look at what is left.

Run by hand, for minutes::

    pip install -c constraints.txt '.[demo]'
    python benchmarks/crash.py --rounds 100

In each round one to four processes encode overlapping texts into one store, each text a batch;
all are killed (SIGKILL) after a random time, the next round goes on with the same store. A
fresh process then reads everything and compares it with vectors computed without a store.

Printed: rounds, kills, texts encoded by those killed, texts lost that were told to be
finished, vectors that differ, files put aside, and seconds.
"""

import argparse
import multiprocessing
import os
import random
import sys
import tempfile
import time
from pathlib import Path

os.environ.setdefault("HF_HUB_OFFLINE", "1")

import numpy as np

from skcalib import BertEncoder, VectorStore
from skcalib.datasets import load_toy_sts, minilm_path

FORK = multiprocessing.get_context("fork")  # libraries and model are loaded once, in the parent


def write(folder, model, seed, texts, pipe):
    encoder = BertEncoder(model, layers=0, memory=folder, batch_size=1).fit(texts)
    random.Random(seed).shuffle(texts)
    os.write(pipe, b"ready\n")
    for text in texts:
        encoder.transform([text])
        os.write(pipe, f"{text}\n".encode())  # so short a line is written whole or not at all


def start(*arguments):
    """Return a process that writes, and the lines that it tells."""
    read_end, write_end = os.pipe()
    process = FORK.Process(target=write, args=(*arguments, write_end))
    process.start()
    os.close(write_end)
    return process, os.fdopen(read_end)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=100)
    parser.add_argument("--longest", type=float, default=1.0, help="seconds until a kill")
    options = parser.parse_args()
    rng = np.random.default_rng(0)
    pairs, _ = load_toy_sts(return_X_y=True)
    sentences = sorted({text for pair in pairs for text in pair})
    model = str(minilm_path())
    plain = BertEncoder(model, layers=0).fit(sentences)
    folder = tempfile.mkdtemp()
    started = time.monotonic()
    kills = wrong = lost = told = 0
    for number in range(options.rounds):
        texts = [f"{sentence} {number}" for sentence in sentences]
        writers = [start(folder, model, i, texts) for i in range(1 + number % 4)]
        for _, lines in writers:
            lines.readline()
        time.sleep(rng.uniform(0, options.longest))
        for process, _ in writers:
            process.kill()
        finished = set()
        for process, lines in writers:
            with lines:
                finished |= set(lines.read().splitlines())
            process.join()
            kills += 1
        told += len(finished)
        n_before = len(VectorStore(folder))
        memory = BertEncoder(model, layers=0, memory=folder).fit(texts)
        # What was told to be finished is there: reading it adds nothing.
        if finished:
            memory.transform(sorted(finished))
        lost += len(VectorStore(folder)) - n_before
        vectors = memory.transform(texts)
        wrong += int(
            (~np.isclose(vectors, plain.transform(texts), atol=1e-5)).any(axis=1).sum()
        )
    aside = len(list(Path(folder).glob("*.damaged-*")))
    print(
        f"{options.rounds} rounds, {kills} kills, {told} texts told finished, {lost} of them "
        f"lost, {wrong} wrong vectors, {aside} files put aside, "
        f"{time.monotonic() - started:.0f} s"
    )
    return int(bool(wrong or lost or aside))


if __name__ == "__main__":
    sys.exit(main())
