"""A grid search over pooling, layers and kept dimensions, compared with two alternatives.

Run by hand, on a quiet machine::

    pip install -c constraints.txt '.[demo]' skrub
    SKCALIB_DATA=folder python benchmarks/grid.py

All searches use STS-B dev with 3 folds and run one after the other in one process:

- skcalib: 4 poolings x 4 layers x 6 numbers of kept dimensions, with an empty store;
- sentence-transformers in a FunctionTransformer before scikit-learn's PCA(whiten=True), with
  the pipeline's own cache: 6 numbers of kept dimensions, since it has one pooling and layer;
- skrub's TextEncoder with its own PCA: the same 6.

The output is seconds in total and per candidate. For comparison it has one plain encoding of
the distinct texts by sentence-transformers, one by skcalib without a store, and the
eigendecompositions alone, one for each different matrix. ``--ours`` leaves the alternatives
out.
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
from skcalib.calibration.covariance.spectrum import decompose
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.decomposition import PCA
from sklearn.model_selection import GridSearchCV, KFold
from sklearn.pipeline import Pipeline
from sklearn.preprocessing import FunctionTransformer
from skrub import TextEncoder

from skcalib import BertEncoder, BiEncoder, Whitening
from skcalib.calibration.whitening import recent
from skcalib.datasets import fetch_sts, minilm_path
from skcalib.utils.caches import VECTORS

KEPT = [16, 32, 64, 128, 256, 384]
FOLDS = KFold(3, shuffle=True, random_state=0)


def encode_anew(encoder, texts):
    VECTORS.clear()  # otherwise the vectors of the first time are in memory
    encoder.transform(texts)


def encode_by_st(texts):
    return PLAIN_MODEL.encode(list(texts), show_progress_bar=False)


class Skrub(TransformerMixin, BaseEstimator):
    """TextEncoder for lists of texts, since it expects a Series."""

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
    recent._fits.clear()
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
        steps = [("bert", FunctionTransformer(encode_by_st)), ("pca", PCA(whiten=True))]
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
    parser.add_argument("--ours", action="store_true", help="leave the alternatives out")
    arguments = parser.parse_args()
    warnings.simplefilter("ignore")
    PLAIN_MODEL = SentenceTransformer(minilm_path(), device="cpu")
    pairs, grades = fetch_sts("stsb", "dev", return_X_y=True)
    texts = list(np.unique(pairs.astype(str)))
    plain = BertEncoder(minilm_path()).fit(texts)
    covariance = np.cov(plain.transform(texts), rowvar=False)
    n_matrices = 4 * 4 * FOLDS.n_splits
    eighs = f"{n_matrices} eigendecompositions"
    alone = lambda function: lambda: (timed(function), 1)  # noqa: E731
    ways = {
        "one encoding, skcalib": alone(lambda: encode_anew(plain, texts)),
        eighs: alone(lambda: [decompose(covariance.copy()) for _ in range(n_matrices)]),
        "skcalib": lambda: ours(pairs, grades),
    }
    if not arguments.ours:
        ways |= {
            "one encoding, sentence-transformers": alone(lambda: encode_by_st(texts)),
            "sentence-transformers": lambda: sentence_transformers(pairs, grades),
            "skrub": lambda: skrub(pairs, grades),
        }
    seconds, counts = {name: [] for name in ways}, {}
    for _ in range(arguments.repeats):
        for name, way in ways.items():
            elapsed, counts[name] = way()
            seconds[name].append(elapsed)
    seconds = {name: np.array(s) for name, s in seconds.items()}
    print(
        f"{platform.machine()}, {torch.get_num_threads()} threads, {len(texts)} distinct texts"
    )
    per_candidate = seconds["skcalib"] / counts["skcalib"]
    for name, s in seconds.items():
        spread = f"({s.min():.1f} to {s.max():.1f})"
        each = s / counts[name]
        print(f"{name:38}{np.median(s):8.1f} s {spread:>18}{counts[name]:5} candidates", end="")
        print(f"{np.median(each):8.2f} s each, {np.median(each / per_candidate):6.1f} x ours")
    share = seconds["skcalib"] / (seconds["one encoding, skcalib"] + seconds[eighs])
    print(f"skcalib / (one encoding + {eighs}): {np.median(share):.2f}", end=" ")
    print(f"({share.min():.2f} to {share.max():.2f})")
