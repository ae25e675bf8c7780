"""How many labels to choose by: points lost by a choice on few labelled texts.

In each of twenty samples of the test texts the best of raw, PCA(128) and "whitened" is taken.
The rows have how many points it is below the best of the three on all test texts, on average.
"""

import numpy as np
from contenders import some
from data import FITTED, labelled
from measures import codes_of, unit

from skcalib import TextEncoder
from skcalib.evaluation import evaluate_labelled

SETS = {"Banking77": "intents", "biomedical": "topics"}
SCORES = "R-precision", "duplicates", "1-NN"
SIZES = (10, 30), (20, 25)


def scores_of(units, y):
    """Of each step, by `evaluate_labelled`, whose texts are row numbers here."""
    encoders = {
        name: TextEncoder(lambda rows, X=X: X[[int(row) for row in rows]])
        for name, X in units.items()
    }
    texts = [str(row) for row in range(len(y))]
    return evaluate_labelled(encoders, texts, y, scores=SCORES).scores


def rows(encode, options):
    lost = {}
    for name, column in SETS.items():
        X = encode(labelled(name, "train", FITTED)[0])
        texts, labels = labelled(name, "test", options.most)
        T, y = encode(texts), codes_of(labels)
        maps = some(("raw", "PCA(128)", "whitened"))
        units = {step: unit(map_.fit(X).transform(T)) for step, map_ in maps.items()}
        of_all = scores_of(units, y)
        for n_classes, n_texts in SIZES:
            points = []
            for seed in range(20):
                rng = np.random.default_rng(seed)
                classes = rng.choice(y.max() + 1, n_classes, replace=False)
                of_each = [rng.permutation(np.flatnonzero(y == c))[:n_texts] for c in classes]
                some_rows = np.concatenate(of_each)
                sample = {step: Z[some_rows] for step, Z in units.items()}
                chosen = scores_of(sample, y[some_rows]).argmax(axis=0)
                points.append(of_all.max(axis=0) - of_all[chosen, range(len(SCORES))])
            for score, mean in zip(SCORES, np.mean(points, axis=0), strict=True):
                size = f"{n_classes}, up to {n_classes * n_texts}"
                lost.setdefault((size, score), {})[column] = f"{mean:.2f}"
    for (size, score), columns in sorted(lost.items()):
        yield {"classes, texts": size, "score": score} | columns
