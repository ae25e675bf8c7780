"""One pool of four languages: the share of a text's translations among its nearest texts.

The pool has the distinct test sentences of STS-B in English and in machine translations to
German, Spanish and French, whose three translations must be the three nearest. All maps are
fitted on the dev sentences of the four languages. "Erased" projects out the differences between
the means of languages, of all texts or of few.
"""

import numpy as np
from data import pairs
from measures import unit
from scipy.linalg import orth

from skcalib import Whitening

TASKS = {"en": "stsb", "de": "stsb-de", "es": "stsb-es", "fr": "stsb-fr"}


def rows(encode, options):
    fitted, groups, pool, text = sentences()
    X, Z, place = encode(fitted), encode(pool), np.tile(np.arange(len(fitted) // 4), 4)
    means = np.array([X[groups == name].mean(axis=0) for name in TASKS])
    of_pool = np.repeat(means, len(pool) // 4, axis=0)
    steps = {
        "raw": Z,
        "mean subtracted": Z - X.mean(axis=0),
        "whitened": Whitening(power="auto").fit(X).transform(Z),
        "mean of each language subtracted": Z - of_pool,
        "erased, whitened": erased(X, Z, groups),
        "erased by 20 texts each": erased(X, Z, groups, place < 20),
    }
    for name, vectors in steps.items():
        score = 100 * hits(vectors, text).mean()
        yield {"data": "STS-B", "step": name, "score": f"{score:.1f}"}


def sentences():
    """Return texts to fit on and their languages, the pool, and which text each is of."""
    dev = [pairs(task, "dev")[0].ravel() for task in TASKS.values()]
    test = [pairs(task)[0][:, 0] for task in TASKS.values()]
    first = np.unique(test[0], return_index=True)[1]
    pool = np.concatenate([texts[first] for texts in test])
    groups = np.repeat(list(TASKS), len(dev[0]))
    return np.concatenate(dev), groups, pool, np.tile(np.arange(len(first)), len(test))


def erased(X, Z, groups, among=slice(None)):
    """Return vectors Z after an erasure by some of the vectors X, and a whitening of all X."""
    some, names = X[among], np.unique(groups[among])
    means = np.array([some[groups[among] == name].mean(axis=0) for name in names])
    Q = orth((means - means[0]).T)  # of the directions in which they differ
    X, Z = (vectors - (vectors - some.mean(axis=0)) @ Q @ Q.T for vectors in (X, Z))
    return Whitening(power="auto").fit(X).transform(Z)


def hits(Z, text):
    """Share of the translations of each vector that are among its nearest."""
    units, n = unit(Z), len(TASKS) - 1
    similarity = units @ units.T
    np.fill_diagonal(similarity, -np.inf)
    nearest = np.argpartition(-similarity, n, axis=1)[:, :n]
    return np.mean(text[nearest] == text[:, None], axis=1)
