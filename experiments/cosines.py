"""Cosines and spectrum of a raw language model and of an encoder, before and after.

The calibration, ``Whitening(power="auto")``, is fitted on 500 of Banking77's training
questions. The pairs are those of 500 test questions, with the same intent ("related") or with
different ones. SmolLM2 has the last token and words around the text. "threshold" is the cosine
that 1 % of unrelated pairs reach, "related above" the percentage of related pairs that reach
it. Columns such as "related 0.20" have the percentage of pairs in a bin that begins there, and
"singular value 8" has the eighth, relative to the first. `docs/draw.py` draws the pictures.
"""

import numpy as np
import raw_depths
from data import texts_of
from measures import unit

from skcalib import Whitening

EDGES = np.linspace(-0.4, 1, 71)
RANKS = 2 ** np.arange(9)


def rows(encode, options):
    fitted, texts, codes = texts_of("Banking77")
    first, second = np.triu_indices(len(codes), k=1)
    same = codes[first] == codes[second]
    models = {
        "SmolLM2": raw_depths.stored(encode.named("smollm2"), options, "last, prompt"),
        "e5": encode.named("e5").bert(),
    }
    for model, encoder in models.items():
        X, Z = (encoder.fit_transform(list(of)) for of in (fitted, texts))
        for step in ("raw", "calibrated"):
            if step == "calibrated":
                Z = Whitening(power="auto").fit(X).transform(Z)
            units = unit(Z)
            cosines = (units @ units.T)[first, second]
            threshold = np.quantile(cosines[~same], 0.99)
            row = {"model": model, "step": step, "threshold": f"{threshold:.2f}"}
            row["related above"] = f"{100 * np.mean(cosines[same] >= threshold):.0f}"
            for kind, kept in {"unrelated": ~same, "related": same}.items():
                row[f"{kind} mean"] = f"{cosines[kept].mean():z.2f}"
                shares = 100 * np.histogram(cosines[kept], EDGES)[0] / kept.sum()
                bins = zip(EDGES, shares, strict=False)
                row |= {f"{kind} {edge:z.2f}": f"{share:.2f}" for edge, share in bins}
            values = np.linalg.svd(Z, compute_uv=False)
            values = {f"singular value {n}": values[n - 1] / values[0] for n in RANKS}
            yield row | {name: f"{value:.3f}" for name, value in values.items()}
