"""Texts of another genre: STS-B's test pairs in two halves, by the order of the file.

The file is sorted by genre. A map is fitted on one half, without grades, and scored on the
other by Spearman's rho: "other half"; "recentered" has the scored texts' own mean subtracted,
and "own half" is fitted on the scored half. Random halves are the mean of all languages.
"""

import numpy as np
from data import pairs
from measures import of_pairs

from skcalib import Whitening
from skcalib.monitoring import shift

LANGUAGES = {"English": "stsb", "German": "stsb-de", "Spanish": "stsb-es", "French": "stsb-fr"}
COLUMNS = "raw", "other half", "recentered", "own half"


def rows(encode, options):
    at_random = []
    for language, task in LANGUAGES.items():
        both, grades = pairs(task)
        X = encode(both.ravel()).reshape(len(both), 2, -1)
        in_order = np.arange(len(both))
        for order in (in_order, np.random.default_rng(0).permutation(in_order)):
            halves = np.array_split(order, 2)
            for k, (old, new) in enumerate((halves, halves[::-1])):
                found = measured(X[old], X[new], grades[new])
                if order is in_order:
                    yield {"row": f"{language}, {k + 1} → {2 - k}"} | shown(found)
                else:
                    at_random.append(found)
    yield {"row": "random halves"} | shown(np.mean(at_random, axis=0))


def measured(old, new, grades):
    """Scores on the new pairs, and the shift from the old ones to them."""
    fitted, own = (Whitening(noise="auto").fit(X.reshape(-1, X.shape[-1])) for X in (old, new))
    texts = new.reshape(-1, new.shape[-1])
    maps = np.asarray, fitted.transform, fitted.recentered(texts).transform, own.transform
    scores = [of_pairs(map_(new[:, 0]), map_(new[:, 1]), grades) for map_ in maps]
    found = shift(fitted, texts, old.reshape(-1, old.shape[-1]))
    return [*scores, found.mean_distance, found.mahalanobis_ratio]


def shown(found):
    *scores, distance, ratio = found
    cells = dict(zip(COLUMNS, (f"{score:.1f}" for score in scores), strict=True))
    return cells | {"distance": f"{distance:.2f}", "ratio": f"{ratio:.1f}"}
