"""What else might help: other weights of words, more layers, unions of calibrated vectors.

Run by hand::

    SKCALIB_DATA=folder python benchmarks/features.py --memory vectors

Each line is fitted on STS-B's training sentences, and open parameters are chosen on STS-B dev.
The output is Spearman's rho times 100 on dev, and the average over the seven test sets.
"""

import argparse
import itertools
import os

os.environ.setdefault("HF_HUB_OFFLINE", "1")

import numpy as np
from scipy.stats import rankdata

from skcalib import BertEncoder, Whitening
from skcalib.datasets import fetch_sts, minilm_path
from skcalib.encoders.model.batches import BertModel

TASKS = ("stsb", "sickr", "sts12", "sts13", "sts14", "sts15", "sts16")
CALIBRATIONS = [("raw", None)] + [
    (f"k={k or 'all'} s={s}", {"n_components": k, "shrinkage": s})
    for k, s in itertools.product((128, 256, None), (0.5, 0.9, 0.97))
]


class Benchmarks:
    """All distinct texts of the sets, and scores of vectors for them."""

    def __init__(self):
        self.sets = {task: fetch_sts(task) for task in TASKS}
        self.sets["dev"] = fetch_sts("stsb", "dev")
        train = fetch_sts("stsb", "train").data
        pairs = [train, *(s.data for s in self.sets.values())]
        self.texts, inverse = np.unique(
            np.concatenate([p.ravel() for p in pairs]).astype(str), return_inverse=True
        )
        parts = np.split(inverse, np.cumsum([p.size for p in pairs])[:-1])
        self.train = np.unique(parts[0])
        self.rows = {
            name: part.reshape(-1, 2) for name, part in zip(self.sets, parts[1:], strict=True)
        }

    def score(self, vectors, name):
        a, b = vectors[self.rows[name]].astype(np.float64).transpose(1, 0, 2)
        cosine = np.sum(a * b, 1) / np.linalg.norm(a, axis=1) / np.linalg.norm(b, axis=1)
        return 100 * np.corrcoef(rankdata(cosine), rankdata(self.sets[name].target))[0, 1]

    def average(self, vectors):
        return np.mean([self.score(vectors, task) for task in TASKS])

    def calibrated(self, vectors):
        """Yield the name of each calibration and its vectors."""
        spectra = {}
        for name, options in CALIBRATIONS:
            if options is None:
                yield name, vectors
                continue
            key = options["shrinkage"]
            if key not in spectra:
                spectra[key] = Whitening(shrinkage=key).fit(vectors[self.train])
            yield name, spectra[key].transform(vectors)[:, : options["n_components"]]

    def chosen(self, vectors):
        """Return the best score on dev, the name of its calibration, and the vectors."""
        return max(
            ((self.score(v, "dev"), name, v) for name, v in self.calibrated(vectors)),
            key=lambda entry: entry[0],
        )


def weighted(encoder, texts, weights):
    """Pool the embeddings with weights of token ids."""
    backbone = encoder._backbone()
    backbone.zipf = weights.astype(np.float32)
    out = np.empty((len(texts), backbone.width), dtype=np.float32)
    for batch in BertModel(backbone, encoder._recipe).encode(list(texts)):
        out[batch.rows] = batch.vectors[:, 0]
    return out


def frequency_weights(backbone, benchmarks):
    """Yield names and weights per token id, from vocabulary ranks or counts in the corpus."""
    zipf = backbone.zipf.astype(np.float64)
    rank = np.expm1(zipf)  # 0 for special tokens
    yield "log(1 + rank), as pooling='zipf'", zipf
    yield "log(1 + rank)^2", zipf**2
    yield "sqrt(log(1 + rank))", np.sqrt(zipf)
    for power in (0.25, 0.5, 1.0):
        yield f"rank^{power}", rank**power
    for a in (1e-2, 1e-3):  # SIF (Arora et al., 2017), with Zipf's law for p
        p = 1 / np.maximum(rank, 1) / np.log(len(rank))
        yield f"a / (a + p), a={a}, p by Zipf's law", a / (a + p) * (zipf > 0)
    texts = benchmarks.texts[benchmarks.train].tolist()
    count, total = np.ones(len(zipf)), len(texts)
    for ids in backbone.tokenizer(texts)["input_ids"]:
        count[list(set(ids))] += 1
    yield "idf counted on STS-B train", np.log((1 + total) / count) * (zipf > 0)
    p = count / count.sum()
    yield "a / (a + p), a=1e-3, p counted on train", 1e-3 / (1e-3 + p) * (zipf > 0)


def line(name, benchmarks, vectors):
    dev, chosen, calibrated = benchmarks.chosen(vectors)
    print(f"| {name} | {benchmarks.average(vectors):.1f} | {chosen} | {dev:.1f} |", end="")
    print(f" {benchmarks.average(calibrated):.1f} |", flush=True)
    return calibrated


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--memory", default=None, help="folder for vectors")
    memory = parser.parse_args().memory
    benchmarks = Benchmarks()
    texts = list(benchmarks.texts)

    def pooled(layers, pooling="zipf", **options):
        encoder = BertEncoder(
            minilm_path(), layers=layers, pooling=pooling, memory=memory, **options
        )
        return encoder.fit_transform(texts)

    print("| | raw | chosen | dev | average |\n|---|---|---|---|---|")
    encoder = BertEncoder(minilm_path(), layers=0, pooling="zipf").fit(texts[:1])
    backbone = encoder._backbone()
    original = backbone.zipf
    for name, weights in frequency_weights(backbone, benchmarks):
        line(f"layer 0, {name}", benchmarks, weighted(encoder, texts, weights))
    backbone.zipf = original
    for layers in ((0, 3), (0, 5), (3, 5), (0, 3, 5), (0, 2, 4, 5), tuple(range(7))):
        for merge in ("mean", "concat"):
            vectors = pooled(layers, layer_merge=merge)
            line(f"zipf {'+'.join(map(str, layers))}, {merge}", benchmarks, vectors)
    parts = {}
    for name, options in {
        "zipf 0": {"layers": 0},
        "zipf 5": {"layers": 5},
        "mean 6 without special tokens": {
            "layers": 6,
            "pooling": "mean",
            "special_tokens": False,
        },
    }.items():
        calibrated = line(name, benchmarks, pooled(**options))
        parts[name] = calibrated / np.linalg.norm(calibrated, axis=1, keepdims=True)
    best = max(
        (
            (benchmarks.score(union, "dev"), weights, union)
            for weights in itertools.product((0.0, 0.25, 0.5, 1.0), repeat=3)
            if max(weights) == 1.0
            for union in [
                np.hstack([w * v for w, v in zip(weights, parts.values(), strict=True)])
            ]
        ),
        key=lambda entry: entry[0],
    )
    print(f"| union of the last three, weights {best[1]} | | | {best[0]:.1f} |", end="")
    print(f" {benchmarks.average(best[2]):.1f} |")
