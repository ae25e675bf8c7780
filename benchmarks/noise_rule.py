"""Rules for the noise that goes with a power of 1, and ``Whitening(noise="auto")`` ("auto").

    SKCALIB_DATA=folder python benchmarks/noise_rule.py MODEL --layers 6 3 0 --memory vectors
    SKCALIB_DATA=folder python benchmarks/noise_rule.py MODEL --layers 6 --memory vectors --few

Beside the folder of ``SKCALIB_DATA`` there are the folders ``tasks``
(banking77-{train,test}.csv), ``topics`` (biomedical-{train,test}.csv) and
``retrieval/cranfield`` (in BEIR's layout). MODEL is a folder, or minilm. ``--prompt`` comes
before each text, ``--document-prompt`` before each of Cranfield's documents. ``6,3`` means two
layers side by side.

No fit uses labels. Each uses at most 4,000 texts: STS-B's training sentences for the STS sets,
the training texts of Banking77 and of the topics, and Cranfield's documents. Cranfield's
queries have their own mean subtracted. The columns, times 100, are the mean of Spearman's rho
over the STS sets; R-precision (for a text with R others of its kind, their share of its R
nearest texts) and the average precision of all pairs, ranked by cosine, by intent and by topic;
and nDCG@10, as differences to raw vectors. ``--few`` prints those of "auto" after a fit on few
texts, as means of five draws.
"""

import argparse
import os
from pathlib import Path

import numpy as np
import pandas as pd

from skcalib import BertEncoder, Whitening
from skcalib.datasets import fetch_sts, minilm_path
from skcalib.evaluation._beir import read_beir
from skcalib.evaluation._labelled import SCORES
from skcalib.evaluation._retrieval import _measures, _ranked
from skcalib.evaluation._sts import BENCHMARKS as SETS
from skcalib.metrics import spearman
from skcalib.utils.texts import distinct
from skcalib.utils.vectors import unit_rows

DATA = Path(os.environ["SKCALIB_DATA"])
LABELLED = {"Banking77": "tasks/banking77", "topics": "topics/biomedical"}
# Share of the total variance, power of 1 - c (c: mean cosine), entropy rank up to which the
# noise grows, and power of 1 - s (s: shrinkage).
RULES = {
    "1/80": (1 / 80, 0, 0, 0),
    "1/80, cone": (1 / 80, 1 / 3, 0, 0),
    "1/80, cone, rank 100": (1 / 80, 1 / 3, 100, 1),
    "1/80, cone, rank 120: chosen": (1 / 80, 1 / 3, 120, 1),
    "1/80, cone, rank 150": (1 / 80, 1 / 3, 150, 1),
    "1/80, cone^(1/4), rank 120": (1 / 80, 1 / 4, 120, 1),
    "1/100, cone, rank 120": (1 / 100, 1 / 3, 120, 1),
    "chosen, without (1 - s)": (1 / 80, 1 / 3, 120, 0),
}


def by_rule(fitted, share, cone, rank, sampling):
    """Noise by a rule, from an exact whitening with ``shrinkage="auto"``."""
    s, variance = fitted.shrinkage_, fitted.explained_variance_
    variance = (1 - s) * variance + s * variance.mean()
    total = variance.sum()
    shares = variance[variance > 0] / total
    entropy_rank = np.exp(-(shares @ np.log(shares)))
    spread = total / (fitted.mean_ @ fitted.mean_ + total)
    return share * spread**cone * min(1, entropy_rank / (rank or 1)) * (1 - s) ** sampling


def calibrators(X):
    """Alternatives and candidates, not yet fitted."""
    fitted = Whitening(shrinkage="auto").fit(X)
    d = X.shape[1]
    width = {  # in units of the mean eigenvalue, which depends on the width
        "2.4 mean eigenvalues, cone": by_rule(fitted, 2.4 / d, 1 / 3, 0, 0),
    }
    noises = width | {name: by_rule(fitted, *rule) for name, rule in RULES.items()}
    return {
        "mean subtracted": Whitening(power=0.0, shrinkage=1.0),
        "PCA(128)": Whitening(128, power=0.0),
        "auto": Whitening(noise="auto"),
    } | {name: Whitening(noise=noise, shrinkage="auto") for name, noise in noises.items()}


def shuffled(texts, n):
    return np.random.default_rng(0).permutation(texts)[:n].tolist()


class Sts:
    """Mean of Spearman's rho over the sets."""

    columns = ("STS",)

    def __init__(self, encode, n_fit, sets):
        train = np.unique(fetch_sts("stsb", "train").data.ravel().astype(str))
        self.fit = encode(shuffled(train, n_fit))
        self.pairs = {}
        for task in sets:
            pairs, grades = fetch_sts(task, "test", return_X_y=True)
            texts, rows = distinct(pairs.ravel().tolist())
            self.pairs[task] = encode(texts), np.asarray(rows).reshape(-1, 2), grades

    def scores(self, whitening):
        found = []
        for X, rows, grades in self.pairs.values():
            unit = unit_rows(X if whitening is None else whitening.transform(X))[0]
            found.append(spearman((unit[rows[:, 0]] * unit[rows[:, 1]]).sum(axis=1), grades))
        return (100 * np.mean(found),)


class Labelled:
    """R-precision, and average precision of all pairs, ranked by cosine."""

    def __init__(self, encode, options, name):
        self.columns = name, f"{name}, pairs"
        train, test = (
            pd.read_csv(DATA.parent / f"{LABELLED[name]}-{split}.csv")
            for split in ("train", "test")
        )
        texts = train["text"].tolist()
        if name == "Banking77":  # sorted by intent
            texts = shuffled(texts, options.n_fit)
        self.fit = encode(texts[: options.n_fit])
        test = test[: options.n_texts]
        self.X = encode(test["text"].tolist())
        self.codes = np.unique(test["category"], return_inverse=True)[1]

    def scores(self, whitening):
        Z = self.X if whitening is None else whitening.transform(self.X)
        names = "R-precision", "duplicates"
        return tuple(100 * SCORES[name](unit_rows(Z)[0], self.codes, 0) for name in names)


class Cranfield:
    """nDCG@10; queries and documents each have their own mean subtracted."""

    columns = ("Cranfield",)

    def __init__(self, encode):
        collection = read_beir(DATA.parent / "retrieval" / "cranfield", "test")
        self.names, self.grades = list(collection.documents), collection.grades
        self.fit = encode(list(collection.documents.values()), documents=True)
        self.queries = encode(list(collection.queries.values()))

    def scores(self, whitening):
        Q, D = self.queries, self.fit
        if whitening is not None:
            Q = Q - Q.mean(axis=0) + D.mean(axis=0)  # as `Whitening.recentered` does
            Q, D = whitening.transform(Q), whitening.transform(D)
        ranked = _ranked(unit_rows(Q)[0], unit_rows(D)[0])
        return (100 * _measures(ranked, self.names, self.grades)[:, 0].mean(),)


def tasks_of(encode, options):
    tasks = []
    if "sts" in options.tasks:
        tasks.append(Sts(encode, options.n_fit, options.sets))
    tasks += [Labelled(encode, options, name) for name in LABELLED if name in options.tasks]
    if "cranfield" in options.tasks:
        tasks.append(Cranfield(encode))
    return tasks


def board(tasks):
    """Print the scores of raw vectors, and the difference of each calibrator to them."""
    columns = [column for task in tasks for column in task.columns]
    rows = {}
    for task in tasks:
        raw = np.array(task.scores(None))
        rows.setdefault("raw", []).extend(raw)
        for name, whitening in calibrators(task.fit).items():
            scores = np.array(task.scores(whitening.fit(task.fit)))
            rows.setdefault(name, []).extend(scores - raw)
    print("| | mean | worst | " + " | ".join(columns) + " |")
    print("|---|" + "---:|" * (2 + len(columns)))
    print("| raw | | | " + " | ".join(f"{score:.1f}" for score in rows.pop("raw")) + " |")
    for name, differences in rows.items():
        cells = [np.mean(differences), min(differences), *differences]
        print(f"| {name} | " + " | ".join(f"{cell:+.1f}" for cell in cells) + " |", flush=True)


def few(tasks):
    """Print the mean and the worst difference to raw vectors in five draws of few texts."""
    columns = [column for task in tasks for column in task.columns]
    rng = np.random.default_rng(0)
    raw = [np.array(task.scores(None)) for task in tasks]
    print("| n | | " + " | ".join(columns) + " |\n|---:|---|" + "---:|" * len(columns))
    for n in (50, 100, 200, 500, 1000, 2000):
        found = {}
        for _ in range(5):
            for task, before in zip(tasks, raw, strict=True):
                rows = rng.choice(len(task.fit), n, replace=False)
                sample = task.fit[rows]
                for name, whitening in calibrators(sample).items():
                    if name in ("mean subtracted", "auto"):
                        difference = np.array(task.scores(whitening.fit(sample))) - before
                        found.setdefault(name, []).append(difference)
        for name, differences in found.items():
            of_draws = np.concatenate([
                np.stack(differences[i :: len(tasks)]) for i in range(len(tasks))
            ], axis=1)  # fmt: skip
            cells = zip(of_draws.mean(axis=0), of_draws.min(axis=0), strict=True)
            cells = " | ".join(f"{mean:+.1f} ({worst:+.1f})" for mean, worst in cells)
            print(f"| {n} | {name} | {cells} |", flush=True)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("model", metavar="MODEL")
    parser.add_argument("--layers", nargs="+", required=True)
    parser.add_argument("--pooling", default="mean")
    parser.add_argument("--memory", required=True, help="folder for vectors")
    parser.add_argument("--prompt", default=None, help="comes before each text")
    parser.add_argument("--document-prompt", default=None, help="of Cranfield's documents")
    tasks = ["sts", *LABELLED, "cranfield"]
    parser.add_argument("--tasks", nargs="+", default=tasks, choices=tasks)
    parser.add_argument("--sets", nargs="+", default=SETS, choices=SETS, help="STS sets")
    parser.add_argument("--n-fit", type=int, default=4000, help="most texts to fit on")
    parser.add_argument("--n-texts", type=int, default=None, help="most labeled test texts")
    parser.add_argument("--few", action="store_true")
    options = parser.parse_args()
    model = minilm_path() if options.model == "minilm" else options.model
    for layers in options.layers:
        chosen = tuple(map(int, layers.split(",")))

        def encode(texts, documents=False, layers=chosen):
            prompt = options.document_prompt if documents else options.prompt
            encoder = BertEncoder(
                model,
                pooling=options.pooling,
                layers=layers,
                layer_merge="concat",
                prompt=prompt,
                memory=options.memory,
            )
            return encoder.fit_transform(texts)

        print(f"\n{options.model}, {options.pooling} of layer {layers}\n", flush=True)
        (few if options.few else board)(tasks_of(encode, options))
