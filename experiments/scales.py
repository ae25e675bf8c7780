"""How accurate the thresholds of `SimilarityScale` are: the rates that other texts show.

"halves": fitted on every other test question of Banking77, observed among the pairs of the
others. "n texts": whitening and scale fitted on the same n training questions, observed on the
test questions. "STS-B": both fitted on training sentences of STS-B, observed on other texts.
"""

import numpy as np
from data import STS, labeled, pairs, sentences
from measures import unit

from skcalib import SimilarityScale, Whitening

RATES = 1e-2, 1e-3, 1e-4, 1e-5


def rows(encode, options):
    fit, texts = (encode(labeled("Banking77", h)[0]) for h in ("train", "test"))
    fit = np.random.default_rng(0).permutation(fit)
    auto = Whitening(power="auto").fit(fit[:4000])
    for step, Z in (("raw", texts), ("whitened", auto.transform(texts))):
        row = {"fitted on": "halves", "data": "Banking77", "step": step}
        yield from rates(SimilarityScale().fit(Z[::2]), Z[1::2], row)
    train = encode(sentences())
    scale = SimilarityScale().fit(auto.fit(train[::2]).transform(train[1::2]))
    others = {task: np.unique(pairs(task)[0].ravel())[::2] for task in STS}
    sets = {task: encode(of_task) for task, of_task in others.items()} | {"Banking77": texts}
    for data, X in sets.items():
        row = {"fitted on": "STS-B", "data": data, "step": "whitened"}
        yield from rates(scale, auto.transform(X), row)


def rates(scale, Z, row):
    """Yield requested and observed rates of pairs."""
    units = unit(Z)
    found = (units @ units.T)[np.triu_indices(len(Z), k=1)]
    for rate in RATES:
        if rate * scale.n_pairs_ >= 10:
            threshold = scale.threshold(rate)
            observed = np.mean(found >= threshold)
            yield row | {
                "rate": f"{rate:.0e}".replace("e-0", "e-"),
                "threshold": f"{threshold:.2f}",
                "observed": f"{observed:.1e}".replace("e-0", "e-"),
                "ratio": f"{observed / rate:.1f}",
            }
