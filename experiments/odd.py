"""Which texts are odd, by a flow, a Gaussian or the nearest neighbors.

Training texts of a set are fitted without labels, and texts of the test half are scored by how
unusual they are. "other set" texts are those of another domain, and "left out" ones those of
the last quarter of the classes, of which no text was fitted. The score is the area under the
ROC curve, times 100, of odd texts against texts of fitted classes. The nearest neighbors are
five, by cosine.
"""

import numpy as np
from data import labeled
from rejections import SETS
from sklearn.metrics import roc_auc_score
from sklearn.neighbors import NearestNeighbors

from skcalib import NormalizingFlow, Whitening

FITTED, SCORED, NEIGHBORS = 2000, 1000, 5


def by_flow(fitted, vectors):
    return -NormalizingFlow(random_state=0).fit(fitted).score_samples(vectors)


def by_gaussian(**params):
    def of(fitted, vectors):
        return (Whitening(**params).fit(fitted).transform(vectors) ** 2).sum(axis=1)

    return of


def by_neighbors(fitted, vectors):
    search = NearestNeighbors(n_neighbors=NEIGHBORS, metric="cosine").fit(fitted)
    return search.kneighbors(vectors)[0].mean(axis=1)


STEPS = {
    "flow": by_flow,
    "Gaussian": by_gaussian(),
    "Gaussian, shrunk": by_gaussian(shrinkage="auto"),
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
        for step, score in STEPS.items():
            of_all = score(fitted, np.vstack([usual, *odd.values()]))
            ends = np.cumsum([len(usual), *(len(vectors) for vectors in odd.values())])
            of_usual, *of_odd = np.split(of_all, ends[:-1])
            for kind, of_kind in zip(odd, of_odd, strict=True):
                is_odd = np.r_[np.zeros(len(of_usual)), np.ones(len(of_kind))]
                auc = 100 * roc_auc_score(is_odd, np.r_[of_usual, of_kind])
                scores.setdefault((step, kind), {})[name] = auc
    for (step, kind), found in scores.items():
        row = {"step": step, "odd": kind, "mean": f"{np.mean([*found.values()]):.1f}"}
        yield row | {name: f"{auc:.1f}" for name, auc in found.items()}
