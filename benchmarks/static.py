"""Tables of word vectors: costs and gains of `save_static`, compared with model2vec.

Run by hand, on a quiet machine::

    pip install -c constraints.txt '.[demo]' sentence-transformers 'model2vec[distill]'
    SKCALIB_DATA=folder python benchmarks/static.py [--texts 2000] [--repeats 5]

The first output is Spearman's rho times 100, the average of the seven STS sets: of pipelines on
the embedding layer of MiniLM and of their tables, fitted on STS-B's training sentences; of
tables averaged over other numbers of positions; and of model2vec's distillation of the same
model. The second is texts per second in one thread by the processor's clock: the median over
the rounds and its range, including tokenization. All contenders encode the same distinct
sentences of STS.
"""

import argparse
import os
import time

os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")

import numpy as np
import torch
from model2vec.distill import distill
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer.modules import StaticEmbedding
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.frozen import FrozenEstimator
from sklearn.pipeline import make_pipeline

from skcalib import BertEncoder, Whitening
from skcalib.datasets import fetch_sts, minilm_path
from skcalib.evaluation import evaluate_sts
from skcalib.export._parts import take_apart
from skcalib.export._static import _tokenizer, word_vectors


class Encoder(TransformerMixin, BaseEstimator):
    """Fitted transformer around an object with ``encode``."""

    def __init__(self, model):
        self.model = model

    def fit(self, X, y=None):
        return self

    def transform(self, X):
        return self.model.encode(list(X), show_progress_bar=False)


def static(pipeline, positions):
    """Return a sentence-transformers model with the table of a pipeline."""
    parts = take_apart(pipeline, "static")
    table, _ = word_vectors(parts, positions)
    module = StaticEmbedding(_tokenizer(parts), embedding_weights=table)
    return SentenceTransformer(modules=[module], device="cpu")


def quality(train):
    """Print the scores; return the contenders of the speed test by name."""
    zipf = {"layers": 0, "pooling": "zipf"}
    mean = {"layers": 0, "special_tokens": False}
    contenders = {}
    print(f"{'':<48}{'pipeline':>9}{'table':>8}")
    for params in (zipf, mean):
        for whitening in (Whitening(), Whitening(noise="auto"), Whitening(256, noise="auto")):
            pipeline = make_pipeline(BertEncoder(minilm_path(), **params), whitening).fit(train)
            model = static(pipeline, 16)
            row = {"pipeline": FrozenEstimator(pipeline), "table": Encoder(model)}
            if params is zipf and whitening.noise == "auto" and whitening.n_components is None:
                for positions in (1, 4, 64):
                    row[f"of {positions} positions"] = Encoder(static(pipeline, positions))
                contenders = {"pipeline, embedding layer": pipeline.transform}
                contenders["its table, by sentence-transformers"] = model.encode
            table = evaluate_sts(row, fit_on=["one", "two"])
            name = f"{params.get('pooling', 'mean')}, {whitening!r}"
            print(f"{name:<48}" + "".join(f"{s:9.1f}" for s in table.scores[:, -1]))
    for dims in (None, 256):
        model = distill(minilm_path(), pca_dims=dims, device="cpu")
        table = evaluate_sts({"model2vec": Encoder(model)}, fit_on=["one", "two"])
        print(f"model2vec, pca_dims={dims}: {table.scores[0, -1]:.1f}")
    contenders["model2vec"] = model.encode
    contenders["MiniLM, raw, by skcalib"] = BertEncoder(minilm_path()).fit([""]).transform
    return contenders


def speed(contenders, texts, repeats):
    """Print texts per second of each contender."""
    rates = {name: [] for name in contenders}
    for _ in range(repeats + 1):
        for name, encode in contenders.items():
            some = texts[:200] if "raw" in name else texts
            start = time.process_time()
            encode(some)
            rates[name].append(len(some) / (time.process_time() - start))
    for name, values in rates.items():
        values = values[1:]  # the first round warms up
        print(f"{name:<40}{np.median(values):>10.0f} ({min(values):.0f} to {max(values):.0f})")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--texts", type=int, default=2000)
    parser.add_argument("--repeats", type=int, default=5)
    options = parser.parse_args()
    torch.set_num_threads(1)
    train = np.unique(fetch_sts("stsb", "train").data.ravel().astype(str)).tolist()
    contenders = quality(train)
    drawn = np.random.default_rng(0).permutation(train)[: options.texts].tolist()
    speed(contenders, drawn, options.repeats)


if __name__ == "__main__":
    main()
