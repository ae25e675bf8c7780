"""What neighbours, languages, and one scale of similarity bring, with a tuned encoder.

    SKCALIB_DATA=folder python benchmarks/beyond_one_space.py MODEL --memory vectors

The folders ``tasks`` (Banking77: banking77-train.csv, banking77-test.csv) and ``languages``
(stsb-{de,es,fr}-{dev,test}.csv) lie beside that of ``SKCALIB_DATA``. MODEL is a folder, or
minilm. All fits are without labels: on 4,000 training questions, on STS-B's training sentences,
or on the dev sentences of four languages.
"""

import argparse
import os
import warnings
from pathlib import Path

import numpy as np
import pandas as pd
from scipy.stats import spearmanr
from sklearn.cluster import KMeans
from sklearn.metrics import average_precision_score, normalized_mutual_info_score
from sklearn.pipeline import make_pipeline

from skcalib import (
    BertEncoder,
    GroupErasure,
    NeighborSmoothing,
    SimilarityScale,
    VectorStore,
    Whitening,
)
from skcalib.datasets import fetch_sts, minilm_path
from skcalib.metrics import unit_rows

DATA = Path(os.environ["SKCALIB_DATA"])
LANGUAGES = ("en", "de", "es", "fr")


def r_precision(Z, y):
    unit = unit_rows(Z)[0]
    cosines = unit @ unit.T
    np.fill_diagonal(cosines, -np.inf)
    order, same = np.argsort(-cosines, axis=1), y == y[:, None]
    scores = []
    for row, found in enumerate(order):
        relevant = np.count_nonzero(same[row]) - 1
        scores.append(same[row, found[:relevant]].mean())
    return 100 * np.mean(scores)


def duplicates(similarities, y):
    """Average precision over all pairs, at one threshold for all."""
    i, j = np.triu_indices(len(y), k=1)
    return 100 * average_precision_score(y[i] == y[j], similarities[i, j])


def cosines(Z):
    unit = unit_rows(Z)[0]
    return unit @ unit.T


def intents(encode, fit, test, y):
    X, T = encode(fit), encode(test)
    whitening = Whitening(noise="auto").fit(X)
    X, Z = whitening.transform(X), whitening.transform(T)
    smoothing, scale = NeighborSmoothing().fit(X), SimilarityScale().fit(X)
    density = scale.density(Z)
    print("Banking77: R-precision, k-means NMI, average precision of duplicates")
    for name, vectors in (("raw", T), ("auto", Z), ("auto, smoothed", smoothing.transform(Z))):
        clusters = KMeans(77, n_init=3, random_state=0).fit_predict(unit_rows(vectors)[0])
        nmi = 100 * normalized_mutual_info_score(y, clusters)
        ap = duplicates(cosines(vectors), y)
        print(f"  {name:16}{r_precision(vectors, y):6.1f}{nmi:6.1f}{ap:6.1f}")
    corrected = cosines(Z) - (density[:, None] + density) / 2
    print(f"  auto, corrected {duplicates(corrected, y):18.1f}")
    rates(SimilarityScale().fit(T[::2]), T[1::2], "raw")
    rates(SimilarityScale().fit(Z[::2]), Z[1::2], "auto")


def rates(scale, Z, name):
    """Promised and found rates among the pairs of texts that were not fitted."""
    i, j = np.triu_indices(len(Z), k=1)
    found = cosines(Z)[i, j]
    for rate in (1e-2, 1e-3, 1e-4):
        threshold = scale.threshold(rate)
        share = np.mean(found >= threshold)
        print(f"  {name}: {rate:g} promised at {threshold:.2f}, found {share:.1e}")


def sts(encode):
    train = encode(fetch_sts("stsb", "train").data.ravel())
    pairs, grades = fetch_sts("stsb", "test", return_X_y=True)
    A, B = encode(pairs[:, 0]), encode(pairs[:, 1])
    whitening = Whitening(noise="auto").fit(train)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        smoothing = NeighborSmoothing().fit(whitening.transform(train))
    print(f"STS-B test: Spearman's rho; smoothing warns: {bool(caught)}")
    calibrated = [whitening.transform(X) for X in (A, B)]
    smoothed = [smoothing.transform(Z) for Z in calibrated]
    for name, (a, b) in (("raw", (A, B)), ("auto", calibrated), ("auto, smoothed", smoothed)):
        a, b = unit_rows(a)[0], unit_rows(b)[0]
        print(f"  {name:16}{100 * spearmanr((a * b).sum(axis=1), grades)[0]:6.1f}")


def pool(encode):
    texts = {}
    for split in ("dev", "test"):
        pairs = {"en": fetch_sts("stsb", split).data}
        for language in LANGUAGES[1:]:
            file = DATA.parent / "languages" / f"stsb-{language}-{split}.csv"
            pairs[language] = pd.read_csv(file)[["sentence1", "sentence2"]].to_numpy()
        for language in LANGUAGES:  # both sentences to fit, the first to search
            both = pairs[language].ravel()
            texts[split, language] = both if split == "dev" else both[::2]
    first = np.unique(texts["test", "en"], return_index=True)[1]
    fit = np.concatenate([texts["dev", language] for language in LANGUAGES])
    groups = np.repeat(LANGUAGES, len(fit) // 4)
    X, T = encode(fit), np.vstack([encode(texts["test", x][first]) for x in LANGUAGES])
    text = np.tile(np.arange(len(first)), 4)
    print(
        f"One pool of four languages, {len(first)} texts each: translations among the 3 nearest"
    )
    auto = Whitening(noise="auto")
    erased = make_pipeline(GroupErasure(), Whitening(noise="auto"))
    for name, Z in (
        ("raw", T),
        ("auto", auto.fit(X).transform(T)),
        ("erased, auto", erased.fit(X, grouperasure__groups=groups).transform(T)),
    ):
        found = cosines(Z)
        np.fill_diagonal(found, -np.inf)
        nearest = np.argpartition(-found, 3, axis=1)[:, :3]
        print(f"  {name:16}{100 * np.mean(text[nearest] == text[:, None]):6.1f}")


def genres(encode):
    pairs = fetch_sts("stsb", "test").data
    half = len(pairs) // 2
    shuffled = np.random.default_rng(0).permutation(pairs)
    print("STS-B test by halves: distance of means, ratio of Mahalanobis distances, verdict")
    for name, p in (("in file order", pairs), ("at random", shuffled)):
        whitening = Whitening(noise="auto").fit(encode(p[:half].ravel()))
        shift = whitening.shift(encode(p[half:].ravel()))
        ratio = shift.mahalanobis_ratio
        print(f"  {name:16}{shift.mean_distance:6.2f}{ratio:6.2f}  {shift.is_shifted}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model", metavar="MODEL")
    parser.add_argument("--memory", required=True, help="folder for vectors")
    options = parser.parse_args()
    model = minilm_path() if options.model == "minilm" else options.model
    store = VectorStore(options.memory, layers=(-1,), pooling="mean")
    encode = BertEncoder(model, pooling="mean", memory=store).fit(["one text"]).transform
    fit, test = (
        pd.read_csv(DATA.parent / "tasks" / f"banking77-{split}.csv")
        for split in ("train", "test")
    )
    fit = np.random.default_rng(0).permutation(fit["text"].to_numpy())[:4000]
    intents(encode, fit, test["text"].to_numpy(), test["category"].to_numpy())
    sts(encode)
    pool(encode)
    genres(encode)
