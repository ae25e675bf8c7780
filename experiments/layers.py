"""Layers and poolings of MiniLM: raw, whitened exactly, with shrinkage, neutral, and a flow.

STS is Spearman's rho, averaged over the seven sets, after a fit on 4,000 of STS-B's
training sentences; Banking77 is R-precision among its test questions after a fit on 4,000
training questions.
"""

import numpy as np
from data import FITTED, STS, labeled, pairs, sentences
from measures import of_pairs, r_precision
from sklearn.preprocessing import FunctionTransformer

from skcalib import NormalizingFlow, VectorStore, Whitening

STATES = ("mean", 6), ("mean", 3), ("mean", 0), ("zipf", 3), ("zipf", 0), ("cls", 3), ("max", 3)
STEPS = {
    "exact": Whitening(),
    "exact, 256 kept": Whitening(256),
    "shrinkage 0.5": Whitening(shrinkage=0.5),
    "auto": Whitening(noise="auto"),
    "flow": NormalizingFlow(random_state=0),
    "flow, auto": NormalizingFlow(noise="auto", random_state=0),
}


def rows(encode, options):
    kept = {"layers": (0, 3, 6), "pooling": ("mean", "cls", "max", "zipf")}
    memory, tests = VectorStore(options.memory / "layers", **kept), [pairs(t) for t in STS]
    texts, labels = labeled("Banking77", "test", options.most)

    def sts(vectors_of):
        return np.mean([of_pairs(*map(vectors_of, both.T), grades) for both, grades in tests])

    def banking(vectors_of):
        return r_precision(vectors_of(texts), labels)

    tasks = {
        "STS": (sentences(), sts),
        "Banking77": (labeled("Banking77", "train", FITTED)[0], banking),
    }
    for pooling, layer in STATES:
        encoder = encode.bert(pooling=pooling, layers=layer, memory=memory).fit([""])
        for task, (fit_on, score) in tasks.items():
            X = encoder.transform(fit_on.tolist())
            row = {"pooling": pooling, "layer": layer, "task": task}
            for name, step in ({"raw": FunctionTransformer()} | STEPS).items():
                after = step.fit(X).transform

                def vectors_of(some, encode=encoder.transform, after=after):
                    return after(encode(some.tolist()))

                row[name] = f"{score(vectors_of):.1f}"
            yield row
