"""Time an epoch of NormalizingFlow, beside Whitening.

The flow has 2 levels, depth 3 and batches of 32. The seconds are those of ``fit``, including
its checks of the data::

    SKCALIB_DATA=folder python benchmarks/flow.py --features 384 --threads 1 --rounds 5

Without SKCALIB_DATA the rows are drawn from a normal distribution, and the bits per dimension
mean nothing.
"""

import argparse
import os

import numpy as np
import torch
from turns import report, sentences, spread, turns

from skcalib import BertEncoder, NormalizingFlow, Whitening
from skcalib.datasets import minilm_path


def load_rows(n_rows, n_features):
    if "SKCALIB_DATA" not in os.environ or n_features == 576:
        rng = np.random.default_rng(0)
        return rng.standard_normal((n_rows, n_features), dtype=np.float32)
    layers = {384: 0, 768: (0, 3)}[n_features]
    encoder = BertEncoder(minilm_path(), layers=layers, layer_merge="concat", device="cpu")
    return encoder.fit_transform(sentences()[:n_rows].tolist())


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=10_000)
    parser.add_argument("--features", type=int, default=384, choices=(384, 576, 768))
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    X, bits = load_rows(options.rows, options.features), []

    def flow(X):
        score = NormalizingFlow(random_state=0).fit(X).score(X)
        bits.append(-score / (X.shape[1] * np.log(2)))

    ways = {"flow": flow, "Whitening": lambda X: Whitening(power="auto").fit(X)}
    print(f"{len(X)} x {X.shape[1]}, {options.threads} thread(s), torch {torch.__version__}")
    seconds = turns(ways, options.rounds, lambda turn: np.roll(X, turn, axis=0))
    more = {"flow": {"bits per dim": spread(bits[1:], ".3f")}}
    report("one epoch", seconds, "flow", more=more)


if __name__ == "__main__":
    main()
