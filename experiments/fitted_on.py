"""Fit on what: R-precision on Banking77's test questions after fits on several kinds of texts.

Three layers and poolings of MiniLM; fits on 1,000 and 100 texts are means of five draws.
"""

import numpy as np
from data import labelled, sentences
from layers import store
from measures import codes_of, precisions, unit

from skcalib import Whitening

STATES = {"6, mean": ("mean", 6), "3, Zipf": ("zipf", 3), "3, mean": ("mean", 3)}
STEPS = {"auto": Whitening(noise="auto"), "exact": Whitening(tol=1e-6)}


def rows(encode, options):
    memory, questions = store(options), np.unique(labelled("Banking77", "train")[0].astype(str))
    texts, labels = labelled("Banking77", "test", options.most)
    codes, rng = codes_of(labels), np.random.default_rng(0)
    samples = {
        "the questions that are searched": [texts],
        f"{len(questions):,} other questions": [questions],
        "1,000 other questions": [rng.choice(questions, 1000, replace=False) for _ in range(5)],
        "100 other questions": [rng.choice(questions, 100, replace=False) for _ in range(5)],
        "4,000 sentences of STS-B": [sentences()],
    }
    states = {
        column: encode.bert(pooling=pooling, layers=layer, memory=memory).fit([""])
        for column, (pooling, layer) in STATES.items()
    }
    scored = {column: encoder.transform(texts.tolist()) for column, encoder in states.items()}

    def score(vectors):
        units = unit(vectors)
        return 100 * precisions(units @ units.T, codes[:, None] == codes).mean()

    raw = {column: f"{score(T):.1f}" for column, T in scored.items()}
    yield {"step": "raw", "fitted on": "nothing: raw"} | raw
    for step, whitening in STEPS.items():
        for name, draws in samples.items():
            row = {"step": step, "fitted on": name}
            for column, encoder in states.items():
                T, fits = scored[column], (encoder.transform(draw.tolist()) for draw in draws)
                found = [score(whitening.fit(X).transform(T)) for X in fits]
                row[column] = f"{np.mean(found):.1f}"
            yield row
