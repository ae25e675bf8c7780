"""One pool of four languages: the share of a text's translations among its three nearest.

The pool has the distinct test sentences of STS-B in English and in machine translations to
German, Spanish and French. All maps are fitted on the dev sentences of the four languages.
Further rows erase by few texts, without one of the languages, or by languages of which half are
drawn at random.
"""

import numpy as np
from data import pairs
from measures import unit
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer

from skcalib import GroupErasure, Whitening

TASKS = {"en": "stsb", "de": "stsb-de", "es": "stsb-es", "fr": "stsb-fr"}


def rows(encode, options):
    dev = [pairs(task, "dev")[0].ravel() for task in TASKS.values()]
    test = [pairs(task)[0][:, 0] for task in TASKS.values()]
    first = np.unique(test[0], return_index=True)[1]
    pool = [encode(texts[first]) for texts in test]
    X = encode(np.concatenate(dev))
    groups, place = np.repeat(list(TASKS), len(dev[0])), np.tile(np.arange(len(dev[0])), 4)

    def erased(languages, among=slice(None)):
        """Erasure of languages by some of the vectors, and the whitening after it."""
        erasure = GroupErasure().fit(X[among], groups=languages[among])
        return make_pipeline(erasure, Whitening(noise="auto").fit(erasure.transform(X)))

    def score(step):
        Z = unit(step.transform(np.vstack(pool)))
        text = np.tile(np.arange(len(first)), len(pool))
        similarity = Z @ Z.T
        np.fill_diagonal(similarity, -np.inf)
        nearest = np.argpartition(-similarity, 3, axis=1)[:, :3]
        return f"{100 * np.mean(text[nearest] == text[:, None]):.1f}"

    yield {"step": "raw", "score": score(FunctionTransformer())}
    yield {"step": "whitened", "score": score(Whitening(noise="auto").fit(X))}
    yield {"step": "erased, whitened", "score": score(erased(groups))}
    yield {"step": "Spanish not erased", "score": score(erased(groups, groups != "es"))}
    for n in (20, 50):
        yield {"step": f"erased by {n} texts each", "score": score(erased(groups, place < n))}
    wrong, rng = groups.copy(), np.random.default_rng(0)
    changed = rng.random(len(wrong)) < 0.5
    wrong[changed] = rng.choice(list(TASKS), changed.sum())
    yield {"step": "half of the languages at random", "score": score(erased(wrong))}
