"""Probabilities of classes: log loss, and how far they are from the share that is correct.

The sets, the pool and the test texts are those of `classes`. "error" is the expected
calibration error of the most probable class over 15 bins of equal width, times 100, and
"accuracy" the share of correct classes, times 100, also where classes are skewed. "n labels"
are means of two draws of n labeled texts a class. "8 drawn" are as many, drawn from the whole
pool, so that frequent classes have more, and each class at least one. "half wrong" names half
of the classes by the name of another.

"ours" is `predict_proba`, and "at 0.05" the same with the temperature that is used without
labels. The logistic regressions are fitted on the labeled texts' vectors of ``encoder_``.
"""

from collections import defaultdict
from functools import partial

import numpy as np
from classes import Bench
from data import SETS
from measures import unit
from scipy.special import softmax
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import log_loss

from skcalib import ZeroShotClassifier

LABELS, DRAWS, BINS = (3, 8, 20), 2, 15


def rows(encode, options):
    for name in options.only or SETS:
        bench, is_named = Bench(encode, name), name != "biomedical"
        if is_named:
            for names in ("names", "half wrong"):
                model = fitted(bench, named=names)
                yield row(name, names, "ours", [measured(bench, model.predict_proba)])
        for labels in (*(f"{n} labels" for n in LABELS), "8 drawn"):
            for step, draws in of_labels(bench, labels, is_named).items():
                yield row(name, labels, step, draws)


def row(name, labels, step, draws):
    values = zip(("log loss", "error", "accuracy"), np.mean(draws, axis=0), strict=True)
    return {"set": name, "labels": labels, "step": step} | {k: f"{v:.3g}" for k, v in values}


def of_labels(bench, labels, is_named):
    """Return what each model has in each draw."""
    found = defaultdict(list)
    kinds = {None: "ours, without names"}
    if is_named:
        kinds |= {"names": "ours, with names", "half wrong": "ours, half of the names wrong"}
    for seed in range(DRAWS):
        known = drawn(bench, labels, np.random.default_rng(seed))
        for names, step in kinds.items():
            model = fitted(bench, known, names)
            found[step].append(measured(bench, model.predict_proba))
            if names is None:
                at_usual = measured(bench, partial(usual, model))
                found["ours, without names, at 0.05"].append(at_usual)
                X = unit(model.encoder_.transform(bench.pool[known]))
                new = unit(model.encoder_.transform(bench.new))
        for C in (10, 100):
            logistic = LogisticRegression(C=C, max_iter=2000).fit(X, bench.pool_labels[known])
            of_new = scores(bench, logistic.predict_proba(new))
            found[f"logistic regression, C={C}"].append(of_new)
    return found


def drawn(bench, labels, rng):
    """Return the rows of labeled texts."""
    n, kind = labels.split()
    order = rng.permutation(len(bench.pool))
    of_class = [order[bench.pool_labels[order] == label] for label in bench.classes]
    if kind == "labels":
        return np.concatenate([rows[: int(n)] for rows in of_class])
    first = [rows[0] for rows in of_class]
    return np.unique([*first, *order[: (int(n) - 1) * len(bench.classes)]])


def fitted(bench, known=(), named=None):
    names = {label: [name] for label, name in zip(bench.classes, bench.names, strict=True)}
    if named == "half wrong":
        wrong = bench.classes[: max(2, len(bench.classes) // 2)]
        names |= dict(zip(wrong, [names[c] for c in np.roll(wrong, 1)], strict=True))
    y = np.full(len(bench.pool), None, object)
    y[list(known)] = bench.pool_labels[list(known)]
    model = ZeroShotClassifier(bench.encoder, names if named else None)
    return model.fit(list(bench.pool), y)


def usual(model, texts):
    scores = model.decision_function(texts)
    scores = np.c_[-scores, scores] / 2 if scores.ndim == 1 else scores
    return softmax(scores / 0.05, axis=1)


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
