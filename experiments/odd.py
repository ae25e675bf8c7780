"""Which texts are odd, by a flow, a Gaussian or the nearest neighbors.

Training texts of a set are fitted without labels, and texts of the test half are scored by how
unusual they are. "other set" texts are those of another domain, and "left out" ones those of
the last quarter of the classes, of which no text was fitted. The score is the area under the
ROC curve, times 100, of odd texts against texts of fitted classes. "10 epochs" keeps the flow
with the best validation loss. The nearest neighbors are five, by cosine.
"""

import numpy as np
from data import labeled
from measures import unit
from sklearn.metrics import roc_auc_score
from sklearn.neighbors import NearestNeighbors

from skcalib import NormalizingFlow, Whitening
from skcalib.monitoring import mahalanobis

SETS = {  # of fitted texts, and the set that other texts come from
    "Banking77": "news",
    "biomedical": "intents",
    "news": "biomedical",
    "intents": "emotions",
}
FITTED, SCORED, NEIGHBORS = 2000, 1000, 5


def by_flow(**params):
    def of(fitted, vectors):
        return -NormalizingFlow(random_state=0, **params).fit(fitted).score_samples(vectors)

    return of


def by_gaussian(**params):
    def of(fitted, vectors):
        return mahalanobis(Whitening(**params).fit(fitted), vectors)

    return of


def by_mean(fitted, vectors):
    return -unit(vectors) @ fitted.mean(axis=0)


def by_neighbors(fitted, vectors):
    search = NearestNeighbors(n_neighbors=NEIGHBORS, metric="cosine").fit(fitted)
    return search.kneighbors(vectors)[0].mean(axis=1)


STEPS = {
    "flow": by_flow(),
    "flow, 10 epochs": by_flow(max_epochs=10, validation_fraction=0.1),
    "Gaussian": by_gaussian(),
    "Gaussian, shrunk": by_gaussian(shrinkage="auto"),
    "distance to the mean": by_mean,
    "nearest neighbors": by_neighbors,
}


def rows(encode, options):
    scores = {}
    for name in options.only or SETS:
        texts, labels = labeled(name, "train")
        new, of_new = labeled(name, "test")
        classes = np.unique(labels)
        known = classes[: -(len(classes) // 4)]
        others, _ = labeled(SETS[name], "test", SCORED)
        fitted = encode(texts[np.isin(labels, known)][: options.most or FITTED])
        usual = encode(new[np.isin(of_new, known)][:SCORED])
        odd = {
            "other set": encode(others),
            "left out": encode(new[~np.isin(of_new, known)][:SCORED]),
        }
        for n in (len(fitted), 200):
            few = "" if n == len(fitted) else ", 200 fitted"
            for step, score in STEPS.items():
                of_all = score(fitted[:n], np.vstack([usual, *odd.values()]))
                ends = np.cumsum([len(usual), *(len(vectors) for vectors in odd.values())])
                of_usual, *of_odd = np.split(of_all, ends[:-1])
                for kind, of_kind in zip(odd, of_odd, strict=True):
                    is_odd = np.r_[np.zeros(len(of_usual)), np.ones(len(of_kind))]
                    auc = 100 * roc_auc_score(is_odd, np.r_[of_usual, of_kind])
                    scores.setdefault((step, kind + few), {})[name] = auc
    for (step, kind), found in scores.items():
        mean = f"{np.mean([*found.values()]):.1f}"
        row = {"step": step, "odd": kind, "mean": mean}
        yield row | {name: f"{auc:.1f}" for name, auc in found.items()}
