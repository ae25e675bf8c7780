"""Probabilities of classes: log loss, and how far they are from the share that is correct.

The sets, the pool and the test texts are those of `classes`. "error" is the expected
calibration error of the most probable class over 15 bins of equal width, times 100, and
"accuracy" the share of correct classes, times 100, also where classes are skewed. "n labels"
are means of two draws of n labeled texts a class. "half wrong" names half of the classes by the
name of another.

"ours" is `predict_proba`. The logistic regressions are fitted on the labeled texts' vectors of
``encoder_``.
"""

from collections import defaultdict

import numpy as np
from classes import Bench
from data import SETS
from measures import unit
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import log_loss

from skcalib import ZeroShotClassifier

LABELS, DRAWS, BINS = (3, 20), 2, 15


def rows(encode, options):
    for name in options.only or SETS:
        bench, is_named = Bench(encode, name), name != "biomedical"
        if is_named:
            for names in ("names", "half wrong"):
                model = fitted(bench, named=names)
                yield row(name, names, "ours", [measured(bench, model.predict_proba)])
        for n in LABELS:
            for step, draws in of_labels(bench, n, is_named).items():
                yield row(name, f"{n} labels", step, draws)


def row(name, labels, step, draws):
    values = zip(("log loss", "error", "accuracy"), np.mean(draws, axis=0), strict=True)
    return {"set": name, "labels": labels, "step": step} | {k: f"{v:.3g}" for k, v in values}


def of_labels(bench, n, is_named):
    """Return what each model has in each draw."""
    found = defaultdict(list)
    kinds = {None: "ours, without names"}
    if is_named:
        kinds |= {"names": "ours, with names", "half wrong": "ours, half of the names wrong"}
    for seed in range(DRAWS):
        order = np.random.default_rng(seed).permutation(len(bench.pool))
        known = np.concatenate(
            [order[bench.pool_labels[order] == c][:n] for c in bench.classes]
        )
        for names, step in kinds.items():
            model = fitted(bench, known, names)
            found[step].append(measured(bench, model.predict_proba))
            if names is None:
                X = unit(model.encoder_.transform(bench.pool[known]))
                new = unit(model.encoder_.transform(bench.new))
        for C in (10, 100):
            logistic = LogisticRegression(C=C, max_iter=2000).fit(X, bench.pool_labels[known])
            of_new = scores(bench, logistic.predict_proba(new))
            found[f"logistic regression, C={C}"].append(of_new)
    return found


def fitted(bench, known=(), named=None):
    names = {label: [name] for label, name in zip(bench.classes, bench.names, strict=True)}
    if named == "half wrong":
        wrong = bench.classes[: max(2, len(bench.classes) // 2)]
        names |= dict(zip(wrong, [names[c] for c in np.roll(wrong, 1)], strict=True))
    y = np.full(len(bench.pool), None, object)
    y[list(known)] = bench.pool_labels[list(known)]
    model = ZeroShotClassifier(bench.encoder, names if named else None)
    return model.fit(list(bench.pool), y)


def measured(bench, probabilities):
    return scores(bench, probabilities(list(bench.new)))


def scores(bench, probabilities):
    """Log loss, calibration error and accuracy."""
    right = bench.classes[probabilities.argmax(axis=1)] == bench.labels
    highest = probabilities.max(axis=1)
    bins = np.minimum((BINS * highest).astype(int), BINS - 1)
    gaps = np.abs(np.bincount(bins, weights=highest - right))
    loss = log_loss(bench.labels, probabilities, labels=bench.classes)
    return loss, 100 * gaps.sum() / len(right), 100 * right.mean()
