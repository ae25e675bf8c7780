"""Classes from their names and from a few labels: accuracy on new texts, and times.

    SKCALIB_DATA=folder python benchmarks/classes.py MODEL --memory vectors [--prompt "query: "]
        --output docs/results/classes-minilm.csv

Beside the folder of ``SKCALIB_DATA`` there are the folders ``coarse`` (news, four topics) and
``tasks`` (Banking77), with training texts, of which up to 4,000 are the pool without labels,
and test texts, of which up to 3,000 are scored; also ``topics`` (biomedical titles), whose 20
topics have no names; and ``narrow`` (intents, spam, emotions), whose classes are skewed: there,
accuracy stands for the mean of accuracy and balanced accuracy. Names are encoded as written,
with spaces for "_", "-" and "/".

"names" is the nearest name, raw or after a step fitted on the pool, with the mean of the names
moved to that of the texts for all steps but the first. "small" are pools of 80 to 770 texts, in
which the classes have sizes as 1, 1/2, 1/3, ...: the difference to raw names, mean and worst of
four sizes. "n labels" are means of four draws of n labelled texts a class. "rejected" is the
share of new texts that get none of the classes at a promised 5 and 10 %, mean of ten draws.
"seconds" is the time of a fit, texts encoded before.
"""

import argparse
import csv
import os
import time
import warnings
from pathlib import Path

import numpy as np
import pandas as pd
from sklearn.base import clone
from sklearn.decomposition import PCA
from sklearn.linear_model import LogisticRegression
from sklearn.neighbors import NearestCentroid
from sklearn.preprocessing import FunctionTransformer, Normalizer, StandardScaler
from sklearn.semi_supervised import LabelSpreading, SelfTrainingClassifier

from skcalib import BertEncoder, TextEncoder, ZeroShotClassifier
from skcalib.datasets import minilm_path

DATA = Path(os.environ["SKCALIB_DATA"]).parent
SETS = {
    "news": "coarse/news",
    "Banking77": "tasks/banking77",
    "biomedical": "topics/biomedical",
    "intents": "narrow/intents",
    "spam": "narrow/spam",
    "emotions": "narrow/emotions",
}
SKEWED = "intents", "spam", "emotions"
SMALL = 80, 160, 380, 770
LABELS, DRAWS = (1, 3, 8), 4


def read(name):
    """Texts and labels of the pool and of the texts to score."""
    halves = []
    for half, most in (("train", 4000), ("test", 3000)):
        frame = pd.read_csv(DATA / f"{SETS[name]}-{half}.csv", keep_default_na=False)
        frame = frame.iloc[np.random.default_rng(0).permutation(len(frame))[:most]]
        halves += [frame.iloc[:, 0].to_numpy(), frame.iloc[:, 1].astype(str).to_numpy()]
    return halves


def units(X):
    return Normalizer().transform(np.asarray(X, np.float64))


class Bench:
    """One set of texts with vectors, kept in memory."""

    def __init__(self, encoder, name):
        self.pool, self.pool_labels, self.new, self.labels = read(name)
        self.classes = np.unique(self.pool_labels)
        self.names = [label.replace("_", " ").replace("-", " ") for label in self.classes]
        self.is_skewed = name in SKEWED
        texts = list(dict.fromkeys([*self.pool, *self.new, *self.names]))
        vectors = encoder.fit_transform(texts)
        self.row, self.vectors = {text: i for i, text in enumerate(texts)}, vectors
        self.encoder = TextEncoder(self.encode)

    def encode(self, texts):
        return self.vectors[[self.row[text] for text in texts]]

    def accuracy(self, predicted):
        right = np.asarray(predicted) == self.labels
        if not self.is_skewed:
            return 100 * right.mean()
        balanced = np.mean([right[self.labels == c].mean() for c in np.unique(self.labels)])
        return 50 * (right.mean() + balanced)

    def nearest(self, anchors, step, pool, moves=True):
        """Accuracy of the nearest anchor after a step fitted on the pool."""
        step = clone(step).fit(self.encode(pool))
        if moves:
            anchors = anchors - anchors.mean(axis=0) + self.encode(pool).mean(axis=0)
        cosines = (
            units(step.transform(self.encode(self.new))) @ units(step.transform(anchors)).T
        )
        return self.accuracy(self.classes[cosines.argmax(axis=1)])

    def ours(self, pool, y=None, named=True):
        model = ZeroShotClassifier(self.encoder, [*self.classes] if named else None)
        start = time.perf_counter()
        model.fit(list(pool), y)
        seconds = time.perf_counter() - start
        return self.accuracy(model.predict(list(self.new))), seconds

    def of_names(self):
        steps = {
            "raw": FunctionTransformer(),
            "mean subtracted": StandardScaler(with_std=False),
            "PCA(128)": PCA(128, random_state=0),
            "PCA(number of classes)": PCA(len(self.classes), random_state=0),
        }
        anchors = self.encode(self.names)
        for name, step in steps.items():
            yield "names", name, self.nearest(anchors, step, self.pool, name != "raw")
        accuracy, seconds = self.ours(self.pool)
        yield "names", "ours", accuracy
        yield "seconds", "ours", seconds
        raw, gains = self.nearest(anchors, FunctionTransformer(), self.pool, False), []
        share = 1 / np.arange(1, len(self.classes) + 1)
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
            rows = np.concatenate(known)
            for name, value in self._one_draw(rows, named):
                found.setdefault(name, []).append(value)
        for name, values in found.items():
            yield f"{n} labels", name, np.mean(values)

    def _one_draw(self, rows, named):
        texts, labels = self.pool[rows], self.pool_labels[rows]
        y = np.full(len(self.pool), None, object)
        y[rows] = labels
        if named:
            yield "ours, with names", self.ours(self.pool, y)[0]
        yield "ours, without names", self.ours(self.pool, y, named=False)[0]
        new, few, pool = map(units, map(self.encode, (self.new, texts, self.pool)))
        for name, step in (("raw", None), ("PCA(128)", PCA(128, random_state=0))):
            mapped = new, few
            if step is not None:
                step.fit(pool)
                mapped = [units(step.transform(X)) for X in mapped]
            means = NearestCentroid().fit(mapped[1], labels)
            yield f"nearest mean, {name}", self.accuracy(means.predict(mapped[0]))
        logistic = LogisticRegression(C=10, max_iter=2000)
        yield "logistic regression, raw", self.accuracy(logistic.fit(few, labels).predict(new))
        codes = np.full(len(pool), -1)
        codes[rows] = np.searchsorted(self.classes, labels)
        peers = {
            "LabelSpreading, raw": LabelSpreading(kernel="knn", n_neighbors=10, max_iter=100),
            "SelfTrainingClassifier, raw": SelfTrainingClassifier(logistic),
        }
        for name, peer in peers.items():
            yield name, self.accuracy(self.classes[peer.fit(pool, codes).predict(new)])

    def rejected(self):
        texts = np.concatenate([self.pool, self.new])
        fitted = min(3000, 3 * len(texts) // 4)
        for rate in (0.05, 0.1):
            shares = []
            for seed in range(10):
                order = np.random.default_rng(seed).permutation(len(texts))
                model = ZeroShotClassifier(self.encoder, [*self.classes], rejection_rate=rate)
                model.fit(texts[order[:fitted]].tolist())
                shares.append(np.mean(model.predict(texts[order[fitted:]].tolist()) == "other"))
            yield f"rejected of {100 * rate:.0f} %", "ours", 100 * np.mean(shares)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("model")
    parser.add_argument("--prompt")
    parser.add_argument("--memory")
    parser.add_argument("--output", default="classes.csv")
    options = parser.parse_args()
    model = minilm_path() if options.model == "minilm" else options.model
    encoder = BertEncoder(model, prompt=options.prompt, memory=options.memory)
    rows = []
    for name in SETS:
        bench, named = Bench(encoder, name), name != "biomedical"
        parts = [bench.of_labels(n, named) for n in LABELS]
        if named:
            parts = [bench.of_names(), *parts, bench.rejected()]
        for part in parts:
            for score, step, value in part:
                rows.append([name, score, step, f"{value:.1f}"])
                print(*rows[-1], sep="\t", flush=True)
    with open(options.output, "w", newline="", encoding="utf-8") as stream:
        csv.writer(stream).writerows([["set", "score", "step", "value"], *rows])


if __name__ == "__main__":
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        main()
