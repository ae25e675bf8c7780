"""Tables of word vectors: what `save_static` costs in quality, and model2vec's distillation.

Spearman's rho times 100, the average of the seven STS sets: of pipelines on MiniLM's embedding
layer and of their tables, fitted on STS-B's training sentences, and of model2vec's distillation
of the same model, if it is installed. ``benchmarks/static.py`` has the speed.
"""

import tempfile
from importlib.util import find_spec

import numpy as np
from data import STS, pairs, sentences
from measures import of_pairs
from sentence_transformers import SentenceTransformer
from sklearn.pipeline import make_pipeline

from skcalib import BertEncoder, Whitening
from skcalib.datasets import minilm_path
from skcalib.export import save_static

ENCODERS = {
    "Zipf": {"layers": 0, "pooling": "zipf"},
    "mean": {"layers": 0, "special_tokens": False},
}
WHITENINGS = {
    "exact": {},
    "regularized": {"noise": "auto"},
    "regularized, 256": {"noise": "auto", "n_components": 256},
}


def rows(encode, options):
    tests, train = [pairs(task) for task in STS], sentences(None).tolist()

    def score(vectors_of):
        sides = [[vectors_of(side.tolist()) for side in both.T] for both, _ in tests]
        grades = (grades for _, grades in tests)
        return f"{np.mean([of_pairs(*s, g) for s, g in zip(sides, grades, strict=True)]):.1f}"

    for pooling, params in ENCODERS.items():
        for name, of_whitening in WHITENINGS.items():
            steps = BertEncoder("minilm", **params), Whitening(**of_whitening)
            pipeline = make_pipeline(*steps).fit(train)
            with tempfile.TemporaryDirectory() as folder:
                save_static(pipeline, f"{folder}/table")
                table = SentenceTransformer(f"{folder}/table", device="cpu")
            yield {
                "row": f"{pooling}, {name}",
                "pipeline": score(pipeline.transform),
                "table": score(table.encode),
            }
    if find_spec("model2vec"):
        from model2vec.distill import distill

        for kept in (256, None):
            model = distill(minilm_path(), pca_dims=kept, device="cpu")
            yield {"row": f"model2vec, pca_dims={kept}", "table": score(model.encode)}
