"""The papers' evaluation on a language model that was not trained for similarity.

Spearman's rho of the cosine and the grade, over all pairs of a set ("all" in the papers'
terms), after fits on the sentences of the scored pairs, without grades ("target"). "mean" is
the average of the seven sets. "side by side" has the last token in words around the text beside
the mean of its second occurrence, each after the step and of unit length. ``--most`` limits the
pairs of the sets other than STS-B.
"""

import numpy as np
from contenders import chosen
from data import LENGTH, LENGTH_TWICE, LENGTH_WITH_TEMPLATE, STS, TEMPLATE, TWICE, pairs
from measures import correlations, unit
from sklearn.base import clone

from skcalib import NormalizingFlow, VectorStore

PLAIN = {"max_length": LENGTH}
AROUND = {"max_length": LENGTH_WITH_TEMPLATE, "prompt": TEMPLATE, "pooling": "last"}
SECOND = {"max_length": LENGTH_TWICE, "prompt": TWICE}
FEATURES = {
    "last": [PLAIN],
    "first_last": [PLAIN | {"layers": "first_last"}],
    "last token, prompt": [AROUND],
    "second text": [SECOND],
    "side by side": [AROUND, SECOND],
}
STEPS = chosen("raw", "StandardScaler", "PCA(256, whiten=True)", "exact", "default", "many")
STEPS["flow"] = NormalizingFlow(random_state=0)


def stored(encode, options, **params):
    """Return an encoder with a store of the layers and poolings that these experiments use."""
    kept = {"layers": (0, 1, -2, -1), "pooling": ("mean", "last")}
    return encode.bert(memory=VectorStore(options.memory / "raw-sts", **kept), **params)


def rows(encode, options):
    sets = {name: drawn_pairs(name, options.most) for name in options.only or STS}
    for feature, parts in FEATURES.items():
        encoders = [stored(encode, options, **params).fit([""]) for params in parts]
        of_sets = {}
        for name, (both, grades) in sets.items():
            texts, places = np.unique(both, return_inverse=True)
            vectors = [encoder.transform(list(texts)) for encoder in encoders]
            of_sets[name] = of_set(vectors, places.reshape(both.shape).T, grades)
        of_sets["mean"] = np.mean(list(of_sets.values()), axis=0)
        for name, scores in of_sets.items():
            for step, score in zip(STEPS, scores, strict=True):
                row = {"feature": feature, "step": step, "data": name}
                yield row | {"value": f"{score:.1f}"}


def drawn_pairs(name, most):
    """Return pairs of a set and their grades: all, or of a set but STS-B some at random."""
    both, grades = pairs(name)
    order = np.random.default_rng(0).permutation(len(both))
    order = order if name == "stsb" else order[:most]
    return both[order], grades[order]


def of_set(vectors, places, grades):
    """Return the correlation of each step, times 100."""
    cosines = []
    for step in STEPS.values():
        units = side_by_side(unit(clone(step).fit_transform(part)) for part in vectors)
        first, second = (units[side] for side in places)
        cosines.append((first * second).sum(axis=1))
    return 100 * correlations(grades, cosines)


def side_by_side(parts):
    """Concatenate vectors of unit length; the cosine is the mean of their cosines."""
    parts = list(parts)
    return np.hstack(parts) / len(parts) ** 0.5
