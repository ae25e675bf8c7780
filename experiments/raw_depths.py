"""What is neutral on a language model that was not trained for similarity: gains over raw.

Cells are seven depths of 30 blocks under four poolings: means, means without the first token,
the last token, and the last token with words around the text. 500 training texts are fitted and
500 test texts scored by R-precision of each labeled set; STS-B's test pairs are scored by
Spearman's rho after a fit on their sentences. "n_groups" knows the number of groups; "raw" is
the score itself.
"""

import numpy as np
from data import LENGTH, LENGTH_WITH_TEMPLATE, TEMPLATE, labeled, pairs
from measures import codes_of, of_pairs, precisions, unit
from sklearn.decomposition import PCA
from sklearn.preprocessing import FunctionTransformer

from skcalib import VectorStore, Whitening

SETS = "STS-B", "Banking77", "news", "biomedical", "emotions"
POOLINGS = "mean", "mean_without_first", "last", "last, prompt"
DEPTHS = 0, 1, 7, 15, 22, 29, 30
TEXTS = 500
KEPT = {
    "layers": (0, 1, 2, 7, 10, 15, 22, 29, 30),
    "pooling": ("mean", "last", "weighted_mean", "mean_without_first"),
}


def stored(encode, options, pooling="mean", **params):
    """Return an encoder with a store of these layers and poolings."""
    length = {"max_length": LENGTH}
    if pooling == "last, prompt":
        pooling, length = "last", {"max_length": LENGTH_WITH_TEMPLATE, "prompt": TEMPLATE}
    memory = VectorStore(options.memory / "raw-depths", **KEPT)
    return encode.bert(memory=memory, pooling=pooling, **length, **params)


def steps(n_groups):
    found = {
        "centered": Whitening(power=0),
        "PCA(128)": PCA(128, random_state=0),
        "whitened": Whitening(power="auto"),
        "many": Whitening(power="auto", n_groups="many"),
        "exact": Whitening(tol=1e-6),  # without directions that few texts do not span
    }
    if n_groups is not None:
        found["n_groups"] = Whitening(power="auto", n_groups=n_groups)
        found["PCA(groups)"] = PCA(n_groups, random_state=0)
    return found


def rows(encode, options):
    gains = {}
    for name in options.only or SETS:
        for pooling in POOLINGS:
            for fit, score, k in cells(encode, options, name, pooling):
                raw = score(FunctionTransformer())
                gained = {step: score(map_.fit(fit)) - raw for step, map_ in steps(k).items()}
                for step, value in ({"raw": raw} | gained).items():
                    for group in (pooling, "all"):
                        gains.setdefault((name, step, group), []).append(value)
    for (name, step, pooling), gained in gains.items():
        row = {"data": name, "step": step, "pooling": pooling, "cells": len(gained)}
        sign = "" if step == "raw" else "+"
        for column, value in (("mean", np.mean(gained)), ("worst", np.min(gained))):
            row[column] = f"{value:{sign}z.1f}"
        yield row


def cells(encode, options, name, pooling):
    """Yield vectors to fit on, a function from a map to a score, and the number of groups."""
    depths = DEPTHS[1:] if pooling.startswith("last") else DEPTHS  # 0 is one word's embedding
    encoder = stored(encode, options, pooling, layers=depths, layer_merge="concat").fit([""])
    fit_on, texts, score_of, n_groups = task(name)
    fitted, scored = (
        np.split(encoder.transform(list(of)), len(depths), axis=1) for of in (fit_on, texts)
    )
    for X, vectors in zip(fitted, scored, strict=True):
        yield X, score_of(vectors), n_groups


def task(name):
    """Texts to fit on, texts to score, a function from vectors to a score, number of groups."""
    if name == "STS-B":
        both, grades = pairs("stsb")
        texts, places = np.unique(both, return_inverse=True)
        places = places.reshape(both.shape).T
        return texts, texts, lambda vectors: graded(vectors, places, grades), None
    fit_on, texts, codes = texts_of(name)
    return fit_on, texts, lambda vectors: grouped(vectors, codes), codes.max() + 1


def texts_of(name, n_fitted=TEXTS, n_scored=TEXTS):
    """Texts to fit on, texts to score, and the groups of these, each of two or more."""
    texts, labels = labeled(name, "test", n_scored)
    codes = codes_of(labels)
    kept = np.bincount(codes)[codes] > 1
    return labeled(name, "train", n_fitted)[0], texts[kept], codes[kept]


def graded(vectors, places, grades):
    def score(step):
        mapped = step.transform(vectors)
        return of_pairs(*(mapped[side] for side in places), grades)

    return score


def grouped(vectors, codes):
    def score(step):
        units = unit(step.transform(vectors))
        return 100 * precisions(units @ units.T, codes[:, None] == codes).mean()

    return score
