"""What is neutral on vectors that were not trained for similarity: gains over raw.

Cells are layers of a model under poolings. Of SmolLM2, a raw language model, they are seven
depths of 30 blocks under means, means without the first token, the last token, and the last
token with words around the text. Of the trained encoders they are inner layers, the second to
last among them, under means and [CLS]. 500 training texts are fitted and 500 test texts scored
by R-precision of each labeled set, 400 of "intents", whose classes are skewed. STS-B's test
pairs are scored by Spearman's rho after a fit on their sentences. "n_groups" knows the number
of groups; "raw" is the score itself; "100 texts" is the default after a fit on so many.
"""

import numpy as np
from contenders import chosen
from data import LENGTH, LENGTH_WITH_TEMPLATE, TEMPLATE, labeled, pairs
from measures import codes_of, of_pairs, precisions, unit
from sklearn.preprocessing import FunctionTransformer

from skcalib import VectorStore, Whitening

SETS = "STS-B", "Banking77", "news", "biomedical", "emotions", "intents"
TEXTS = 500
KEPT = {
    "layers": (0, 1, 2, 7, 10, 15, 22, 29, 30),
    "pooling": ("mean", "last", "weighted_mean", "mean_without_first"),
}
POOLINGS = {"smollm2": ("mean", "mean_without_first", "last", "last, prompt")}
DEPTHS = {
    "smollm2": (0, 1, 7, 15, 22, 29, 30),
    "minilm": (1, 3, 5),
    "e5": (1, 6, 11),
}


def stored(encode, options, pooling="mean", **params):
    """Return an encoder with a store of these layers and poolings."""
    length = {"max_length": LENGTH, "normalize": False}
    if pooling == "last, prompt":
        pooling, length = "last", {"max_length": LENGTH_WITH_TEMPLATE, "prompt": TEMPLATE}
    if encode.name == "smollm2":
        memory = VectorStore(options.memory / "raw-depths", **KEPT)
    else:
        kept = {"layers": DEPTHS[encode.name], "pooling": ("mean", "cls")}
        memory = VectorStore(options.memory / f"inner-{encode.name}", **kept)
    return encode.bert(memory=memory, pooling=pooling, **length, **params)


def steps(n_groups):
    by_name = chosen("mean subtracted", "StandardScaler", "exact", "default", "many")
    if n_groups is not None:
        by_name["n_groups"] = Whitening(power="auto", n_groups=n_groups)
    return by_name


def rows(encode, options):
    gains = {}
    for name in options.only or SETS:
        for pooling in POOLINGS.get(encode.name, ("mean", "cls")):
            for fit, score, k in cells(encode, options, name, pooling):
                values = {"raw": score(FunctionTransformer())}
                maps = {step: map_.fit(fit) for step, map_ in steps(k).items()}
                few = np.random.default_rng(0).permutation(len(fit))[:100]
                maps["100 texts"] = Whitening(power="auto").fit(fit[few])
                values |= {step: score(map_) - values["raw"] for step, map_ in maps.items()}
                for step, value in values.items():
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
    depths = DEPTHS[encode.name]
    if pooling.startswith("last"):
        depths = depths[1:]  # 0 is one word's embedding
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
    n = 400 if name == "intents" else TEXTS
    fit_on, texts, codes = texts_of(name, n, n)
    return fit_on, texts, lambda vectors: grouped(vectors, codes), codes.max() + 1


def texts_of(name, n_fitted=TEXTS, n_scored=TEXTS):
    """Texts to fit on, texts to score, and the groups of these, each of two or more."""
    texts, labels = labeled(name, "test", n_scored)
    codes = codes_of(labels)
    kept = np.bincount(codes)[codes] > 1
    return labeled(name, "train", n_fitted)[0], texts[kept], codes_of(labels[kept])


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
