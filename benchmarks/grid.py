"""A grid search over pooling, layers and kept dimensions, compared with an alternative.

Run by hand, on a quiet machine::

    pip install -c constraints.txt '.[demo]'
    SKCALIB_DATA=folder python benchmarks/grid.py

All searches use STS-B dev with 3 folds and take turns in one process:

- skcalib: 4 poolings x 4 layers x 6 numbers of kept dimensions, with an empty store;
- sentence-transformers in a FunctionTransformer before scikit-learn's PCA(whiten=True), with
  the pipeline's own cache: 6 numbers of kept dimensions, since it has one pooling and layer.

For comparison it has one encoding of the distinct texts. ``--ours`` leaves the other out.
"""

import argparse
import tempfile
import warnings

import numpy as np
from sentence_transformers import SentenceTransformer
from sklearn.decomposition import PCA
from sklearn.model_selection import GridSearchCV, KFold
from sklearn.pipeline import Pipeline
from sklearn.preprocessing import FunctionTransformer
from turns import report, turns

from skcalib import BertEncoder, BiEncoder, Whitening
from skcalib.datasets import fetch_sts, minilm_path

KEPT = [16, 32, 64, 128, 256, 384]
FOLDS = KFold(3, shuffle=True, random_state=0)
PLAIN_MODEL = SentenceTransformer(minilm_path(), device="cpu")


def encode_by_st(texts):
    return PLAIN_MODEL.encode(list(texts), show_progress_bar=False)


def search(encoder, grid, given):
    found = GridSearchCV(BiEncoder(encoder), grid, cv=FOLDS, refit=False, error_score="raise")
    found.fit(*given)


def ours(given):
    with tempfile.TemporaryDirectory() as folder:
        encoder = BertEncoder(minilm_path(), memory=folder)
        grid = {
            "encoder__bert__pooling": ["mean", "max", "mean_own", "zipf"],
            "encoder__bert__layers": [-1, "last2", "first_last", "embedding_last"],
            "encoder__whiten__n_components": KEPT,
        }
        steps = [("bert", encoder), ("whiten", Whitening(shrinkage=0.1))]
        search(Pipeline(steps), grid, given)


def sentence_transformers(given):
    with tempfile.TemporaryDirectory() as folder:
        steps = [("bert", FunctionTransformer(encode_by_st)), ("pca", PCA(whiten=True))]
        search(Pipeline(steps, memory=folder), {"encoder__pca__n_components": KEPT}, given)


def distinct(given):
    return list(np.unique(given[0].astype(str)))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--ours", action="store_true", help="leave the other out")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    pairs, grades = fetch_sts("stsb", "dev", return_X_y=True)
    plain = BertEncoder(minilm_path()).fit(["a"])
    ways = {
        "one encoding, skcalib": lambda given: plain.transform(distinct(given)),
        "skcalib, 96 candidates": ours,
    }
    if not options.ours:
        ways |= {
            "one encoding, sentence-transformers": lambda given: encode_by_st(distinct(given)),
            "sentence-transformers, 6 candidates": sentence_transformers,
        }

    def given(turn):
        """Mark the pairs with the turn, so that no memory of the process knows them."""
        return np.char.add(pairs.astype(str), f" {turn}"), grades

    seconds = turns(ways, options.repeats, given)
    report("STS-B dev, 3 folds", seconds, "skcalib, 96 candidates")
