"""Vectors as float32, int8 and bits, and classifiers on unit vectors or vectors of any length.

    SKCALIB_DATA=folder python benchmarks/few_bits.py MODEL --memory vectors

Beside the folder of ``SKCALIB_DATA`` there is the folder ``tasks`` (Banking77:
banking77-train.csv, banking77-test.csv). MODEL is a folder, or minilm. Calibrators are fitted
on 4,000 training questions without labels. The codes are those of sentence-transformers: int8
in the range that each dimension has among the fitted texts, and signs. Coded vectors are
compared by their cosine. The score is R-precision: for a question with R others of its intent,
the share of its R nearest questions that have that intent. Then a logistic regression learns
from ten training questions of each intent.
"""

import argparse
import os
from pathlib import Path

import numpy as np
import pandas as pd
from sentence_transformers.util.quantization import quantize_embeddings
from sklearn.linear_model import LogisticRegression

from skcalib import BertEncoder, VectorStore, Whitening
from skcalib.datasets import minilm_path
from skcalib.evaluation._labelled import SCORES
from skcalib.utils.vectors import unit_rows

TASKS = Path(os.environ["SKCALIB_DATA"]).parent / "tasks"
PARAMS = {
    "raw": None,
    "pca, all": {},
    "pca": {"n_components": 128},
    "rotated": {"n_components": 128, "method": "rotated"},
    "rotated, all": {"method": "rotated"},
    "zca": {"method": "zca"},
    "zca of 128": {"n_components": 128, "method": "zca"},
}


def calibrated(params, fit, *others):
    """Calibrated vectors of unit length, those of the fit first."""
    given = fit, *others
    if params is not None:
        whitening = Whitening(noise="auto", **params).fit(fit)
        given = map(whitening.transform, given)
    return [unit_rows(vectors)[0] for vectors in given]


def bits(fit, test, labels):
    codes = np.unique(labels, return_inverse=True)[1]
    print("R-precision: float32, int8, ubinary")
    for name, params in PARAMS.items():
        known, vectors = calibrated(params, fit, test)
        eighth = quantize_embeddings(vectors, "int8", calibration_embeddings=known)
        signs = np.unpackbits(quantize_embeddings(vectors, "ubinary"), axis=1) * 2.0 - 1
        scores = [
            100 * SCORES["R-precision"](unit_rows(coded.astype(np.float32))[0], codes, 0)
            for coded in (vectors, eighth, signs)
        ]
        print(f"  {name:14}{vectors.shape[1]:5}" + "".join(f"{score:6.1f}" for score in scores))


def classifiers(fit, train, test, labels, expected):
    print("Accuracy of a logistic regression: unit vectors, vectors of any length")
    few = labels.groupby(labels).sample(10, random_state=0).index
    whitening = Whitening(noise="auto").fit(fit)
    for name, transform in (("raw", np.asarray), ("auto", whitening.transform)):
        X, T = transform(train[few]), transform(test)
        for C in (1.0, 10.0, 100.0):
            scores = []
            for x, t in ((unit_rows(X)[0], unit_rows(T)[0]), (X, T)):
                model = LogisticRegression(C=C, max_iter=1000).fit(x, labels[few])
                scores.append(100 * model.score(t, expected))
            unit, free = scores
            print(f"  {name:6}{len(few):6} labels, C={C:<5g}{unit:6.1f}{free:6.1f}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model", metavar="MODEL")
    parser.add_argument("--memory", required=True, help="folder for vectors")
    parser.add_argument("--prompt", help="comes before each text")
    options = parser.parse_args()
    model = minilm_path() if options.model == "minilm" else options.model
    store = VectorStore(options.memory, layers=(-1,), pooling="mean")
    params = {"pooling": "mean", "memory": store, "prompt": options.prompt}
    encode = BertEncoder(model, **params).fit(["one text"]).transform
    train, test = (pd.read_csv(TASKS / f"banking77-{split}.csv") for split in ("train", "test"))
    X, T = encode(train["text"]), encode(test["text"])
    fit = X[np.random.default_rng(0).permutation(len(X))[:4000]]
    bits(fit, T, test["category"])
    classifiers(fit, X, T, train["category"], test["category"])
