"""One pool of four languages: the share of a text's translations among its nearest texts.

The pool has the distinct test sentences of STS-B in English and in machine translations to
German, Spanish and French, whose three translations must be the three nearest. All maps are
fitted on the dev sentences of the four languages. Further rows erase by few texts, without one
of the languages, or by languages of which half are drawn at random.
"""

import numpy as np
from data import pairs
from measures import unit
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer

from skcalib import GroupErasure, Whitening

TASKS = {"en": "stsb", "de": "stsb-de", "es": "stsb-es", "fr": "stsb-fr"}


def rows(encode, options):
    fitted, groups, pool, text = sentences()
    X, Z, place = encode(fitted), encode(pool), np.tile(np.arange(len(fitted) // 4), 4)
    steps = {
        "raw": FunctionTransformer(),
        "mean subtracted": Whitening(power=0).fit(X),
        "whitened": Whitening(power="auto").fit(X),
        "erased, whitened": erased(X, groups),
        "Spanish not erased": erased(X, groups, groups != "es"),
    }
    for n in (20, 50):
        steps[f"erased by {n} texts each"] = erased(X, groups, place < n)
    wrong, rng = groups.copy(), np.random.default_rng(0)
    changed = rng.random(len(wrong)) < 0.5
    wrong[changed] = rng.choice(list(TASKS), changed.sum())
    steps["half of the languages at random"] = erased(X, wrong)
    for name, step in steps.items():
        score = 100 * hits(step.transform(Z), text).mean()
        yield {"data": "STS-B", "step": name, "score": f"{score:.1f}"}


def sentences():
    """Return texts to fit on and their languages, the pool, and which text each is of."""
    dev = [pairs(task, "dev")[0].ravel() for task in TASKS.values()]
    test = [pairs(task)[0][:, 0] for task in TASKS.values()]
    first = np.unique(test[0], return_index=True)[1]
    pool = np.concatenate([texts[first] for texts in test])
    groups = np.repeat(list(TASKS), len(dev[0]))
    return np.concatenate(dev), groups, pool, np.tile(np.arange(len(first)), len(test))


def erased(X, groups, among=slice(None)):
    """Whitening after an erasure of groups, by some of the vectors."""
    erasure = GroupErasure().fit(X[among], groups=groups[among])
    return make_pipeline(erasure, Whitening(power="auto").fit(erasure.transform(X)))


def hits(Z, text):
    """Share of the translations of each vector that are among its nearest."""
    units, n = unit(Z), len(TASKS) - 1
    similarity = units @ units.T
    np.fill_diagonal(similarity, -np.inf)
    nearest = np.argpartition(-similarity, n, axis=1)[:, :n]
    return np.mean(text[nearest] == text[:, None], axis=1)
