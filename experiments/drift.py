"""How often `Whitening.shift` calls new texts changed, after a fit on 1,000.

300 new texts, in ten draws: of the same kind, with a share of another kind ("foreign": titles
among questions or sentences, questions among titles), of one class that was not fitted, of half
of the classes after a fit on the other half. Alarms, of ten, are counted by p-values below 0.05
and 0.01.
"""

import numpy as np
from change_model import SETS, texts_of

from skcalib import Whitening

FITTED, NEW, DRAWS = 1000, 300, 10
FOREIGN = {"Banking77": "biomedical", "biomedical": "Banking77", "STS-B": "biomedical"}
CASES = {"same kind": 0.0, "5 % foreign": 0.05, "10 % foreign": 0.1, "20 % foreign": 0.2}


def rows(encode, options):
    for name in SETS:
        (texts, classes), others = texts_of(name), texts_of(FOREIGN[name])[0]
        X, Y = encode(texts), encode(others)
        with_classes = {"one class": 1.0, "other classes": 1.0} if classes is not None else {}
        for case, share in (CASES | with_classes).items():
            found = []
            for seed in range(DRAWS):
                rng = np.random.default_rng(seed)
                order, foreign = rng.permutation(len(X)), Y
                if "class" in case:
                    names = rng.permutation(np.unique(classes))
                    away = names[: 1 if case == "one class" else len(names) // 2]
                    order = order[~np.isin(classes[order], away)]
                    foreign = X[np.isin(classes, away)]
                k = min(round(NEW * share), len(foreign))
                new = X[order[FITTED : FITTED + round(NEW * (1 - share))]]
                new = np.vstack([new, rng.permutation(foreign)[:k]])
                shift = Whitening(noise="auto").fit(X[order[:FITTED]]).shift(new)
                found.append((shift.p_value, shift.mean_distance, shift.mahalanobis_ratio))
            p, distance, ratio = np.transpose(found)
            yield {
                "data": name,
                "new": case,
                "p below .05": np.sum(p < 0.05),
                "p below .01": np.sum(p < 0.01),
                "distance": f"{distance.mean():.2f}",
                "ratio": f"{ratio.mean():.2f}",
            }
