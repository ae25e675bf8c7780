"""What is neutral on vectors that were not trained for similarity: gains over raw.

Cells are layers of a model under poolings: of SmolLM2, a raw language model, seven depths of 30
blocks, and of the trained encoders inner layers. Training texts are fitted and test texts
scored by R-precision of each labeled set; STS-B's test pairs by Spearman's rho after a fit on
their sentences. "n_groups" knows the number of groups; "raw" is the score itself; "100 texts"
is the default after a fit on so many.
"""

import numpy as np
from contenders import chosen
from data import distinct, pairs, texts_of
from measures import correlation, of_groups, of_places, unit
from raw_sts import AROUND, PLAIN

from skcalib import VectorStore, Whitening

SETS = "STS-B", "Banking77", "news", "biomedical", "emotions", "intents"
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
    given = PLAIN | {"normalize": False, "pooling": pooling}
    given = AROUND if pooling == "last, prompt" else given
    if encode.name == "smollm2":
        memory = VectorStore(options.memory / "raw-depths", **KEPT)
    else:
        kept = {"layers": DEPTHS[encode.name], "pooling": ("mean", "cls")}
        memory = VectorStore(options.memory / f"inner-{encode.name}", **kept)
    return encode.bert(memory=memory, **given, **params)


def steps(n_groups):
    by_name = chosen("mean subtracted", "StandardScaler", "exact", "default", "many")
    if n_groups is not None:
        by_name["n_groups"] = Whitening(power="auto", n_groups=n_groups)
    return by_name


def rows(encode, options):
    gains = {}
    for name in options.only or SETS:
        for pooling in POOLINGS.get(encode.name, ("mean", "cls")):
            for X, Z, score, k in cells(encode, options, name, pooling):
                values = {"raw": score(Z)}
                maps = {step: map_.fit(X) for step, map_ in steps(k).items()}
                few = np.random.default_rng(0).permutation(len(X))[:100]
                maps["100 texts"] = Whitening(power="auto").fit(X[few])
                for step, map_ in maps.items():
                    values[step] = score(map_.transform(Z)) - values["raw"]
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
    """Yield vectors to fit on and to score, their score, and the number of groups."""
    depths = DEPTHS[encode.name]
    if pooling.startswith("last"):
        depths = depths[1:]  # 0 is one word's embedding
    encoder = stored(encode, options, pooling, layers=depths, layer_merge="concat").fit([""])
    fit_on, texts, score, n_groups = task(name)
    fitted, scored = (
        np.split(encoder.transform(list(of)), len(depths), axis=1) for of in (fit_on, texts)
    )
    yield from ((X, Z, score, n_groups) for X, Z in zip(fitted, scored, strict=True))


def task(name):
    """Texts to fit on, texts to score, a function from vectors to a score, number of groups."""
    if name == "STS-B":
        both, grades = pairs("stsb")
        texts, places = distinct(both)
        return texts, texts, lambda Z: correlation(grades, of_places(unit(Z), places)), None
    n = 400 if name == "intents" else 500
    fit_on, texts, codes = texts_of(name, n, n)
    return fit_on, texts, lambda Z: 100 * of_groups(Z, codes).mean(), codes.max() + 1
