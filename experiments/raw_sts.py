"""The papers' evaluation on a language model that was not trained for similarity.

Spearman's rho of the cosine and the grade, over all pairs of a set ("all" in the papers'
terms), after fits on the sentences of the scored pairs, without grades ("target"), or on 4,000
sentences of STS-B's training pairs ("other texts"). Each has its difference to raw vectors of
that feature and the 95 % interval of a paired bootstrap over pairs. "mean" is the average of
the seven sets. "side by side" has the last token in words around the text beside the mean of
its second occurrence, each after the step and of unit length. ``--most`` limits the pairs of
the sets other than STS-B.
"""

import numpy as np
from contenders import chosen
from data import STS, distinct, drawn_pairs, sentences
from measures import intervals, of_places, unit, with_resamples
from sklearn.base import clone
from sklearn.frozen import FrozenEstimator

from skcalib import NormalizingFlow, VectorStore, Whitening

# A language model that was not trained for similarity reads texts up to a length.
PLAIN = {"max_length": 64}
TEMPLATE = 'This sentence : "{text}" means in one word:"'
AROUND = {"max_length": 84, "prompt": TEMPLATE, "pooling": "last"}
# The text twice: a decoder has seen all of it when it reads the second (Springer et al., 2024).
TWICE = "Rewrite the sentence: {text}\nRewritten sentence: {text}"
SECOND = {"max_length": 140, "prompt": TWICE}
FEATURES = {
    "last": [PLAIN],
    "first_last": [PLAIN | {"layers": "first_last"}],
    "last2": [PLAIN | {"layers": "last2"}],
    "embedding": [PLAIN | {"layers": 0}],
    "layer 1": [PLAIN | {"layers": 1}],
    "last token": [PLAIN | {"pooling": "last"}],
    "last token, prompt": [AROUND],
    "second text": [SECOND],
    "side by side": [AROUND, SECOND],
}
STEPS = {
    **chosen("raw", "StandardScaler", "PCA(256, whiten=True)", "exact", "default", "many"),
    "flow": NormalizingFlow(random_state=0),
    "exact, 256": Whitening(256),
}
OF_OTHERS = {f"{step}, other texts": STEPS[step] for step in ("flow", "exact, 256")}


def stored(encode, options, **params):
    """Return an encoder with a store of the layers and poolings that these experiments use."""
    kept = {"layers": (0, 1, -2, -1), "pooling": ("mean", "last")}
    return encode.bert(memory=VectorStore(options.memory / "raw-sts", **kept), **params)


def rows(encode, options):
    sets = {name: drawn_pairs(name, options.most) for name in options.only or STS}
    for feature, parts in FEATURES.items():
        encoders = [stored(encode, options, **params).fit([""]) for params in parts]
        steps, of_sets = dict(STEPS), {}
        if "prompt" not in parts[0]:
            others = encoders[0].transform(list(sentences()))
            for name, step in OF_OTHERS.items():
                steps[name] = FrozenEstimator(clone(step).fit(others))
        for name, (both, grades) in sets.items():
            texts, places = distinct(both)
            vectors = [encoder.transform(texts) for encoder in encoders]
            cosines = [of_places(mapped(step, vectors), places) for step in steps.values()]
            of_sets[name] = with_resamples(grades, cosines)
        of_sets["mean"] = np.mean(list(of_sets.values()), axis=0)
        for name, samples in of_sets.items():
            ends = intervals(samples[:, 1:])
            for step, (score, *_), (low, high) in zip(steps, samples, ends, strict=True):
                row = {"feature": feature, "step": step, "data": name}
                row["value"] = f"{score:.1f}"
                row["difference"] = f"{score - samples[0, 0]:+z.1f}"
                yield row | {"low": f"{low:+z.1f}", "high": f"{high:+z.1f}"}


def mapped(step, fitted, vectors=None):
    """Return a step's vectors of unit length by each part of a feature, side by side."""
    pairs = zip(fitted, vectors or fitted, strict=True)
    units = [unit(clone(step).fit(X, None).transform(Z)) for X, Z in pairs]
    return np.hstack(units) / len(units) ** 0.5  # of unit length, too
