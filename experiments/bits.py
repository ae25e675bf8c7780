"""Vectors as float32, int8 and bits: R-precision on Banking77's test questions.

The whitenings are fitted on 4,000 training questions. The codes are those of
sentence-transformers: int8 in the range that each dimension has among the fitted texts, and
signs. Coded vectors are compared by their cosine. "float query" compares the signs of stored
texts with queries in float32.
"""

import numpy as np
from data import FITTED, labeled
from measures import codes_of, precisions, unit
from sentence_transformers.util.quantization import quantize_embeddings
from sklearn.preprocessing import FunctionTransformer

from skcalib import Whitening

PARAMS = {
    "pca": {"n_components": 128},
    "rotated": {"n_components": 128, "method": "rotated"},
    "rotated, all": {"method": "rotated"},
}


def rows(encode, options):
    X = encode(labeled("Banking77", "train", FITTED)[0])
    texts, labels = labeled("Banking77", "test", options.most)
    T = encode(texts)
    steps = {name: Whitening(power="auto", **params) for name, params in PARAMS.items()}
    for name, step in ({"raw": FunctionTransformer()} | steps).items():
        fitted = step.fit(X)
        known, found = unit(fitted.transform(X)), unit(fitted.transform(T))
        coded = {
            "float32": found,
            "int8": quantize_embeddings(found, "int8", calibration_embeddings=known),
            "signs": np.unpackbits(quantize_embeddings(found, "ubinary"), axis=1) * 2.0 - 1,
        }
        row = {"method": name, "dimensions": found.shape[1]}
        cosines = {kind: unit(vectors) @ unit(vectors).T for kind, vectors in coded.items()}
        cosines["float query"] = found @ unit(coded["signs"]).T
        codes = codes_of(labels)
        for kind, similarity in cosines.items():
            value = precisions(similarity, codes[:, None] == codes).mean()
            row[kind] = f"{100 * value:.1f}"
        yield row
