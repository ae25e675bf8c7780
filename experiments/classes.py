"""Classes from their names and from a few labels: accuracy on new texts.

Up to 4,000 training texts are the pool without labels, and up to 3,000 test texts are scored.
The 20 biomedical topics have no names. Where classes are skewed, accuracy stands for the mean
of accuracy and balanced accuracy. Names are encoded as the classifier reads them.

"names" is the nearest name, raw or after a step fitted on the pool, with the mean of the names
moved to that of the texts for all steps but the first. "small" are pools of 80 to 770 texts, in
which the classes have sizes as 1, 1/2, 1/3, ...: the difference to raw names, mean and worst of
four sizes. "ours, rejection_rate=0.01" scores the texts that get a class. "worst wording" and
"best wording" are those of `WORDINGS`, in place of the labels. "n labels" are means of three
draws of n labeled texts a class. "with names" counts names, with their mean moved, as further
labeled texts.
"""

from itertools import chain

import numpy as np
from contenders import some
from data import FITTED, SETS, labeled
from measures import unit
from sklearn.base import clone
from sklearn.linear_model import LogisticRegression
from sklearn.neighbors import NearestCentroid
from sklearn.semi_supervised import LabelSpreading, SelfTrainingClassifier

from skcalib import TextEncoder, ZeroShotClassifier

SKEWED = "intents", "spam", "emotions"
SMALL = 80, 160, 380, 770
LABELS, DRAWS = (3, 8), 3
WORDINGS = {  # of the classes, in the order of their labels
    "spam": [
        ("chat", "advertisement"),
        ("message from a friend", "message from a company"),
        ("personal message", "unwanted advertising"),
        ("conversation between friends", "prizes, offers and subscriptions"),
        ("normal", "junk"),
    ],
    "emotions": [
        ("I am angry", "I am happy", "I am hopeful", "I am sad"),
        ("rage", "happiness", "hope", "grief"),
        ("an angry tweet", "a joyful tweet", "an optimistic tweet", "a sad tweet"),
        ("annoyed, furious", "glad, delighted", "confident, hopeful", "depressed, in tears"),
        ("furious", "delighted", "hopeful", "depressed"),
    ],
}
NAMED = {"centered": "mean subtracted", "PCA(groups)": "PCA(number of classes)"}


def rows(encode, options):
    for name in options.only or SETS:
        bench, named = Bench(encode, name), name != "biomedical"
        parts = [of_labels(bench, n, named) for n in LABELS]
        for part in [of_names(bench), *parts] if named else parts:
            for score, step, value in part:
                yield {"set": name, "score": score, "step": step, "value": f"{value:.1f}"}


class Bench:
    """One set of texts with vectors, kept in memory; predictions are of its new texts."""

    def __init__(self, encode, name):
        self.pool, self.pool_labels = labeled(name, "train", FITTED)
        self.new, self.labels = labeled(name, "test", 3000)
        self.classes = np.unique(self.pool_labels)
        self.names = [label.replace("_", " ").replace("-", " ") for label in self.classes]
        self.wordings = WORDINGS.get(name, [])
        names = [*self.names, *chain(*self.wordings)]
        texts = list(dict.fromkeys([*self.pool, *self.new, *names]))
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

    def nearest_name(self, step, moves):
        pool, anchors = self.encode(self.pool), self.encode(self.names)
        step = clone(step).fit(pool)
        if moves:
            anchors = anchors - anchors.mean(axis=0) + pool.mean(axis=0)
        new = step.transform(self.encode(self.new))
        cosines = unit(new) @ unit(step.transform(anchors)).T
        return self.classes[cosines.argmax(axis=1)]

    def ours(self, pool, known=(), names=None, **params):
        y = np.full(len(pool), None, object)
        y[[*known]] = self.pool_labels[[*known]]
        names = dict(zip(self.classes, self.names if names is None else names, strict=False))
        model = ZeroShotClassifier(self.encoder, names or None, **params)
        return model.fit(list(pool), y if len(known) else None).predict(list(self.new))


def of_names(bench):
    raw = None
    steps = some(("raw", "centered", "PCA(128)", "PCA(groups)"), len(bench.classes))
    for name, step in steps.items():
        accuracy = 100 * bench.hits(bench.nearest_name(step, moves=name != "raw")).mean()
        raw = accuracy if raw is None else raw
        yield "names", NAMED.get(name, name), accuracy
    yield "names", "ours", 100 * bench.hits(bench.ours(bench.pool)).mean()
    predicted = bench.ours(bench.pool, rejection_rate=0.01)
    kept = predicted != "other"
    accuracy = 100 * bench.hits(predicted)[kept].sum() / bench.weights[kept].sum()
    yield "names", "ours, rejection_rate=0.01", accuracy
    if bench.wordings:
        wordings = (bench.ours(bench.pool, names=names) for names in bench.wordings)
        found = [100 * bench.hits(predicted).mean() for predicted in wordings]
        yield "names", "ours, worst wording", min(found)
        yield "names", "ours, best wording", max(found)
    gains, share = [], 1 / np.arange(1, len(bench.classes) + 1)
    for seed, n in enumerate(SMALL):
        rng = np.random.default_rng(seed)
        wanted = np.ceil(n * rng.permutation(share) / share.sum()).astype(int)
        order = rng.permutation(len(bench.pool))
        of_class = (order[bench.pool_labels[order] == c] for c in bench.classes)
        rows = np.concatenate([r[:k] for r, k in zip(of_class, wanted, strict=True)])
        gains.append(100 * bench.hits(bench.ours(bench.pool[rows])).mean() - raw)
    yield "small, mean gain", "ours", np.mean(gains)
    yield "small, worst gain", "ours", np.min(gains)


def of_labels(bench, n, named):
    found = {}
    for seed in range(DRAWS):
        for name, predicted in predictions(bench, bench.drawn(n, seed), named):
            found.setdefault(name, []).append(100 * bench.hits(predicted).mean())
    for name, values in found.items():
        yield f"{n} labels", name, np.mean(values)


def predictions(bench, rows, named):
    """Yield a name, and predictions by the labels of these rows of the pool."""
    if named:
        yield "ours, with names", bench.ours(bench.pool, rows)
    yield "ours, without names", bench.ours(bench.pool, rows, names=())
    pool, new, labels = bench.encode(bench.pool), bench.encode(bench.new), bench.pool_labels
    pool, new, labels = unit(pool), unit(new), labels[rows]
    means = NearestCentroid().fit(pool[rows], labels)
    yield "nearest mean, raw", means.predict(new)
    logistic = LogisticRegression(C=10, max_iter=2000).fit(pool[rows], labels)
    yield "logistic regression, raw", logistic.predict(new)
    if named:
        names = bench.encode(bench.names)
        X = np.vstack([pool[rows], names - names.mean(axis=0) + pool.mean(axis=0)])
        both = LogisticRegression(C=10, max_iter=2000).fit(X, [*labels, *bench.classes])
        yield "logistic regression, with names", both.predict(new)
    codes = np.full(len(pool), -1)
    codes[rows] = np.searchsorted(bench.classes, labels)
    spreading = LabelSpreading(kernel="knn", n_neighbors=10, max_iter=100)
    yield "LabelSpreading, raw", bench.classes[spreading.fit(pool, codes).predict(new)]
    training = SelfTrainingClassifier(LogisticRegression(C=10, max_iter=2000))
    yield "SelfTrainingClassifier, raw", bench.classes[training.fit(pool, codes).predict(new)]
