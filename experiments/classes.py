"""Classes from their names and from a few labels: accuracy on new texts, and times.

Up to 4,000 training texts are the pool without labels, and up to 3,000 test texts are scored.
The 20 biomedical topics have no names. Where classes are skewed, accuracy stands for the mean
of accuracy and balanced accuracy. Names are encoded as the classifier reads them.

"names" is the nearest name, raw or after a step fitted on the pool, with the mean of the names
moved to that of the texts for all steps but the first. "small" are pools of 80 to 770 texts, in
which the classes have sizes as 1, 1/2, 1/3, ...: the difference to raw names, mean and worst of
four sizes. "n labels" are means of three draws of n labeled texts a class. "with names" counts
names, with their mean moved, as further labeled texts. "seconds" is the time of a fit, texts
encoded before.
"""

import time

import numpy as np
from contenders import some
from data import FITTED, SETS, labeled
from measures import unit
from sklearn.base import clone
from sklearn.linear_model import LogisticRegression
from sklearn.neighbors import NearestCentroid
from sklearn.preprocessing import FunctionTransformer
from sklearn.semi_supervised import LabelSpreading, SelfTrainingClassifier

from skcalib import TextEncoder, ZeroShotClassifier

SKEWED = "intents", "spam", "emotions"
SMALL = 80, 160, 380, 770
LABELS, DRAWS = (3, 8), 3


def rows(encode, options):
    for name in options.only or SETS:
        bench, named = Bench(encode, name), name != "biomedical"
        parts = [bench.of_labels(n, named) for n in LABELS]
        if named:
            parts = [bench.of_names(), *parts]
        for part in parts:
            for score, step, value in part:
                yield {"set": name, "score": score, "step": step, "value": f"{value:.1f}"}


class Bench:
    """One set of texts with vectors, kept in memory."""

    def __init__(self, encode, name):
        self.pool, self.pool_labels = labeled(name, "train", FITTED)
        self.new, self.labels = labeled(name, "test", 3000)
        self.classes = np.unique(self.pool_labels)
        self.names = [label.replace("_", " ").replace("-", " ") for label in self.classes]
        self.is_skewed = name in SKEWED
        texts = list(dict.fromkeys([*self.pool, *self.new, *self.names]))
        self.row, self.vectors = {text: i for i, text in enumerate(texts)}, encode(texts)
        self.encoder = TextEncoder(self.encode)

    def encode(self, texts):
        return self.vectors[[self.row[text] for text in texts]]

    def accuracy(self, predicted):
        right = np.asarray(predicted) == self.labels
        if not self.is_skewed:
            return 100 * right.mean()
        balanced = np.mean([right[self.labels == c].mean() for c in np.unique(self.labels)])
        return 50 * (right.mean() + balanced)

    def nearest(self, step, moves=True):
        """Accuracy of the nearest name after a step fitted on the pool."""
        pool, anchors = self.encode(self.pool), self.encode(self.names)
        step = clone(step).fit(pool)
        if moves:
            anchors = anchors - anchors.mean(axis=0) + pool.mean(axis=0)
        new = step.transform(self.encode(self.new))
        cosines = unit(new) @ unit(step.transform(anchors)).T
        return self.accuracy(self.classes[cosines.argmax(axis=1)])

    def ours(self, pool, y=None, named=True):
        model = ZeroShotClassifier(self.encoder, [*self.classes] if named else None)
        start = time.perf_counter()
        model.fit(list(pool), y)
        seconds = time.perf_counter() - start
        return self.accuracy(model.predict(list(self.new))), seconds

    def of_names(self):
        raw = self.nearest(FunctionTransformer(), moves=False)
        yield "names", "raw", raw
        known = some(("centered", "PCA(128)", "PCA(groups)"), len(self.classes))
        names = "mean subtracted", "PCA(128)", "PCA(number of classes)"
        for name, step in zip(names, known.values(), strict=True):
            yield "names", name, self.nearest(step)
        accuracy, seconds = self.ours(self.pool)
        yield "names", "ours", accuracy
        yield "seconds", "ours", seconds
        gains, share = [], 1 / np.arange(1, len(self.classes) + 1)
        for seed, n in enumerate(SMALL):
            rng = np.random.default_rng(seed)
            wanted = np.ceil(n * rng.permutation(share) / share.sum()).astype(int)
            order = rng.permutation(len(self.pool))
            of_class = (order[self.pool_labels[order] == c] for c in self.classes)
            rows = np.concatenate([r[:k] for r, k in zip(of_class, wanted, strict=True)])
            gains.append(self.ours(self.pool[rows])[0] - raw)
        yield "small, mean gain", "ours", np.mean(gains)
        yield "small, worst gain", "ours", np.min(gains)

    def of_labels(self, n, named):
        found = {}
        for seed in range(DRAWS):
            order = np.random.default_rng(seed).permutation(len(self.pool))
            known = [order[self.pool_labels[order] == c][:n] for c in self.classes]
            for name, value in self.one_draw(np.concatenate(known), named):
                found.setdefault(name, []).append(value)
        for name, values in found.items():
            yield f"{n} labels", name, np.mean(values)

    def one_draw(self, rows, named):
        y = np.full(len(self.pool), None, object)
        y[rows] = labels = self.pool_labels[rows]
        if named:
            yield "ours, with names", self.ours(self.pool, y)[0]
        yield "ours, without names", self.ours(self.pool, y, named=False)[0]
        pool, new = unit(self.encode(self.pool)), unit(self.encode(self.new))
        for name, step in some(("raw", "PCA(128)")).items():
            fitted = step.fit(pool)
            means = NearestCentroid().fit(unit(fitted.transform(pool[rows])), labels)
            predicted = means.predict(unit(fitted.transform(new)))
            yield f"nearest mean, {name}", self.accuracy(predicted)
        logistic = LogisticRegression(C=10, max_iter=2000).fit(pool[rows], labels)
        yield "logistic regression, raw", self.accuracy(logistic.predict(new))
        if named:
            names = self.encode(self.names)
            X = np.vstack([pool[rows], names - names.mean(axis=0) + pool.mean(axis=0)])
            both = LogisticRegression(C=10, max_iter=2000).fit(X, [*labels, *self.classes])
            yield "logistic regression, with names", self.accuracy(both.predict(new))
        codes = np.full(len(pool), -1)
        codes[rows] = np.searchsorted(self.classes, labels)
        peers = {
            "LabelSpreading, raw": LabelSpreading(kernel="knn", n_neighbors=10, max_iter=100),
            "SelfTrainingClassifier, raw": SelfTrainingClassifier(logistic),
        }
        for name, peer in peers.items():
            yield name, self.accuracy(self.classes[peer.fit(pool, codes).predict(new)])
