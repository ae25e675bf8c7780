"""Thresholds that move from MiniLM to e5: hit rates before and after.

Half of the test texts are stored, the others are the queries. A hit is a query whose best
stored text reaches the threshold. "before" is the share of hits with MiniLM, "kept" with the
same number on e5, "per pair" and "per query" with `equivalent`; "right" are the hits of the
same class, in percent of all queries. The whitening is fitted on the stored texts.
"""

import numpy as np
from data import labeled, pairs
from measures import unit

from skcalib import SimilarityScale, Whitening

SETS = "Banking77", "biomedical", "STS-B"


def texts_of(name):
    """Distinct test texts and their classes; sentences of STS have none."""
    if name == "STS-B":
        return np.unique(pairs("stsb")[0].ravel()), None
    texts, labels = labeled(name, "test")
    first = np.unique(texts.astype(str), return_index=True)[1]
    return texts[first], labels[first]


def rows(encode, options):
    for name in options.only or SETS:
        texts, classes = texts_of(name)
        stored = np.random.default_rng(0).permutation(len(texts)) < len(texts) // 2
        vectors = [encode.named(key)(texts) for key in ("minilm", "e5")]
        for step in ("raw", "calibrated"):
            scales, found = [], []
            for X in vectors:
                Z = X if step == "raw" else Whitening(noise="auto").fit(X[stored]).transform(X)
                scales.append(SimilarityScale().fit(Z[stored]))
                found.append(best(Z, classes, stored))
            for old in (0.6, 0.75):
                asked = {"before": (0, old), "kept": (1, old)}
                for per in ("pair", "query"):
                    asked[f"per {per}"] = 1, scales[1].equivalent(old, scales[0], per=per)
                row = {"data": name, "vectors": step, "threshold": old}
                for column, (encoder, threshold) in asked.items():
                    cosines, same = found[encoder]
                    hits = cosines >= threshold
                    row[f"{column}: threshold"] = f"{threshold:.2f}"
                    row[f"{column}: hits"] = f"{100 * hits.mean():.0f}"
                    if same is not None:
                        row[f"{column}: right"] = f"{100 * (hits & same).mean():.0f}"
                yield row


def best(Z, classes, stored):
    """Best cosine of each query among the stored texts, and whether it has the same class."""
    cosines = unit(Z)[~stored] @ unit(Z)[stored].T
    nearest = cosines.argmax(axis=1)
    same = None if classes is None else classes[stored][nearest] == classes[~stored]
    return cosines.max(axis=1), same
