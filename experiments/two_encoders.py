"""Vectors of several encoders side by side, raw, calibrated and smoothed, against each alone.

"words" is TF-IDF, reduced to 128 dimensions by a truncated SVD, an encoder that every machine
has. Each fit takes 2,000 training texts and is scored on 2,000 test texts, or takes Cranfield's
documents and queries. "raw" scales each encoder's vectors to unit length, "calibrated" whitens
them first, and "smoothed" adds `NeighborSmoothing` behind the union. "half" is a weight of 0.5.

A row of several encoders has the gain over the best of them alone at the same step, and its
95 % interval by a paired bootstrap over texts or queries.
"""

import numpy as np
from data import cranfield, labeled
from measures import codes_of, intervals, ndcg, precisions, resampled, unit
from sklearn.decomposition import TruncatedSVD
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.pipeline import make_pipeline

from skcalib import GroupErasure, NeighborSmoothing, Whitening

SETS = "Banking77", "biomedical", "news"
STEPS = "raw", "calibrated", "smoothed"
TOGETHER = {  # weights of the encoders
    "MiniLM": {"MiniLM": 1},
    "e5": {"e5": 1},
    "words": {"words": 1},
    "MiniLM + e5": {"MiniLM": 1, "e5": 1},
    "MiniLM + half e5": {"MiniLM": 1, "e5": 0.5},
    "MiniLM + words": {"MiniLM": 1, "words": 1},
    "MiniLM + half words": {"MiniLM": 1, "words": 0.5},
}


def rows(encode, options):
    for data in options.only or (*SETS, "Cranfield"):
        found = search(encode) if data == "Cranfield" else of_set(encode, data, options.most)
        yield from compared(data, found)


def vectors_of(encode, fit_on, texts, documents=False):
    """Vectors of texts to fit on and of others, by encoder."""
    words = make_pipeline(TfidfVectorizer(sublinear_tf=True), TruncatedSVD(128, random_state=0))
    yield "words", words.fit_transform(fit_on), words.transform(texts)
    for name, key in (("MiniLM", "minilm"), ("e5", "e5")):
        one = encode.named(key)
        yield name, one(fit_on, documents), one(texts)


def together(blocks):
    """Yield names of unions, and their vectors to fit on and to score."""
    for name, weights in TOGETHER.items():
        sides = ([w * unit(blocks[key][k]) for key, w in weights.items()] for k in (0, 1))
        yield name, *map(np.hstack, sides)


def of_set(encode, data, most):
    """Yield a score, a step, a key of `TOGETHER`, and the score of each text."""
    fit_on, (texts, labels) = (
        labeled(data, "train", 2000)[0],
        labeled(data, "test", most or 2000),
    )
    codes = codes_of(labels)
    same = codes[:, None] == codes
    raw = {name: both for name, *both in vectors_of(encode, fit_on, texts)}
    maps = {name: Whitening(noise="auto").fit(X) for name, (X, _) in raw.items()}
    whitened = {name: list(map(maps[name].transform, both)) for name, both in raw.items()}
    for step in STEPS:
        for name, X, T in together(raw if step == "raw" else whitened):
            units = unit(NeighborSmoothing().fit(X).transform(T) if step == "smoothed" else T)
            yield "R-precision", step, name, precisions(units @ units.T, same)


def search(encode):
    """Like `of_set`, for documents and queries, whose means a `GroupErasure` equals."""
    documents, queries, grades = cranfield()
    groups = np.repeat(["document", "query"], [len(documents), len(queries)])
    raw = {name: both for name, *both in vectors_of(encode, documents, queries, True)}
    whitened = {}
    for name, both in raw.items():
        vectors = GroupErasure().fit(np.vstack(both), groups=groups).transform(np.vstack(both))
        vectors = Whitening(noise="auto").fit_transform(vectors)
        whitened[name] = vectors[: len(documents)], vectors[len(documents) :]
    for step in STEPS:
        for name, D, Q in together(raw if step == "raw" else whitened):
            if step == "smoothed":
                smoothing = NeighborSmoothing().fit(D)
                D, Q = smoothing.transform(D), smoothing.transform(Q)
            yield "nDCG@10", step, name, ndcg(unit(Q) @ unit(D).T, grades)


def compared(data, measured):
    """Yield the rows of a set; a union has its gain over the best of its encoders alone."""
    known = {}
    for score, step, name, of_each in measured:
        known[score, step, name] = of_each
        best = max((known[score, step, key] for key in TOGETHER[name]), key=np.mean)
        row = {"data": data, "score": score, "step": step, "encoders": name}
        row["value"] = f"{100 * of_each.mean():.1f}"
        if len(TOGETHER[name]) > 1:
            row["gain"] = f"{100 * (of_each.mean() - best.mean()):+.1f}"
            drawn = [[x[i].mean() for x in (best, of_each)] for i in resampled(len(best))]
            low, high = intervals(np.transpose(drawn))[1]
            row |= {"low": f"{100 * low:+.1f}", "high": f"{100 * high:+.1f}"}
        yield row
