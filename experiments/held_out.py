"""Rare rates: how many times more pairs exceed a threshold than its rate requested.

The threshold comes from one half of the texts, after a whitening of these, and the pairs of the
other half are searched.
"""

import numpy as np
from data import labelled
from measures import unit
from sklearn.pipeline import make_pipeline

from skcalib import SimilarityScale, Whitening

SETS = {"Banking77": "Banking77", "biomedical": "titles"}


def rows(encode, options):
    for name, shown in SETS.items():
        texts = np.concatenate([labelled(name, half)[0] for half in ("train", "test")])
        texts = np.unique([text.strip() for text in texts])
        texts = np.random.default_rng(0).permutation(texts)[: options.most]
        pipeline = make_pipeline(encode.bert(), Whitening(noise="auto"))
        scale = SimilarityScale().fit(pipeline.fit_transform(texts[::2]))
        units = unit(pipeline.transform(texts[1::2])).astype(np.float32)
        cosines = (units @ units.T)[np.triu_indices(len(units), 1)]
        row = {"data": shown}
        for rate in (1e-4, 1e-5, 1e-6):
            above = np.mean(cosines > scale.threshold(rate, extrapolate=True))
            row[f"{rate:.0e}".replace("e-0", "e-")] = f"{above / rate:.1f}"
        yield row
