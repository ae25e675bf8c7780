"""What neighbours, languages, and one scale of similarity bring, with a tuned encoder.

    SKCALIB_DATA=folder python benchmarks/beyond_one_space.py MODEL [PARTS] --memory vectors

The folders ``tasks`` (Banking77: banking77-train.csv, banking77-test.csv) and ``languages``
(stsb-{de,es,fr}-{dev,test}.csv) lie beside that of ``SKCALIB_DATA``. MODEL is a folder, or
minilm. All fits are without labels: on 4,000 training questions, on STS-B's training sentences,
or on the dev sentences of four languages.
"""

import argparse
import os
from itertools import product
from pathlib import Path

import numpy as np
import pandas as pd
from scipy.stats import spearmanr
from sklearn.metrics import average_precision_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer

from skcalib import (
    BertEncoder,
    GroupErasure,
    NeighborSmoothing,
    SimilarityScale,
    VectorStore,
    Whitening,
)
from skcalib._vectors import unit_rows
from skcalib.datasets import fetch_sts, minilm_path
from skcalib.evaluation import evaluate_labelled
from skcalib.evaluation._sts import TASKS

DATA = Path(os.environ["SKCALIB_DATA"])
LANGUAGES = ("en", "de", "es", "fr")


def cosines(Z):
    unit = unit_rows(Z)[0]
    return unit @ unit.T


def banking():
    """Training questions to fit on, test questions and their intents."""
    fit, test = (
        pd.read_csv(DATA.parent / "tasks" / f"banking77-{split}.csv")
        for split in ("train", "test")
    )
    fit = np.random.default_rng(0).permutation(fit["text"].to_numpy())[:4000]
    return fit, test["text"].to_numpy(), test["category"].to_numpy()


def intents(encoder):
    fit, texts, y = banking()
    auto = make_pipeline(encoder, Whitening(noise="auto"))
    rows = {"raw": encoder, "auto": auto, "auto, smoothed": [auto, NeighborSmoothing()]}
    rows["auto, smoothed"] = make_pipeline(*rows["auto, smoothed"])
    print(evaluate_labelled(rows, texts, y, fit_on=fit))
    i, j = np.triu_indices(len(y), k=1)
    for name, pipeline in list(rows.items())[1:]:
        X, Z = pipeline.fit_transform(fit), pipeline.transform(texts)
        density = SimilarityScale().fit(X).density(Z)
        similarity = cosines(Z)[i, j] - (density[i] + density[j]) / 2
        found = average_precision_score(y[i] == y[j], similarity)
        print(f"duplicates by corrected similarity, {name}: {100 * found:.1f}")


def scales(encoder):
    """Thresholds from every other question, from those of the fit, and from another domain."""
    fit, texts, _ = banking()
    auto = make_pipeline(encoder, Whitening(noise="auto"))
    for name, Z in (
        ("raw", encoder.transform(texts)),
        ("auto", auto.fit(fit).transform(texts)),
    ):
        rates(SimilarityScale().fit(Z[::2]), Z[1::2], name)
    for n in (250, 1000, 4000):
        Z = auto.fit(fit[:n]).transform(texts)
        scale = SimilarityScale().fit(auto.transform(fit[:n]))
        rates(scale, Z, f"auto, the scale of the {n} texts of the whitening")
    train = fetch_sts("stsb", "train").data.ravel()
    scale = SimilarityScale().fit(auto.fit(train[::2]).transform(train[1::2]))
    rates(scale, auto.transform(texts), "auto, both of STS-B, Banking77")
    for task in TASKS:
        others = np.unique(fetch_sts(task, "test").data.ravel())[::2]
        rates(scale, auto.transform(others), f"auto, both of STS-B, {task}")


def rates(scale, Z, name):
    """Promised and found rates among the pairs of texts that were not fitted."""
    i, j = np.triu_indices(len(Z), k=1)
    found = cosines(Z)[i, j]
    for rate in (1e-2, 1e-3, 1e-4):
        if rate * scale.n_pairs_ < 10:
            continue
        threshold = scale.threshold(rate)
        share = np.mean(found >= threshold)
        print(f"  {name}: {rate:g} promised at {threshold:.2f}, found {share:.1e}")


def correlation(A, B, grades):
    a, b = unit_rows(A)[0], unit_rows(B)[0]
    return 100 * spearmanr((a * b).sum(axis=1), grades)[0]


def sts(encoder):
    train = encoder.transform(fetch_sts("stsb", "train").data.ravel())
    whitening = Whitening(noise="auto").fit(train)
    smoothing = NeighborSmoothing().fit(whitening.transform(train))
    print("Spearman's rho, raw, auto, and smoothed")
    for task in TASKS:
        pairs, grades = fetch_sts(task, "test", return_X_y=True)
        raw = [encoder.transform(pairs[:, i]) for i in (0, 1)]
        auto = [whitening.transform(X) for X in raw]
        smoothed = [smoothing.transform(Z) for Z in auto]
        scores = [correlation(*vectors, grades) for vectors in (raw, auto, smoothed)]
        print(f"  {task:8}" + "".join(f"{score:6.1f}" for score in scores))


def pairs_of(language, split):
    """Pairs of STS-B in a language, and their grades."""
    if language == "en":
        return fetch_sts("stsb", split, return_X_y=True)
    frame = pd.read_csv(DATA.parent / "languages" / f"stsb-{language}-{split}.csv")
    return frame[["sentence1", "sentence2"]].to_numpy(), frame.iloc[:, -1].to_numpy()


def pool(encoder):
    encode, texts = encoder.transform, {}
    for split, language in product(("dev", "test"), LANGUAGES):
        # Both sentences of a pair to fit, the first to search.
        both = pairs_of(language, split)[0].ravel()
        texts[split, language] = both if split == "dev" else both[::2]
    first = np.unique(texts["test", "en"], return_index=True)[1]
    fit = np.concatenate([texts["dev", language] for language in LANGUAGES])
    groups = np.repeat(LANGUAGES, len(fit) // 4)
    X, T = encode(fit), np.vstack([encode(texts["test", x][first]) for x in LANGUAGES])
    text = np.tile(np.arange(len(first)), 4)
    print(
        f"One pool of four languages, {len(first)} texts each: translations among the 3 nearest"
    )
    maps = {"raw": FunctionTransformer(), "auto": Whitening(noise="auto").fit(X)}
    place = np.arange(len(X)) % (len(X) // 4)  # within its language
    rows = {"erased, auto": place >= 0, "no es erased": groups != "es"}
    rows |= {f"{n} erased": place < n for n in (20, 50)}
    for name, erased in rows.items():
        erasure = GroupErasure().fit(X[erased], groups=groups[erased])
        whitening = Whitening(noise="auto").fit(erasure.transform(X))
        maps[name] = make_pipeline(erasure, whitening)
    for name, fitted in maps.items():
        found = cosines(fitted.transform(T))
        np.fill_diagonal(found, -np.inf)
        nearest = np.argpartition(-found, 3, axis=1)[:, :3]
        print(f"  {name:16}{100 * np.mean(text[nearest] == text[:, None]):6.1f}")


def genres(encoder):
    """Halves of STS-B's test pairs: by genre, since the file is sorted by it, or at random."""
    print("Fitted on one half, scored on the other: raw, auto, recentered, fitted on the new;")
    print("distance of means, ratio of Mahalanobis distances, verdict")
    for language in LANGUAGES:
        pairs, grades = pairs_of(language, "test")
        order = np.arange(len(pairs)), np.random.default_rng(0).permutation(len(pairs))
        for name, rows in zip(("by genre", "at random"), order, strict=True):
            halves = np.array_split(rows, 2)
            for k, (old, new) in enumerate((halves, halves[::-1])):
                fitted = Whitening(noise="auto").fit(encoder.transform(pairs[old].ravel()))
                X = encoder.transform(pairs[new].ravel())
                own = Whitening(noise="auto").fit(X)
                maps = (fitted, fitted.recentered(X), own)
                vectors = [X, *(whitening.transform(X) for whitening in maps)]
                scores = [correlation(Z[::2], Z[1::2], grades[new]) for Z in vectors]
                shift = fitted.shift(X)
                print(
                    f"  {language} {name:10}{k + 1} to {2 - k}"
                    + "".join(f"{score:6.1f}" for score in scores)
                    + f"{shift.mean_distance:8.2f}{shift.mahalanobis_ratio:6.2f}"
                    + f"  {shift.is_shifted}",
                    flush=True,
                )


if __name__ == "__main__":
    parts = {f.__name__: f for f in (intents, scales, sts, pool, genres)}
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model", metavar="MODEL")
    parser.add_argument("parts", nargs="*", choices=parts, help="default: all")
    parser.add_argument("--memory", required=True, help="folder for vectors")
    options = parser.parse_args()
    model = minilm_path() if options.model == "minilm" else options.model
    store = VectorStore(options.memory, layers=(-1,), pooling="mean")
    encoder = BertEncoder(model, pooling="mean", memory=store).fit(["one text"])
    for part in options.parts or parts:
        parts[part](encoder)
