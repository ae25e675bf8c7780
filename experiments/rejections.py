"""Classes, or none of these: which texts are rejected where 5 % of the good ones may be.

Eight labels a class and up to 2,000 texts without labels are known, all of the first three
quarters of the classes. "rejected" is the percentage of new texts of these classes that get
none of them, "other set" that of texts of another domain, "left out" that of texts of the last
quarter of the classes. "accuracy" is that of the new texts which are not rejected. The mean of
four draws of the labels.

For the peers the limit is the quantile at 5 % of their greatest probability, or cosine, of the
texts without labels.
"""

import numpy as np
from data import labeled
from measures import unit
from sklearn.linear_model import LogisticRegression

from skcalib import TextEncoder, ZeroShotClassifier

SETS = {  # of fitted texts, and the set that other texts come from
    "Banking77": "news",
    "biomedical": "intents",
    "news": "biomedical",
    "intents": "emotions",
}
POOL, SCORED, LABELS, DRAWS, RATE = 2000, 1000, 8, 4, 0.05
EVERY = 10**9  # texts, in random order


def ours(encode, pool, y):
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


STEPS = {
    "nearest mean, raw": nearest_mean,
    "logistic regression, raw": by_probability,
    "ours": ours,
}


def rows(encode, options):
    for name in options.only or SETS:
        figures = {}
        for step, kept, right, odd in draws(encode, name):
            of_draw = [np.mean(~kept), *map(np.mean, odd.values()), right[kept].mean()]
            figures.setdefault(step, []).append(of_draw)
        for step, of_draws in figures.items():
            means = 100 * np.mean(of_draws, axis=0)
            columns = "rejected", *odd, "accuracy"
            shown = (f"{mean:.1f}" for mean in means)
            yield {"set": name, "step": step} | dict(zip(columns, shown, strict=True))


def draws(encode, name):
    """Yield step, which usual texts are kept and right, and which odd ones rejected."""
    texts, labels = labeled(name, "train", EVERY)
    new, of_new = labeled(name, "test", EVERY)
    classes = np.unique(labels)
    known = classes[: -(len(classes) // 4)]
    is_known = np.isin(of_new, known)
    others, _ = labeled(SETS[name], "test", SCORED)
    usual, of_usual = new[is_known][:SCORED], of_new[is_known][:SCORED].astype(str)
    odd = {"other set": others, "left out": new[~is_known][:SCORED]}
    texts, labels = (x[np.isin(labels, known)] for x in (texts, labels))
    pool, of_pool = texts[:POOL], labels[:POOL]
    for seed in range(DRAWS):
        order = np.random.default_rng(seed).permutation(len(pool))
        drawn = [order[of_pool[order] == c][:LABELS] for c in known]
        y = np.full(len(pool), None, object)
        y[np.concatenate(drawn)] = of_pool[np.concatenate(drawn)].astype(str)
        for step, fitted in STEPS.items():
            predict = fitted(encode, pool, y)
            predicted = predict(usual)
            rejected = {kind: predict(of_kind) == "other" for kind, of_kind in odd.items()}
            yield step, predicted != "other", predicted == of_usual, rejected
