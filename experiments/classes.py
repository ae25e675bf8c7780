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
from data import FITTED, labeled
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
        self.row, self.vectors = {text: i for i, text in enumerate(texts)}, encode(texts)
        self.encoder = TextEncoder(self.encode)
        self.weights = np.ones(len(self.labels))
        if name in SKEWED:  # whose accuracy counts as much as their balanced one
            codes, counts = np.unique(self.labels, return_inverse=True, return_counts=True)[1:]
            self.weights = (1 + len(codes) / (len(counts) * counts)[codes]) / 2

    def encode(self, texts):
        return self.vectors[[self.row[text] for text in texts]]

    def hits(self, predicted):
        """Whether predictions are right, with weights whose mean is the accuracy."""
        return self.weights * (np.asarray(predicted) == self.labels)

    def drawn(self, n, seed):
        """Rows of n labeled texts of each class."""
        order = np.random.default_rng(seed).permutation(len(self.pool))
        of_class = (order[self.pool_labels[order] == c][:n] for c in self.classes)
        return np.concatenate([*of_class])

    def ours(self, pool, known=(), names=None, **params):
        y = np.full(len(pool), None, object)
        y[[*known]] = self.pool_labels[[*known]]
        names = dict(zip(self.classes, self.names if names is None else names, strict=False))
        model = ZeroShotClassifier(self.encoder, names or None, **params)
        return model.fit(list(pool), y if len(known) else None).predict(list(self.new))


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


# Texts of no class.


def with_rejections(encode, pool, y):
    model = ZeroShotClassifier(TextEncoder(encode), rejection_rate=RATE).fit(list(pool), y)
    return lambda texts: model.predict(list(texts))


def by_probability(encode, pool, y):
    known = np.array([label is not None for label in y])
    vectors = unit(encode(pool))
    model = LogisticRegression(C=10, max_iter=2000).fit(vectors[known], list(y[known]))
    limit = np.quantile(model.predict_proba(vectors[~known]).max(axis=1), RATE)

    def predict(texts):
        vectors = unit(encode(texts))
        is_other = model.predict_proba(vectors).max(axis=1) < limit
        return np.where(is_other, "other", model.predict(vectors))

    return predict


def nearest_mean(encode, pool, y):
    known = np.array([label is not None for label in y])
    vectors, labels = unit(encode(pool)), y[known].astype(str)
    classes = np.unique(labels)
    means = unit(np.array([vectors[known][labels == c].mean(axis=0) for c in classes]))
    limit = np.quantile((vectors[~known] @ means.T).max(axis=1), RATE)

    def predict(texts):
        cosines = unit(encode(texts)) @ means.T
        return np.where(cosines.max(axis=1) < limit, "other", classes[cosines.argmax(axis=1)])

    return predict


def nearest_stored(encode, pool, y):
    """Reject texts whose nearest stored text is farther than that of most stored ones."""
    stored = unit(encode(pool))
    second = np.sort(stored @ stored.T, axis=1)[:, -2]  # the first is the text itself
    limit = np.quantile(second, RATE)

    def predict(texts):
        return np.where((unit(encode(texts)) @ stored.T).max(axis=1) < limit, "other", "known")

    return predict


REJECTING = {
    "nearest mean": nearest_mean,
    "logistic regression": by_probability,
    "nearest stored text": nearest_stored,
    OURS: with_rejections,
}


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
    pool, of_pool, usual, odd = kinds_of(name)
    for seed in range(DRAWS):
        order = np.random.default_rng(seed).permutation(len(pool))
        drawn = np.concatenate(
            [order[of_pool[order] == c][:LABELS] for c in np.unique(of_pool)]
        )
        y = np.full(len(pool), None, object)
        y[drawn] = of_pool[drawn]
        for step, fitted in REJECTING.items():
            predict = fitted(encode, pool, y)
            rejected = {kind: predict(of_kind) == "other" for kind, of_kind in odd.items()}
            yield step, predict(usual) != "other", rejected
