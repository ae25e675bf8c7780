"""A grid search over pooling, layers and kept dimensions, against what peers can express.

Run by hand, on a quiet machine::

    pip install -c constraints.txt '.[demo]' skrub
    SKCALIB_DATA=folder python benchmarks/grid.py

On STS-B dev, 3 folds, in turn in one process:

- skcalib: 4 poolings x 4 layers x 6 numbers of kept dimensions, an empty store;
- sentence-transformers in a FunctionTransformer before scikit-learn's PCA(whiten=True), the
  pipeline's own cache on: 6 numbers of kept dimensions, it has one pooling and layer;
- skrub's TextEncoder, its own PCA: the same 6.

Printed: seconds in all and per candidate, beside one plain encoding of the distinct texts by
sentence-transformers, and by skcalib without a store, and the eigendecompositions alone.
"""

import argparse
import os
import platform
import tempfile
import time
import warnings

os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")

import numpy as np
import pandas as pd
import torch
from sentence_transformers import SentenceTransformer
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.decomposition import PCA
from sklearn.model_selection import GridSearchCV, KFold
from sklearn.pipeline import Pipeline
from sklearn.preprocessing import FunctionTransformer
from skrub import TextEncoder

from skcalib import BertEncoder, BiEncoder, Whitening
from skcalib._spectrum import decompose
from skcalib.datasets import fetch_sts, minilm_path

KEPT = [16, 32, 64, 128, 256, 384]
FOLDS = KFold(3, shuffle=True, random_state=0)


def encode_by_peer(texts):
    return PEER.encode(list(texts), show_progress_bar=False)


class Skrub(TransformerMixin, BaseEstimator):
    """TextEncoder takes a Series."""

    def __init__(self, n_components=None):
        self.n_components = n_components

    def fit(self, X, y=None):
        self.encoder_ = TextEncoder(minilm_path(), n_components=self.n_components)
        self.encoder_.fit_transform(pd.Series(X, name="text"))
        return self

    def transform(self, X):
        return self.encoder_.transform(pd.Series(X, name="text")).to_numpy()


def search(encoder, grid, pairs, grades):
    start = time.perf_counter()
    search = GridSearchCV(BiEncoder(encoder), grid, cv=FOLDS, refit=False, error_score="raise")
    search.fit(pairs, grades)
    return time.perf_counter() - start, len(search.cv_results_["params"])


def ours(pairs, grades):
    with tempfile.TemporaryDirectory() as folder:
        encoder = BertEncoder(minilm_path(), memory=folder)
        grid = {
            "encoder__bert__pooling": ["mean", "max", "mean_sqrt_len", "zipf"],
            "encoder__bert__layers": [-1, "last2", "first_last", "embedding_last"],
            "encoder__whiten__n_components": KEPT,
        }
        steps = [("bert", encoder), ("whiten", Whitening(shrinkage=0.1))]
        return search(Pipeline(steps), grid, pairs, grades)


def sentence_transformers(pairs, grades):
    with tempfile.TemporaryDirectory() as folder:
        steps = [("bert", FunctionTransformer(encode_by_peer)), ("pca", PCA(whiten=True))]
        grid = {"encoder__pca__n_components": KEPT}
        return search(Pipeline(steps, memory=folder), grid, pairs, grades)


def skrub(pairs, grades):
    return search(Skrub(), {"encoder__n_components": KEPT}, pairs, grades)


def timed(function):
    start = time.perf_counter()
    function()
    return time.perf_counter() - start


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--repeats", type=int, default=3)
    repeats = parser.parse_args().repeats
    warnings.simplefilter("ignore")
    PEER = SentenceTransformer(minilm_path(), device="cpu")
    pairs, grades = fetch_sts("stsb", "dev", return_X_y=True)
    texts = list(np.unique(pairs.astype(str)))
    plain = BertEncoder(minilm_path()).fit(texts)
    covariance = np.cov(plain.transform(texts), rowvar=False)
    n_fits = 4 * 4 * len(KEPT) * FOLDS.n_splits
    rows = {}
    for _ in range(repeats):
        for name, measure in {
            "one encoding, sentence-transformers": lambda: (
                timed(lambda: encode_by_peer(texts)),
                1,
            ),
            "one encoding, skcalib": lambda: (timed(lambda: plain.transform(texts)), 1),
            f"{n_fits} eigendecompositions": lambda: (
                10 * timed(lambda: [decompose(covariance.copy()) for _ in range(n_fits // 10)]),
                1,
            ),
            "skcalib": lambda: ours(pairs, grades),
            "sentence-transformers": lambda: sentence_transformers(pairs, grades),
            "skrub": lambda: skrub(pairs, grades),
        }.items():
            seconds, n = measure()
            rows.setdefault(name, ([], n))[0].append(seconds)
    print(
        f"{platform.machine()}, {torch.get_num_threads()} threads, {len(texts)} distinct texts"
    )
    per_candidate = np.array(rows["skcalib"][0]) / rows["skcalib"][1]
    for name, (seconds, n) in rows.items():
        s = np.array(seconds)
        ratio = np.median(s / n / per_candidate)
        spread = f"({s.min():.1f} to {s.max():.1f})"
        print(f"{name:38}{np.median(s):8.1f} s {spread:>18}{n:5} candidates", end="")
        print(f"{np.median(s) / n:8.2f} s each, {ratio:6.1f} x skcalib's")
    needed = (
        np.array(rows["one encoding, skcalib"][0]) + rows[f"{n_fits} eigendecompositions"][0]
    )
    share = np.median(rows["skcalib"][0] / needed)
    print(f"skcalib / (its one encoding + eigendecompositions): {share:.2f}")
