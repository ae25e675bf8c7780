"""How many labels to choose by: points lost by a choice on few labeled texts.

In each of twenty samples of the test texts the best of raw, PCA(128) and "whitened" is taken.
The rows have how many points it is below the best of the three on all test texts, on average.
"""

import numpy as np
from contenders import some
from data import FITTED, labeled
from measures import codes_of, of_groups

SETS = {"Banking77": "intents", "biomedical": "topics"}
SCORES = "R-precision", "3 labels", "pairs"
SIZES = (10, 30), (20, 25)


def rows(encode, options):
    lost = {}
    for name, column in SETS.items():
        X = encode(labeled(name, "train", FITTED)[0])
        texts, labels = labeled(name, "test", options.most)
        T, y = encode(texts), codes_of(labels)
        maps = some(("raw", "PCA(128)", "whitened"))
        units = [map_.fit(X).transform(T) for map_ in maps.values()]
        of_all = np.array([of_groups(Z, y) for Z in units])
        for n_classes, n_texts in SIZES:
            points = []
            for seed in range(20):
                rng = np.random.default_rng(seed)
                classes = rng.choice(y.max() + 1, n_classes, replace=False)
                of_each = [rng.permutation(np.flatnonzero(y == c))[:n_texts] for c in classes]
                some_rows = np.concatenate(of_each)
                found = [of_groups(Z[some_rows], y[some_rows]) for Z in units]
                chosen = np.argmax(found, axis=0)
                points.append(of_all.max(axis=0) - of_all[chosen, range(len(SCORES))])
            for score, mean in zip(SCORES, np.mean(points, axis=0), strict=True):
                size = f"{n_classes}, up to {n_classes * n_texts}"
                lost.setdefault((size, score), {})[column] = f"{mean:.2f}"
    for (size, score), columns in sorted(lost.items()):
        yield {"classes, texts": size, "score": score} | columns
