"""How many texts a fit needs: differences to raw vectors after fits on few, three ways.

The mean of five draws of n texts and, in brackets, the worst: Spearman's rho on STS-B's test
pairs after fits on its training sentences; R-precision among 1,000 test questions
of Banking77 after fits on its training questions.
"""

import numpy as np
from data import FITTED, labeled, pairs, sentences
from measures import of_pairs, r_precision

from skcalib import Whitening

STEPS = {
    'power="auto"': {"power": "auto"},
    'shrinkage="auto"': {"shrinkage": "auto"},
    "exact": {"tol": 1e-6},  # which leaves out directions that few texts do not span
}


def rows(encode, options):
    both, grades = pairs("stsb")
    sides = [encode(side) for side in both.T]
    texts, labels = labeled("Banking77", "test", options.most or 1000)
    T = encode(texts)

    def of_sentences(transform):
        return [of_pairs(*map(transform, sides), grades)]

    def of_questions(transform):
        return [r_precision(transform(T), labels)]

    questions = labeled("Banking77", "train", FITTED)[0]
    fits = (sentences(), of_sentences), (questions, of_questions)
    parts = [(encode(fit_on), score, score(np.asarray)) for fit_on, score in fits]
    rng = np.random.default_rng(0)
    for n in (50, 100, 200, 500, 1000, 2000):
        found = {step: [] for step in STEPS}
        for _ in range(5):
            samples = [X[rng.choice(len(X), n, replace=False)] for X, *_ in parts]
            for step, params in STEPS.items():
                differences = []
                for sample, (_, score, raw) in zip(samples, parts, strict=True):
                    fitted = Whitening(**params).fit(sample)
                    differences += list(np.subtract(score(fitted.transform), raw))
                found[step].append(differences)
        for step, draws in found.items():
            cells = zip(np.mean(draws, axis=0), np.min(draws, axis=0), strict=True)
            shown = (f"{mean:+z.1f} ({worst:+z.1f})" for mean, worst in cells)
            scores = "STS-B", "R-precision"
            yield {"n": n, "step": step} | dict(zip(scores, shown, strict=True))
