"""Classes by names and labels, by lines of scikit-learn and by `ZeroShotClassifier`.

Up to 4,000 training texts are the pool without labels, and up to 3,000 test texts are scored.
Where classes are skewed, accuracy stands for the mean of accuracy and balanced accuracy. Names
are encoded as the classifier reads them.

`rejections` has the texts of three quarters of the classes, of which eight labels each and up
to 2,000 texts without labels are known, and odd texts: of another domain, and of the last
quarter of the classes. 5 % of the good texts may be rejected. For the peers the limit is the
quantile at 5 % of the greatest probability, or cosine, of the texts without labels.
"""

import numpy as np
from contenders import OURS, Near, pca
from data import FITTED, drawn, labeled, lookup
from measures import unit
from sklearn.cluster import KMeans
from sklearn.linear_model import LogisticRegression
from sklearn.preprocessing import FunctionTransformer
from sklearn.semi_supervised import LabelSpreading

from skcalib import TextEncoder, ZeroShotClassifier

SKEWED = "intents", "spam", "emotions"
ODD = {  # sets with classes that are left out, and the set that other texts come from
    "Banking77": "news",
    "biomedical": "intents",
    "news": "biomedical",
    "intents": "emotions",
}
POOL, SCORED, LABELS, DRAWS, RATE = 2000, 1000, 8, 4, 0.05
EVERY = 10**9  # texts, in random order


class Bench:
    """One set of texts with vectors, kept in memory; predictions are of its new texts."""

    def __init__(self, encode, name):
        self.pool, self.pool_labels = labeled(name, "train", FITTED)
        self.new, self.labels = labeled(name, "test", 3000)
        self.classes = np.unique(self.pool_labels)
        self.names = [label.replace("_", " ").replace("-", " ") for label in self.classes]
        texts = list(dict.fromkeys([*self.pool, *self.new, *self.names]))
        self.encode = lookup(texts, encode(texts))
        self.weights = np.ones(len(self.labels))
        if name in SKEWED:  # whose accuracy counts as much as their balanced one
            codes, counts = np.unique(self.labels, return_inverse=True, return_counts=True)[1:]
            self.weights = (1 + len(codes) / (len(counts) * counts)[codes]) / 2

    def hits(self, predicted):
        """Whether predictions are right, with weights whose mean is the accuracy."""
        return self.weights * (np.asarray(predicted) == self.labels)

    def ours(self, known, are_named):
        y = with_labels(self.pool_labels, known) if len(known) else None
        names = dict(zip(self.classes, self.names, strict=True)) if are_named else None
        model = ZeroShotClassifier(TextEncoder(self.encode), names)
        return model.fit(list(self.pool), y).predict(list(self.new))


def with_labels(labels, known):
    """Labels of the known rows, and None."""
    y = np.full(len(labels), None, object)
    y[known] = labels[known]
    return y


def by_lines(bench, known, are_named):
    """Predict the new texts by labeled ones of the pool, by names of classes, or both."""
    pool, new = unit(bench.encode(bench.pool)), unit(bench.encode(bench.new))
    X, y = pool[known], bench.pool_labels[known]
    predicted, k = {}, len(bench.classes)
    if are_named:
        names = unit(bench.encode(bench.names))
        if not len(known):
            predicted["raw"] = bench.classes[(new @ names.T).argmax(axis=1)]
        X = np.vstack([X, names - names.mean(axis=0) + pool.mean(axis=0)])
        y = np.concatenate([y, bench.classes])
    logistic = LogisticRegression(C=10, max_iter=2000)
    for step, model in {
        "": FunctionTransformer(),
        "PCA(classes), ": pca(k),
        "near, ": Near(),
    }.items():
        model.fit(pool)
        P, N, A = (unit(model.transform(of)) for of in (pool, new, X))
        means = unit([A[y == c].mean(axis=0) for c in bench.classes])
        predicted[f"{step}nearest mean"] = bench.classes[(N @ means.T).argmax(axis=1)]
        if "PCA" not in step:
            predicted[f"{step}logistic regression"] = logistic.fit(A, y).predict(N)
        if step == "":
            moved = KMeans(k, init=means, n_init=1).fit(P).predict(N)
            predicted["KMeans from the means"] = bench.classes[moved]
    codes = np.r_[np.full(len(pool), -1), np.searchsorted(bench.classes, y)]
    spreading = LabelSpreading(kernel="knn", n_neighbors=10, max_iter=100)
    spread = spreading.fit(np.vstack([pool, X]), codes).predict(new)
    return predicted | {"LabelSpreading": bench.classes[spread]}


def kinds_of(name):
    """Return a pool and its labels, usual texts, and odd texts of two kinds."""
    texts, labels = labeled(name, "train", EVERY)
    new, of_new = labeled(name, "test", EVERY)
    classes = np.unique(labels)
    left_out = classes[-(len(classes) // 4) :]
    is_odd = np.isin(of_new, left_out)
    pool = ~np.isin(labels, left_out)
    odd = {
        "other set": labeled(ODD[name], "test", SCORED)[0],
        "left out": new[is_odd][:SCORED],
    }
    return texts[pool][:POOL], labels[pool][:POOL].astype(str), new[~is_odd][:SCORED], odd


def rejections(encode, name):
    """Yield step, which usual texts are kept, and which odd ones of two kinds rejected."""
    pool, labels, usual, odd = kinds_of(name)
    kinds = {"usual": usual} | odd
    units, new = unit(encode(pool)), {kind: unit(encode(of)) for kind, of in kinds.items()}
    second = np.sort(units @ units.T, axis=1)[:, -2]  # the first is the text itself
    for seed in range(DRAWS):
        known = np.sort(drawn(labels, LABELS, seed))
        X, y, others = units[known], labels[known], np.delete(units, known, axis=0)
        means = unit([X[y == c].mean(axis=0) for c in np.unique(y)])
        logistic = LogisticRegression(C=10, max_iter=2000).fit(X, y)
        scores = {
            "nearest mean": lambda Z, of=means: (Z @ of.T).max(axis=1),
            "logistic regression": lambda Z, of=logistic: of.predict_proba(Z).max(axis=1),
            "nearest stored text": lambda Z: (Z @ units.T).max(axis=1),
        }
        kept = {}
        for step, score in scores.items():
            usually = second if step == "nearest stored text" else score(others)
            limit = np.quantile(usually, RATE)
            kept[step] = {kind: score(Z) >= limit for kind, Z in new.items()}
        ours = ZeroShotClassifier(TextEncoder(encode), rejection_rate=RATE)
        ours.fit(list(pool), with_labels(labels, known))
        kept[OURS] = {kind: ours.predict(list(of)) != "other" for kind, of in kinds.items()}
        for step, of_kinds in kept.items():
            yield step, of_kinds["usual"], {kind: ~of_kinds[kind] for kind in odd}
