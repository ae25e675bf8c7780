"""The papers' evaluation on a language model that was not trained for similarity.

Spearman's rho of the cosine and the grade, over all pairs of a set ("all" in the papers'
terms), after fits without grades: on the sentences of the scored pairs ("target"), or on
STS-B's training sentences ("train"). Each has its difference to raw vectors of that feature and
the 95 % interval of a paired bootstrap over pairs. "mean" is the average of the seven sets.
"exact, 64" keeps 64 dimensions.
"""

import numpy as np
from data import LENGTH, LENGTH_WITH_TEMPLATE, STS, TEMPLATE, pairs, sentences
from measures import correlations, intervals, resampled, unit
from sklearn.base import clone
from sklearn.preprocessing import FunctionTransformer

from skcalib import NormalizingFlow, VectorStore, Whitening

PLAIN = {"max_length": LENGTH}
AROUND = {"max_length": LENGTH_WITH_TEMPLATE, "prompt": TEMPLATE, "pooling": "last"}
FEATURES = {
    "last": PLAIN,
    "first_last": PLAIN | {"layers": "first_last"},
    "last2": PLAIN | {"layers": "last2"},
    "embedding": PLAIN | {"layers": 0},
    "layer 1": PLAIN | {"layers": 1},
    "last token": PLAIN | {"pooling": "last"},
    "last token, prompt": AROUND,
}
CUT = "first_last", "last token, prompt"  # to some of the dimensions
KEPT = 64, 128, 256
STEPS = {
    "raw": FunctionTransformer(),
    "flow": NormalizingFlow(random_state=0),
    "exact": Whitening(),
    "auto": Whitening(power="auto"),
    "many": Whitening(power="auto", n_groups="many"),
}
BY_DIMENSION = {f"exact, {n}": Whitening(n) for n in KEPT}


def stored(encode, options, **params):
    """Return an encoder with a store of the layers and poolings that these experiments use."""
    kept = {"layers": (0, 1, -2, -1), "pooling": ("mean", "last")}
    return encode.bert(memory=VectorStore(options.memory / "raw-sts", **kept), **params)


def rows(encode, options):
    sets = {name: drawn_pairs(name, options.most) for name in options.only or STS}
    for feature, params in FEATURES.items():
        encoder = stored(encode, options, **params).fit([""])
        steps = STEPS | (BY_DIMENSION if feature in CUT else {})
        maps = fitted_steps(steps, encoder.transform(list(sentences())))
        found = {}
        for name, (both, grades) in sets.items():
            texts, places = np.unique(both, return_inverse=True)
            vectors, places = encoder.transform(list(texts)), places.reshape(both.shape).T
            found[name, "train"] = of_set(maps, vectors, places, grades)
            on_target = fitted_steps(steps, vectors)
            found[name, "target"] = of_set(on_target, vectors, places, grades)
        for fitted in ("target", "train"):
            of_sets = {name: found[name, fitted] for name in sets}
            of_sets["mean"] = np.mean(list(of_sets.values()), axis=0)
            for name, samples in of_sets.items():
                ends = intervals(samples[:, 1:])
                for step, (score, *_), (low, high) in zip(steps, samples, ends, strict=True):
                    row = {"feature": feature, "fitted": fitted, "step": step, "data": name}
                    row["value"] = f"{score:.1f}"
                    row["difference"] = f"{score - samples[0, 0]:+z.1f}"
                    yield row | {"low": f"{low:+z.1f}", "high": f"{high:+z.1f}"}


def drawn_pairs(name, most):
    """Return pairs of a set and their grades: all, or some at random."""
    both, grades = pairs(name)
    rows = np.random.default_rng(0).permutation(len(both))[:most]
    return both[rows], grades[rows]


def fitted_steps(steps, X):
    return [clone(step).fit(X) for step in steps.values()]


def of_set(maps, vectors, places, grades):
    """Return the correlations of fitted steps, (n_steps, 1 + resamples), times 100."""
    cosines = []
    for fitted in maps:
        units = unit(fitted.transform(vectors))
        first, second = (units[side] for side in places)
        cosines.append((first * second).sum(axis=1))
    cosines = np.array(cosines)
    drawn = (correlations(grades[i], cosines[:, i]) for i in resampled(len(grades)))
    return 100 * np.transpose([correlations(grades, cosines), *drawn])
