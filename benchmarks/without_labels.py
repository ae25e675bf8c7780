"""Calibration without labels: choices by spectrum and self-retrieval, and their scores.

Run by hand::

    SKCALIB_DATA=folder python benchmarks/without_labels.py --memory vectors noise
    SKCALIB_DATA=folder python benchmarks/without_labels.py --memory vectors few
    SKCALIB_DATA=folder python benchmarks/without_labels.py --memory vectors selection
    SKCALIB_DATA=folder python benchmarks/without_labels.py --memory vectors labelled
    SKCALIB_DATA=folder python benchmarks/without_labels.py --memory vectors clusters
    SKCALIB_DATA=folder python benchmarks/without_labels.py --memory vectors classes
    SKCALIB_DATA=folder python benchmarks/without_labels.py --memory vectors fitted_on
    SKCALIB_DATA=folder python benchmarks/without_labels.py --memory vectors flow

The tables are:

- ``noise``: every layer and pooling, raw, with exact whitening and with ``noise="auto"``
  (regularization). The scores are Spearman's rho on the seven sets (fitted on STS-B's training
  sentences) and R-precision on Banking77's test questions (fitted on its training questions):
  for a question with R others of its intent, their share of its R nearest questions.
- ``few``: the last layer, fitted on few sentences.
- ``selection``: the choice of self-retrieval among all layers, poolings and 60 calibrations.
- ``labelled``: search, clustering and classification of Banking77's test questions.
- ``clusters``: k-means with five seeds.
- ``classes``: classifiers that saw few labels.
- ``fitted_on``: search after a fit on other texts and on fewer.
- ``flow``: every layer and pooling raw, whitened and through a flow, both without
  regularization and with ``noise="auto"``.

``--labelled-data`` names the folder of ``banking77-train.csv`` and ``banking77-test.csv``
(columns text and category).
"""

import argparse
import os

os.environ.setdefault("HF_HUB_OFFLINE", "1")

from pathlib import Path

import numpy as np
import pandas as pd
from scipy.stats import rankdata
from sklearn.cluster import KMeans
from sklearn.metrics import normalized_mutual_info_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import normalize

from skcalib import BertEncoder, NormalizingFlow, Whitening
from skcalib.datasets import fetch_sts, minilm_path
from skcalib.evaluation import evaluate_labelled
from skcalib.evaluation._labelled import classifier
from skcalib.model_selection._views import Views, combined
from skcalib.utils.texts import distinct

TASKS = ("sts12", "sts13", "sts14", "sts15", "sts16", "stsb", "sickr")
NOISES = (0.25 / 384, 0.5 / 384, 1 / 384, 2 / 384)  # shares of the total variance
CALIBRATIONS = [
    *({"n_components": k, "shrinkage": s, "power": p}
      for k in (64, 128, 256, None) for s in (0.0, 0.1, 0.5, 0.9, 0.97) for p in (1.0, 0.5)),
    *({"power": p, "noise": n} for p in (1.0, 0.75, 0.5) for n in NOISES),
    *({"n_components": 128, "noise": n} for n in NOISES),
    *({"n_components": k, "power": 0.0} for k in (64, None)),
    {"noise": "auto"},
]  # fmt: skip


class Texts:
    """Vectors of texts for any layer and pooling, and scores of vectors."""

    def __init__(self, model, memory, labelled_data):
        self.encoder = BertEncoder(model, memory=memory).fit([""])
        backbone = self.encoder._backbone()
        poolings = ["cls", "mean", "max", *(["zipf"] if backbone.has_zipf else [])]
        self.states = [
            (p, layer)
            for p in poolings
            for layer in range(backbone.n_layers + 1)
            if (p, layer) != ("cls", 0)
        ]
        self.last = backbone.n_layers
        self.three = (("mean", self.last), ("zipf", 3), ("mean", 3))
        self.sets = {task: fetch_sts(task) for task in TASKS} | {
            "dev": fetch_sts("stsb", "dev")
        }
        self.train = np.unique(fetch_sts("stsb", "train").data.ravel().astype(str)).tolist()
        folder = Path(labelled_data)
        self.labelled_train = pd.read_csv(folder / "banking77-train.csv")
        self.questions = self.labelled_train["text"].unique().tolist()
        self.labelled = pd.read_csv(folder / "banking77-test.csv")

    def vectors(self, texts, pooling, layer):
        return self.encoder.set_params(pooling=pooling, layers=layer).fit_transform(texts)

    def pairs(self, tasks=TASKS):
        """Return distinct sentences, and each task's pairs as rows of these with grades."""
        texts, rows = distinct([t for task in tasks for t in self.sets[task].data.T.ravel()])
        lengths = [2 * len(self.sets[task].target) for task in tasks]
        parts = np.split(rows, np.cumsum(lengths)[:-1])
        return texts, [
            (part.reshape(2, -1), self.sets[task].target)
            for part, task in zip(parts, tasks, strict=True)
        ]


def unit(vectors):
    vectors = vectors.astype(np.float64)
    return vectors / np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), 1e-300)


def spearman(vectors, pairs):
    """Mean over tasks of Spearman's rho x 100."""
    vectors = unit(vectors)
    return 100 * np.mean([
        np.corrcoef(rankdata(np.sum(vectors[i] * vectors[j], axis=1)), rankdata(grades))[0, 1]
        for (i, j), grades in pairs
    ])  # fmt: skip


def r_precision(vectors, labels):
    codes = np.unique(labels, return_inverse=True)[1]
    vectors = unit(vectors)
    similarity = vectors @ vectors.T
    np.fill_diagonal(similarity, -np.inf)
    others = np.bincount(codes)[codes] - 1
    nearest = np.argpartition(-similarity, others.max(), axis=1)[:, : others.max()]
    by_rank = np.argsort(-np.take_along_axis(similarity, nearest, axis=1), axis=1)
    order = np.take_along_axis(nearest, by_rank, axis=1)
    same = (codes[order] == codes[:, None]) & (np.arange(others.max()) < others[:, None])
    return 100 * np.mean(same.sum(axis=1) / others)


def tasks_of(data):
    """Return texts to fit on, texts to score and the score of their vectors, by task."""
    texts, pairs = data.pairs()
    return {
        "STS": (data.train, texts, lambda Z: spearman(Z, pairs)),
        "Banking77": (
            data.questions,
            data.labelled["text"].tolist(),
            lambda Z: r_precision(Z, data.labelled["category"]),
        ),
    }


def noise(data):
    """Print a row for each layer, pooling and task."""
    tasks = tasks_of(data)
    print("pooling,layer,task,raw,whitening,auto,noise")
    gains = []
    for pooling, layer in data.states:
        for name, (fit_on, scored, score) in tasks.items():
            fit, X = (data.vectors(t, pooling, layer) for t in (fit_on, scored))
            exact, auto = (Whitening(noise=noise).fit(fit) for noise in (0.0, "auto"))
            scores = [score(X), score(exact.transform(X)), score(auto.transform(X))]
            gains.append(scores[2] - scores[0])
            cells = ",".join(f"{value:.1f}" for value in scores)
            print(f"{pooling},{layer},{name},{cells},{auto.noise_:.4f}", flush=True)
    print(f"auto minus raw: mean {np.mean(gains):.2f}, smallest {min(gains):.2f}")


def few(data):
    """Print scores of the last layer on STS-B dev after fits on few training sentences."""
    texts, pairs = data.pairs(["dev"])
    X = data.vectors(texts, "mean", -1)
    fit = data.vectors(data.train, "mean", -1)
    rng = np.random.default_rng(0)
    print(
        f"raw {spearman(X, pairs):.1f}\n"
        "| n | whitening | shrinkage='auto' | noise='auto' (worst of 5) |"
    )
    print("|---:|---:|---:|---:|")
    for n in (50, 100, 200, 400, 800, 2000, 5000):
        scores = []
        for _ in range(5):
            sample = fit[rng.choice(len(fit), n, replace=False)]
            candidates = ({"tol": 1e-6}, {"shrinkage": "auto"}, {"noise": "auto"})
            fitted = [Whitening(**params).fit(sample) for params in candidates]
            scores.append([spearman(whitening.transform(X), pairs) for whitening in fitted])
        plain, shrunk, auto = np.mean(scores, axis=0)
        worst = np.min(scores, axis=0)[2]
        print(f"| {n} | {plain:.1f} | {shrunk:.1f} | {auto:.1f} ({worst:.1f}) |")


def selection(data):
    """Print the choice of self-retrieval and the best choice, on the seven sets.

    As in `calibrate`, both views (split halves, copies with words dropped) choose the
    calibration of each layer and pooling, and the split halves alone choose layer and pooling.
    """
    views = Views(data.train, n_texts=2000, seed=0)
    texts, pairs = data.pairs()
    rows = {}
    for pooling, layer in data.states:
        fit, X, viewed = (
            data.vectors(t, pooling, layer) for t in (data.train, texts, views.texts)
        )
        rows[pooling, layer] = []
        for params in (None, *CALIBRATIONS):
            Z, Zv = X, viewed
            if params is not None:
                # One decomposition serves all of them.
                whitening = Whitening(**params).fit(fit)
                Z, Zv = whitening.transform(X), whitening.transform(viewed)
            halves, thinned = views.reciprocal_ranks(Zv).mean(axis=1)
            row = (spearman(Z, pairs), combined(halves, thinned), halves, params or "raw")
            rows[pooling, layer].append(row)
        print(f"{pooling} {layer}", flush=True)

    best = {state: max(of_state, key=lambda row: row[0]) for state, of_state in rows.items()}
    chosen = {state: max(of_state, key=lambda row: row[1]) for state, of_state in rows.items()}
    for name, states in (
        ("all", data.states),
        ("below the last layer", [state for state in data.states if state[1] < data.last]),
    ):
        top = max(states, key=lambda state: best[state][0])
        found = max(states, key=lambda state: chosen[state][2])
        print(
            f"{name}: chosen {found} {chosen[found]}, best {top} {best[top]}, "
            f"regret {best[top][0] - chosen[found][0]:.2f}"
        )
    within = [best[state][0] - chosen[state][0] for state in data.states]
    print(
        f"per layer and pooling: mean regret {np.mean(within):.2f}, worst {np.max(within):.1f}"
    )


def calibrated(data):
    """Yield layer and pooling, and the name of a calibrator and the calibrator, not fitted."""
    calibrators = {
        "raw": "passthrough",
        "whitening": Whitening(),
        "noise='auto'": Whitening(noise="auto"),
        **{f"{k} kept": Whitening(k, noise="auto") for k in (256, 128, 64, 32)},
        "flow": NormalizingFlow(random_state=0),
        "flow, noise='auto'": NormalizingFlow(noise="auto", random_state=0),
    }
    for state in data.three:
        for name, calibrator in calibrators.items():
            yield state, name, calibrator


def labelled(data):
    """Print scores of search, clusters and classes on Banking77's test questions."""
    rows = {}
    for (pooling, layer), name, calibrator in calibrated(data):
        encoder = BertEncoder(
            data.encoder.model, pooling=pooling, layers=layer, memory=data.encoder.memory
        )
        rows[f"{pooling} {layer}, {name}"] = make_pipeline(encoder, calibrator)
    texts, labels = data.labelled["text"].tolist(), data.labelled["category"]
    print(evaluate_labelled(rows, texts, labels, fit_on=data.questions, verbose=True))


def clusters(data):
    """Print NMI of k-means on unit vectors (and its spread) and on vectors of any length."""
    texts, labels = data.labelled["text"].tolist(), data.labelled["category"]
    k_means = [KMeans(labels.nunique(), n_init=3, random_state=seed) for seed in range(5)]
    for state, name, calibrator in calibrated(data):
        pipeline = make_pipeline(calibrator).fit(data.vectors(data.questions, *state))
        Z = pipeline.transform(data.vectors(texts, *state))
        unit_length, plain = (
            [100 * normalized_mutual_info_score(labels, k.fit_predict(X)) for k in k_means]
            for X in (normalize(Z), Z)
        )
        print(
            f"{state}, {name}: {np.mean(unit_length):.1f} ({np.std(unit_length, ddof=1):.1f}) "
            f"/ {np.mean(plain):.1f}",
            flush=True,
        )


def classes(data):
    """Print accuracies of a logistic regression on 3, 10 and 30 questions of each intent."""
    texts, labels = data.labelled["text"].tolist(), data.labelled["category"]
    train = data.labelled_train.drop_duplicates("text")
    draws = {
        n: [train.groupby("category").sample(n, random_state=seed).index for seed in range(5)]
        for n in (3, 10, 30)
    }
    for state, name, calibrator in calibrated(data):
        pipeline = make_pipeline(calibrator).fit(data.vectors(data.questions, *state))
        Z = normalize(pipeline.transform(data.vectors(texts, *state)))
        fit = normalize(pipeline.transform(data.vectors(train["text"].tolist(), *state)))
        fit = pd.DataFrame(fit, index=train.index)
        cells = []
        for rows_of_draw in draws.values():
            scores = [
                classifier(C=10.0)
                .fit(fit.loc[rows].to_numpy(), train["category"][rows])
                .score(Z, labels)
                for rows in rows_of_draw
            ]
            cells.append(f"{100 * np.mean(scores):.1f}")
        print(f"{state}, {name}: {' / '.join(cells)}", flush=True)


def fitted_on(data):
    """Print R-precision on Banking77's test questions after fits on several kinds of texts."""
    texts, labels = data.labelled["text"].tolist(), data.labelled["category"]
    rng = np.random.default_rng(0)
    samples = {"the searched questions": [texts]}
    for n in (len(data.questions), 1000, 100):
        draws = 1 if n == len(data.questions) else 5
        samples[f"{n:,} other questions"] = [
            rng.choice(data.questions, n, replace=False).tolist() for _ in range(draws)
        ]
    samples[f"{len(data.train):,} sentences of STS-B"] = [data.train]
    candidates = [{"tol": 1e-6}, {"noise": "auto"}]
    print("| fitted on | " + " | ".join(f"{p} {layer}" for p, layer in data.three) + " |")
    print("|---|" + "---:|" * len(data.three))
    for name, draws in samples.items():
        cells = []
        for state in data.three:
            X = data.vectors(texts, *state)
            scores = [
                [
                    r_precision(Whitening(**params).fit(fit).transform(X), labels)
                    for params in candidates
                ]
                for fit in (data.vectors(draw, *state) for draw in draws)
            ]
            exact, auto = np.mean(scores, axis=0)
            cells.append(f"{exact:.1f} / {auto:.1f}")
        print(f"| {name} | " + " | ".join(cells) + " |", flush=True)


def flow(data):
    """Print a row for each layer and pooling, with cells STS / Banking77."""
    calibrators = {
        "whitening": Whitening(),
        "whitening, auto": Whitening(noise="auto"),
        "flow": NormalizingFlow(random_state=0),
        "flow, auto": NormalizingFlow(noise="auto", random_state=0),
    }
    print("| pooling, layer | raw | " + " | ".join(calibrators) + " |")
    print("|---|" + "---:|" * (1 + len(calibrators)))
    below = {name: [] for name in calibrators}
    for pooling, layer in data.states:
        cells = []
        for fit_on, scored, score in tasks_of(data).values():
            fit, X = (data.vectors(t, pooling, layer) for t in (fit_on, scored))
            scores = [score(X), *(score(c.fit(fit).transform(X)) for c in calibrators.values())]
            cells.append(scores)
            for name, value in zip(calibrators, scores[1:], strict=True):
                below[name].append(scores[0] - value)
        row = " | ".join(
            f"{sts:.1f} / {search:.1f}" for sts, search in zip(*cells, strict=True)
        )
        print(f"| {pooling} {layer} | {row} |", flush=True)
    print("\nlargest loss:", {name: round(max(lost), 2) for name, lost in below.items()})


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    commands = {
        f.__name__: f
        for f in (noise, few, selection, labelled, clusters, classes, fitted_on, flow)
    }
    parser.add_argument("table", choices=commands)
    parser.add_argument("--memory", required=True, help="folder for vectors")
    parser.add_argument("--model", default=None, help="default: MiniLM")
    parser.add_argument(
        "--labelled-data", default=os.environ.get("SKCALIB_DATA", ".") + "/../tasks"
    )
    options = parser.parse_args()
    commands[options.table](
        Texts(options.model or minilm_path(), options.memory, options.labelled_data)
    )
