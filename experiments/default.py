"""Does the default lose anywhere? Gains over vectors as shipped, on last layers.

Up to 2,000 training texts are fitted and 1,600 test texts scored of each labeled set, among
them a skewed one and pairs of topics, and of lists to match, of a search, and of graded pairs
in four languages. "few" are fits on 200 texts. A gain is that of R-precision (of texts that
have others of their group), of the mean reciprocal rank of both sides of a match, of nDCG@10 of
the search, or of Spearman's rho; "by class" averages R-precision over classes. "below" is the
share of cells below -1.2, in percent. "centering" is ``Whitening(power=0, centering=...)``.
"""

from itertools import combinations

import numpy as np
from contenders import some
from data import MATCHES, SETS, cranfield, labeled, match, pairs, sentences, side
from measures import by_class, codes_of, ndcg, of_pairs, precisions, reciprocal_ranks, unit
from sklearn.preprocessing import FunctionTransformer

from skcalib import Whitening

STEPS = "centered", "PCA(128)", "PCA(groups)", "whitened", "n_groups"
SHARES = 0.9, 0.7, 0.5
MOST, FEW, SCORED = 2000, 200, 1600
LITTLE = -1.2


def rows(encode, options):
    gains = {}
    for name, fit, score, k in cells(encode, options):
        raw = score(FunctionTransformer())
        contenders = some(STEPS, k)
        contenders |= {f"centering {c:g}": Whitening(power=0, centering=c) for c in SHARES}
        for step, map_ in contenders.items():
            gains.setdefault(step, []).append((name, *(score(map_.fit(fit)) - raw)))
    for step, found in gains.items():
        names, gained, of_classes = zip(*found, strict=True)
        row = {"step": step, "cells": len(names)}
        row |= {"mean": f"{np.mean(gained):+z.1f}", "worst": f"{np.min(gained):+z.1f}"}
        row["below"] = f"{100 * np.mean(np.less(gained, LITTLE)):.0f}"
        for column, value in (("mean", np.nanmean), ("worst", np.nanmin)):
            row[f"{column} by class"] = f"{value(of_classes):+z.1f}"
        for name in dict.fromkeys(names):
            of_set = [gain for n, gain in zip(names, gained, strict=True) if n == name]
            row[name] = f"{np.mean(of_set):+z.1f}"
        yield row


def cells(encode, options):
    """Yield a name, vectors to fit on, a function from a map to scores, a number of groups."""
    most, scored = options.most or MOST, options.most or SCORED
    for name in options.only or [*SETS, "flights"]:
        if name == "flights":
            found = side("flights-vi")
            fit, texts, labels = found["fit"], found["texts"], np.array(found["labels"])
        else:
            fit, of_fit = labeled(name, "train", most)
            texts, labels = labeled(name, "test", scored)
        A, B, k = encode(fit), encode(texts), len(np.unique(labels))
        yield name, A, grouped(B, labels), k
        yield f"{name}, few", A[:FEW], grouped(B, labels), k
        for pair in combinations(np.unique(labels), 2) if name == "news" else ():
            part, kept = np.isin(of_fit, pair), np.isin(labels, pair)
            yield "two of the news", A[part], grouped(B[kept], labels[kept]), 2
    if options.only:
        return
    for name in MATCHES:
        found, are_documents = match(name), name in ("questions-code", "passages")
        fit, sides = (
            [encode(first), encode(second, documents=are_documents)]
            for first, second in (found.fit, found.sides)
        )
        yield name, np.vstack(fit), matched(*sides, found.belong), None
    documents, queries, grades = cranfield()
    D, Q = encode(documents, documents=True), encode(queries)
    yield "Cranfield", np.vstack([D, Q]), ranked(Q, D, grades), None
    both, grades = pairs("stsb")
    A, B = map(encode, both.T)
    fit = encode(sentences(MOST))
    yield "STS-B", fit, graded(A, B, grades), None
    yield "STS-B, few", fit[:FEW], graded(A, B, grades), None
    for language in ("de", "es", "fr"):
        both, grades = pairs(f"stsb-{language}")
        fit = encode(pairs(f"stsb-{language}", "dev")[0].ravel()[:MOST])
        sides = map(encode, both.T)
        yield f"STS-B, {language}", fit, graded(*sides, grades), None


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
