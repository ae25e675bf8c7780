r"""Vectors of several encoders side by side, raw, calibrated and smoothed, against each alone.

    SKCALIB_DATA=folder python benchmarks/two_encoders.py E5 --memory vectors \
        --output docs/results/two-encoders.csv

The data lie beside the folder of ``SKCALIB_DATA``, as for ``comparison.py``. E5 is a folder
with multilingual-e5-small. "words" is TF-IDF, reduced to 128 dimensions by a truncated SVD, an
encoder that every machine has. No fit uses labels: each takes 2,000 texts of the training
half and is scored on 2,000 of the test half, or takes Cranfield's documents and queries. "raw"
scales each encoder's vectors to unit length, "calibrated" whitens them first, by
``Whitening(noise="auto")``, and "smoothed" adds `NeighborSmoothing` behind the union. "half"
is a weight of 0.5.

A row of several encoders has the gain over the best of them alone at the same step, and its
95 % interval by a paired bootstrap over texts or queries; average precision has no interval.
"""

import argparse
import csv
from pathlib import Path

import numpy as np
import pandas as pd
from comparison import DATA, SETS, intervals, precisions, resampled
from sklearn.base import clone
from sklearn.decomposition import TruncatedSVD
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.metrics import average_precision_score
from sklearn.pipeline import FeatureUnion, make_pipeline
from sklearn.preprocessing import Normalizer

from skcalib import BertEncoder, GroupErasure, NeighborSmoothing, VectorStore, Whitening
from skcalib.datasets import minilm_path
from skcalib.evaluation._beir import read_beir

TEXTS = 2000  # of each half
STEPS = "raw", "calibrated", "smoothed"
TOGETHER = {  # weights of the encoders
    "MiniLM": {"MiniLM": 1},
    "e5": {"e5": 1},
    "words": {"words": 1},
    "MiniLM + e5": {"MiniLM": 1, "e5": 1},
    "MiniLM + half e5": {"MiniLM": 1, "e5": 0.5},
    "MiniLM + words": {"MiniLM": 1, "words": 1},
    "MiniLM + half words": {"MiniLM": 1, "words": 0.5},
}


def encoders(e5, store, prompt="query: "):
    """Return the encoders by name; those of documents have another prompt."""
    params = {"pooling": "mean", "memory": store}
    words = make_pipeline(TfidfVectorizer(sublinear_tf=True), TruncatedSVD(128, random_state=0))
    return {
        "MiniLM": BertEncoder(minilm_path(), prompt="", **params),
        "e5": BertEncoder(e5, prompt=prompt, **params),
        "words": words,
    }


def labelled(data, options):
    """Yield a score, a step, a key of `TOGETHER`, and the score of each text."""
    fit, test = (pd.read_csv(DATA / f"{SETS[data]}-{half}.csv") for half in ("train", "test"))
    fit, test = (half.sample(TEXTS, random_state=0) for half in (fit, test))
    known, texts = fit["text"].to_numpy(), test["text"].to_numpy()
    codes = pd.factorize(test.iloc[:, 1])[0]
    for step in STEPS:
        calibrator = [] if step == "raw" else [Whitening(noise="auto")]
        blocks = {
            key: clone(make_pipeline(encoder, *calibrator, Normalizer())).fit(known)
            for key, encoder in encoders(*options).items()
        }
        for name, weights in TOGETHER.items():
            union = [(key, blocks[key]) for key in weights]
            model = FeatureUnion(union, transformer_weights=weights)
            X, T = model.transform(known), model.transform(texts)
            T = NeighborSmoothing().fit(X).transform(T) if step == "smoothed" else T
            unit = Normalizer().transform(T)
            cosines, same = unit @ unit.T, codes[:, None] == codes
            yield "R-precision", step, name, precisions(cosines, same)
            pairs = np.triu_indices(len(codes), k=1)
            precision = average_precision_score(same[pairs], cosines[pairs])
            yield "average precision", step, name, np.array([precision])


def ndcg(similarity, relevant):
    """nDCG@10 of each query."""
    order = np.argsort(-similarity, axis=1, kind="stable")[:, :10]
    discount = 1 / np.log2(np.arange(2, 12))
    best = -np.sort(-relevant, axis=1)[:, :10] @ discount
    return np.take_along_axis(relevant, order, axis=1) @ discount / best


def search(options):
    """Like `labelled`, for queries and documents, whose means a `GroupErasure` equals."""
    documents, queries, grades = read_beir(DATA / "retrieval" / "cranfield", "test")[:3]
    D, Q = list(documents.values()), list(queries.values())
    relevant = np.array([[of_query.get(name, 0) for name in documents] for of_query in grades])
    groups = np.repeat(["document", "query"], [len(D), len(Q)])
    sides = encoders(*options, "passage: "), encoders(*options)
    for step in STEPS:
        blocks = {}
        for key, encoder in sides[0].items():
            d = clone(encoder).fit(D)
            q = d if key == "words" else sides[1][key].fit(Q)
            vectors = np.vstack([d.transform(D), q.transform(Q)])
            if step != "raw":
                vectors = GroupErasure().fit(vectors, groups=groups).transform(vectors)
                vectors = Whitening(noise="auto").fit_transform(vectors)
            blocks[key] = Normalizer().transform(vectors)
        for name, weights in TOGETHER.items():
            vectors = np.hstack([weight * blocks[key] for key, weight in weights.items()])
            if step == "smoothed":
                vectors = NeighborSmoothing().fit(vectors[: len(D)]).transform(vectors)
            unit = Normalizer().transform(vectors)
            yield "nDCG@10", step, name, ndcg(unit[len(D) :] @ unit[: len(D)].T, relevant)


def rows_of(data, measured):
    """Yield the cells of a set; a union has its gain over the best of its encoders alone."""
    known = {}
    for score, step, name, of_each in measured:
        known[score, step, name] = of_each
        best = max((known[score, step, key] for key in TOGETHER[name]), key=np.mean)
        cells = [data, score, step, name, f"{100 * of_each.mean():.1f}"]
        several = len(TOGETHER[name]) > 1
        if several:
            cells.append(f"{100 * (of_each.mean() - best.mean()):+.1f}")
        if several and len(of_each) > 1:
            drawn = [[x[i].mean() for x in (best, of_each)] for i in resampled(len(best))]
            cells += [f"{100 * end:+.1f}" for end in intervals(np.transpose(drawn))[1]]
        print(*cells, flush=True)
        yield cells + [""] * (8 - len(cells))


def main(arguments):
    store = VectorStore(arguments.memory, layers=(-1,), pooling="mean")
    options = arguments.e5, store
    sets = {name: labelled(name, options) for name in SETS} | {"Cranfield": search(options)}
    with open(arguments.output, "w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, lineterminator="\n")
        columns = ["data", "score", "step", "encoders", "value", "gain", "low", "high"]
        writer.writerow(columns)
        for name, measured in sets.items():
            writer.writerows(rows_of(name, measured))
            file.flush()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("e5", metavar="E5", help="a folder with multilingual-e5-small")
    parser.add_argument("--memory", required=True, help="folder for vectors")
    parser.add_argument(
        "--output", type=Path, required=True, metavar="FILE", help="table (CSV)"
    )
    main(parser.parse_args())
