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


def hits(encode, name, n_labels, are_named):
    """Return by step whether new texts get their class, as a mean over draws of labels.

    Weights make the mean the accuracy, or in skewed sets that of it and of balanced accuracy.
    """
    pool, of_pool = labeled(name, "train", FITTED)
    new, of_new = labeled(name, "test", 3000)
    classes, found = np.unique(of_pool), {}
    names = {label: label.replace("_", " ").replace("-", " ") for label in classes}
    texts = list(dict.fromkeys([*pool, *new, *names.values()]))
    encode = lookup(texts, encode(texts))
    P, N, named = (unit(encode(of)) for of in (pool, new, names.values()))
    for seed in range(3 if n_labels else 1):
        known = drawn(of_pool, n_labels, seed)
        X, y, predicted = P[known], of_pool[known], {}
        if are_named:
            X = np.vstack([X, named - named.mean(axis=0) + P.mean(axis=0)])
            y = np.concatenate([y, classes])
        if not n_labels:
            predicted["raw"] = classes[(N @ named.T).argmax(axis=1)]
        ours = ZeroShotClassifier(TextEncoder(encode), names if are_named else None)
        ours.fit(list(pool), with_labels(of_pool, known) if n_labels else None)
        predicted |= by_lines(P, X, y, N) | {OURS: ours.predict(list(new))}
        for step, labels in predicted.items():
            found.setdefault(step, []).append(labels == of_new)
    weights = np.ones(len(new))
    if name in SKEWED:
        _, codes, counts = np.unique(of_new, return_inverse=True, return_counts=True)
        weights = (1 + len(codes) / (len(counts) * counts)[codes]) / 2
    return {step: weights * np.mean(of_step, axis=0) for step, of_step in found.items()}


def with_labels(labels, known):
    """Labels of the known rows, and None."""
    y = np.full(len(labels), None, object)
    y[known] = labels[known]
    return y


def by_lines(pool, X, y, new):
    """Predict the new texts by labeled ones, names of classes among them, and the pool."""
    predicted, classes = {}, np.unique(y)
    logistic = LogisticRegression(C=10, max_iter=2000)
    steps = {"": FunctionTransformer(), "PCA(classes), ": pca(len(classes)), "near, ": Near()}
    for step, model in steps.items():
        model.fit(pool)
        P, N, A = (unit(model.transform(of)) for of in (pool, new, X))
        means = unit([A[y == c].mean(axis=0) for c in classes])
        predicted[f"{step}nearest mean"] = classes[(N @ means.T).argmax(axis=1)]
        if "PCA" not in step:
            predicted[f"{step}logistic regression"] = logistic.fit(A, y).predict(N)
        if step == "":
            moved = KMeans(len(classes), init=means, n_init=1).fit(P).predict(N)
            predicted["KMeans from the means"] = classes[moved]
    codes = np.r_[np.full(len(pool), -1), np.searchsorted(classes, y)]
    spreading = LabelSpreading(kernel="knn", n_neighbors=10, max_iter=100)
    spread = spreading.fit(np.vstack([pool, X]), codes).predict(new)
    return predicted | {"LabelSpreading": classes[spread]}


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
