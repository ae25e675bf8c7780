"""What is neutral: gains over vectors as shipped on last layers, inner layers and their [CLS].

Last layers are fitted on up to 2,000 and on 200 training texts of each labeled set, among them
a skewed one and pairs of topics, and on texts of lists to match, of a search and of graded
pairs in four languages. Inner layers are those at a quarter, a half and three quarters of the
depth, fitted on 500 texts. A gain is that of R-precision (of texts that have others of their
group), of the mean reciprocal rank of both sides of a match, of nDCG@10 of the search, or of
Spearman's rho; "by class" averages R-precision over classes. "below" is the share of cells
below -1.2, in percent. "power 1" is ``Whitening(power=1, noise="auto")``.
"""

from itertools import combinations

import numpy as np
from contenders import some
from data import MATCHES, SETS, cranfield, labelled, match, pairs, sentences, side
from measures import by_class, codes_of, ndcg, of_pairs, precisions, reciprocal_ranks, unit
from sklearn.preprocessing import FunctionTransformer

from skcalib import Whitening

DEPTHS = {"minilm": 6, "e5": 12, "mpnet": 12}
STEPS = "centered", "PCA(128)", "PCA(groups)", "whitened", "told"
POWERS = 1.0, 0.5, 0.35, 0.2, 0.1
SHARES = 1.0, 0.9, 0.7, 0.6
MOST, FEW, INNER, SCORED = 2000, 200, 500, 1600
LITTLE = -1.2


def rows(encode, options):
    gains = {}
    for kind, name, fit, score, k in cells(encode, options.only):
        raw = score(FunctionTransformer())
        contenders = some(STEPS, k)
        contenders |= {f"power {p:g}": Whitening(power=p, noise="auto") for p in POWERS}
        contenders |= {f"centering {c:g}": Whitening(power=0, centering=c) for c in SHARES}
        for step, map_ in contenders.items():
            gained = score(map_.fit(fit)) - raw
            gains.setdefault((kind, step), []).append((name, *gained))
    for (kind, step), found in gains.items():
        names, gained, of_classes = zip(*found, strict=True)
        row = {"vectors": kind, "step": step, "cells": len(names)}
        row |= {"mean": f"{np.mean(gained):+z.1f}", "worst": f"{np.min(gained):+z.1f}"}
        row["below"] = f"{100 * np.mean(np.less(gained, LITTLE)):.0f}"
        for column, value in (("mean", np.nanmean), ("worst", np.nanmin)):
            row[f"{column} by class"] = f"{value(of_classes):+z.1f}"
        for name in dict.fromkeys(names):
            of_set = [gain for n, gain in zip(names, gained, strict=True) if n == name]
            row[name] = f"{np.mean(of_set):+z.1f}"
        yield row


def cells(encode, only):
    """Yield kind, name, vectors to fit on, a function from a map to gains, number of groups."""
    last = DEPTHS[encode.name]
    yield from last_layer(encode, only)
    inner = last // 4, last // 2, 3 * last // 4
    for kind, pooling in (("means of inner layers", "mean"), ("[CLS] of inner layers", "cls")):
        kept = {"pooling": pooling, "layers": inner, "layer_merge": "concat", "memory": None}

        def by_layer(texts, kept=kept):
            return np.split(encode(texts, **kept), len(inner), axis=1)

        for name in only or [*SETS, "STS-B"]:
            if name == "Banking77":
                continue  # so few texts have no others of their intent
            if name == "STS-B":
                both, grades = pairs("stsb")
                sides = zip(*map(by_layer, both.T), strict=True)
                for fit, (A, B) in zip(by_layer(sentences(INNER)), sides, strict=True):
                    yield kind, name, fit, graded(A, B, grades), None
                continue
            texts, labels = labelled(name, "test", 4 * INNER // 5)
            fits = by_layer(labelled(name, "train", INNER)[0])
            for fit, vectors in zip(fits, by_layer(texts), strict=True):
                yield kind, name, fit, grouped(vectors, labels), len(np.unique(labels))


def last_layer(encode, only):
    for name in only or [*SETS, "flights"]:
        if name == "flights":
            found = side("flights-vi")
            fit, texts, labels = found["fit"], found["texts"], np.array(found["labels"])
            of_fit = np.array(found["fit_labels"])
        else:
            fit, of_fit = labelled(name, "train", MOST)
            texts, labels = labelled(name, "test", SCORED)
        A, B, k = encode(fit), encode(texts), len(np.unique(labels))
        yield "last layer", name, A, grouped(B, labels), k
        yield "last layer", f"{name}, few", A[:FEW], grouped(B, labels), k
        if name == "news":
            for pair in combinations(np.unique(labels), 2):
                part, kept = np.isin(of_fit, pair), np.isin(labels, pair)
                score = grouped(B[kept], labels[kept])
                yield "last layer", "two of the news", A[part], score, 2
    if only:
        return
    for name in MATCHES:
        found, are_documents = match(name), name in ("questions-code", "passages")
        fit, sides = (
            [encode(first), encode(second, documents=are_documents)]
            for first, second in (found.fit, found.sides)
        )
        yield "last layer", name, np.vstack(fit), matched(*sides, found.belong), None
    documents, queries, grades = cranfield()
    D, Q = encode(documents, documents=True), encode(queries)
    yield "last layer", "Cranfield", np.vstack([D, Q]), ranked(Q, D, grades), None
    both, grades = pairs("stsb")
    A, B = map(encode, both.T)
    fit = encode(sentences(MOST))
    yield "last layer", "STS-B", fit, graded(A, B, grades), None
    yield "last layer", "STS-B, few", fit[:FEW], graded(A, B, grades), None
    for language in ("de", "es", "fr"):
        both, grades = pairs(f"stsb-{language}")
        fit = encode(pairs(f"stsb-{language}", "dev")[0].ravel()[:MOST])
        yield (
            "last layer",
            f"STS-B, {language}",
            fit,
            graded(*map(encode, both.T), grades),
            None,
        )


def grouped(vectors, labels):
    codes = codes_of(labels)
    has_others = np.bincount(codes)[codes] > 1
    vectors, codes = vectors[has_others], codes[has_others]
    same = codes[:, None] == codes

    def score(step):
        units = unit(step.transform(vectors))
        found = 100 * precisions(units @ units.T, same)
        return np.array([found.mean(), by_class(found, codes)])

    return score


def matched(A, B, belong):
    def score(step):
        similarity = unit(step.transform(A)) @ unit(step.transform(B)).T
        return np.array([reciprocal_ranks(similarity, belong), np.nan])

    return score


def ranked(Q, D, grades):
    def score(step):
        similarity = unit(step.transform(Q)) @ unit(step.transform(D)).T
        return np.array([100 * ndcg(similarity, grades).mean(), np.nan])

    return score


def graded(A, B, grades):
    return lambda step: np.array(
        [of_pairs(step.transform(A), step.transform(B), grades), np.nan]
    )
