"""When `NeighborSmoothing` helps: several right answers, and groups that the fit has seen.

Searches are scored by nDCG@10 after a fit on the documents. On STS-B a query has one right
answer, the second sentence of its pair, with a grade of 4.5 or more; on Cranfield, several.

Groups are scored by R-precision within so many test texts of each of half the classes, after a
fit on as many training texts of each class, of the same half or of the other.
"""

from itertools import product

import numpy as np
from comparison import of_queries
from contenders import some
from data import cranfield, labeled, pairs
from measures import ndcg, r_precision, unit

STEPS = some(("raw", "centered", "PCA(30)", "whitened", "smoothed"))


def rows(encode, options):
    for kind, documents, queries, grades in searches():
        D, Q, found = encode(documents, documents=True), encode(queries), {}
        for step, map_ in STEPS.items():
            of_document, of_query = of_queries(map_, D, Q)
            similarity = unit(of_query.transform(Q)) @ unit(of_document.transform(D)).T
            found[step] = f"{100 * ndcg(similarity, grades).mean():.1f}"
        yield {"task": f"search, {kind}"} | found
    for name, size, kind in product(("Banking77", "biomedical"), (7, 40), ("same", "other")):
        train, test = (labeled(name, half) for half in ("train", "test"))
        classes = np.random.default_rng(0).permutation(np.unique(test[1]))
        scored, others = np.array_split(classes, 2)
        X = encode(sample(*train, scored if kind == "same" else others, size)[0])
        texts, labels = sample(*test, scored, size)
        T, found = encode(texts), {}
        for step, map_ in STEPS.items():
            found[step] = f"{r_precision(map_.fit(X).transform(T), labels):.1f}"
        yield {"task": f"{name}, {size} texts, fitted on {kind} groups"} | found


def searches():
    splits = (pairs("stsb", split) for split in ("dev", "test"))
    both, grades = map(np.concatenate, zip(*splits, strict=True))
    documents = np.unique(both[:, 1])
    asked = both[(grades >= 4.5) & ~np.isin(both[:, 0], documents)]
    yield "one right answer", documents, asked[:, 0], (asked[:, 1:] == documents).astype(float)
    yield "several right answers", *cranfield()


def sample(texts, labels, classes, size):
    order = np.random.default_rng(0).permutation(len(texts))
    rows = np.concatenate([order[labels[order] == c][:size] for c in classes])
    return texts[rows], labels[rows]
