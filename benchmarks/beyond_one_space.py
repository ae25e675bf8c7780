"""Neighbours, languages and the scale of similarity: the figures of their pages.

Run by hand, with a folder of multilingual-e5-small if there is one::

    SKCALIB_DATA=folder python benchmarks/beyond_one_space.py --memory vectors neighbors \
        --e5 e5-folder

``neighbors``: search, clusters and classifiers of few labels with and without
`NeighborSmoothing`, and STS, which it harms. ``references``: the same search by number and
kind of the fitted texts. ``siblings``: what its warning looks at. ``languages``: one pool of
texts in several languages with and without `GroupErasure`. ``groups``: the same by texts of a
language. ``scale``: average precision at one threshold, and rates promised and found.
``speed``: the search beside ``faiss.IndexFlatIP``; needs no data.

SKCALIB_DATA names the folder of the STS files. Beside it lie ``tasks``, with NAME-train.csv and
NAME-test.csv (columns text and category), and ``languages``, with stsb-XX-dev.csv and
stsb-XX-test.csv, whose rows translate those of STS-B. All encoders are the mean of the last
hidden state; 4,000 texts of a training split are fitted, without labels.
"""

import argparse
import os
import time
import warnings

os.environ.setdefault("HF_HUB_OFFLINE", "1")

from pathlib import Path

import numpy as np
import pandas as pd
from scipy.stats import spearmanr
from sklearn.cluster import KMeans
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import average_precision_score, normalized_mutual_info_score
from sklearn.pipeline import make_pipeline
from without_labels import TASKS, r_precision, spearman, unit

from skcalib import BertEncoder, GroupErasure, NeighborSmoothing, SimilarityScale, Whitening
from skcalib._neighbors.smoothing import siblings
from skcalib._texts import distinct
from skcalib.datasets import fetch_sts, minilm_path

FITTED = 4000
STS = Path(os.environ.get("SKCALIB_DATA", "."))


class Encoder:
    """A model under a name, whose vectors are kept."""

    def __init__(self, name, model, memory):
        self.name, self.bert = name, BertEncoder(model, memory=memory)

    def __call__(self, texts):
        return self.bert.fit_transform(list(texts))


def drawn(rows, n=FITTED, seed=0):
    """Draw up to n of the rows."""
    return rows[np.random.default_rng(seed).permutation(len(rows))[:n]]


def tasks():
    """Yield names of labelled tasks, texts to fit on, and texts and labels to score."""
    for path in sorted((STS / ".." / "tasks").glob("*-train.csv")):
        train = pd.read_csv(path).drop_duplicates("text")
        test = pd.read_csv(str(path).replace("-train", "-test"))
        yield path.name.removesuffix("-train.csv"), train, test


def sts_train():
    return np.unique(fetch_sts("stsb", "train").data.ravel().astype(str))


def sts_pairs():
    """Distinct texts of the seven sets, and each set's pairs as rows of them with grades."""
    sets = [fetch_sts(task) for task in TASKS]
    texts, rows = distinct([text for s in sets for text in s.data.T.ravel()])
    parts = np.split(rows, np.cumsum([2 * len(s.target) for s in sets])[:-1])
    pairs = zip(parts, sets, strict=True)
    return texts, [(part.reshape(2, -1), s.target) for part, s in pairs]


def fitted(calibrator, X):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of few siblings, which `siblings` shows
        return calibrator.fit(X)


def smoothing(weight=1.0):
    return make_pipeline(Whitening(noise="auto"), NeighborSmoothing(weight=weight))


CALIBRATORS = {
    "raw": make_pipeline("passthrough"),
    "auto": make_pipeline(Whitening(noise="auto")),
    "smoothed": smoothing(),
    "smoothed, weight=0.5": smoothing(0.5),
}


def few_labels(fit, train, Z, labels):
    """Accuracies with 3 labels of each class, at C = 1, 10 and 30: means of five draws."""
    groups = train.reset_index().groupby("category")
    draws = [groups.sample(3, random_state=seed).index for seed in range(5)]
    for C in (1, 10, 30):
        # At a tolerance of 1e-3 the classifier stays at chance in a narrow cone.
        model = LogisticRegression(C=C, tol=1e-6, max_iter=3000)
        scores = [
            model.fit(fit[rows], train["category"].iloc[rows]).score(Z, labels)
            for rows in draws
        ]
        yield 100 * np.mean(scores)


def neighbors(encoders):
    """Print a row per encoder and calibrator."""
    print("| | R-precision | NMI | 3 labels, C=1 | C=10 | C=30 |\n|---|" + "---:|" * 5)
    for encoder in encoders:
        for task, train, test in tasks():
            X, Y = encoder(train["text"]), encoder(test["text"])
            for name, calibrator in CALIBRATORS.items():
                calibrator = fitted(calibrator, drawn(X))
                Z, fit = unit(calibrator.transform(Y)), unit(calibrator.transform(X))
                classes = test["category"].nunique()
                k_means = [KMeans(classes, n_init=3, random_state=seed) for seed in range(5)]
                nmi = [
                    normalized_mutual_info_score(test["category"], k.fit_predict(Z))
                    for k in k_means
                ]
                cells = [
                    r_precision(Z, test["category"]),
                    100 * np.mean(nmi),
                    *few_labels(fit, train, Z, test["category"]),
                ]
                row = " | ".join(f"{cell:.1f}" for cell in cells)
                print(f"| {encoder.name}, {task}, {name} | {row} |", flush=True)
        texts, pairs = sts_pairs()
        X, Y = encoder(drawn(sts_train())), encoder(texts)
        for name, calibrator in CALIBRATORS.items():
            score = spearman(fitted(calibrator, X).transform(Y), pairs)
            print(f"{encoder.name}, STS, {name}: {score:.1f}", flush=True)


def references(encoders):
    """Print R-precision by what the smoothing was fitted on; the whitening saw 4,000 texts."""
    for encoder in encoders:
        foreign = encoder(drawn(sts_train()))
        for task, train, test in tasks():
            X, Y, labels = encoder(train["text"]), encoder(test["text"]), test["category"]
            whitening = Whitening(noise="auto").fit(drawn(X))
            Z = whitening.transform(Y)
            row = [f"auto {r_precision(Z, labels):.1f}"]
            samples = {f"{n:,}": drawn(X, n) for n in (100, 250, 500, 1000, 2000, 4000)}
            samples["the searched texts"], samples["STS-B"] = Y, foreign
            for name, sample in samples.items():
                smooth = fitted(NeighborSmoothing(), whitening.transform(sample))
                row.append(f"{name} {r_precision(smooth.transform(Z), labels):.1f}")
            print(f"{encoder.name}, {task}: " + ", ".join(row), flush=True)


def samples_of_siblings():
    """Yield names and texts on which `siblings` is looked at."""
    for task, train, _ in tasks():
        for n in (100, 250, 1000, 4000):
            yield f"{task}, {n:,}", drawn(train["text"].to_numpy(), n)
        names = train["category"].unique()
        for n in (10, 30):
            kept = train["category"].isin(names[:: len(names) // n][:n])
            yield f"{task}, {n} classes", train["text"][kept].to_numpy()
    for n in (100, 250, 1000, 4000):
        yield f"STS-B train, {n:,}", drawn(sts_train(), n)
    for task in TASKS:
        yield task, np.unique(fetch_sts(task).data.ravel().astype(str))


def show_siblings(encoders):
    for name, texts in samples_of_siblings():
        values = [
            siblings(np.float32(unit(Whitening(noise="auto").fit_transform(encoder(texts)))))
            for encoder in encoders
        ]
        print(
            f"| {name} | " + " | ".join(f"{value:.2f}" for value in values) + " |", flush=True
        )


class Languages:
    """STS-B in several languages: texts to fit on, a pool to search, pairs with grades."""

    def __init__(self):
        found = sorted((STS / ".." / "languages").glob("stsb-*-dev.csv"))
        files = {"en": STS / "stsb-dev.csv"} | {p.name.split("-")[1]: p for p in found}
        self.names = list(files)
        pairs = {
            split: [
                pd.read_csv(str(path).replace("-dev", f"-{split}")) for path in files.values()
            ]
            for split in ("dev", "test")
        }
        both = ["sentence1", "sentence2"]
        self.fit = [frame[both].to_numpy().T.ravel() for frame in pairs["dev"]]
        self.pairs = [frame[both].to_numpy().T for frame in pairs["test"]]
        self.grades = pairs["test"][0]["score"]
        english = self.pairs[0].ravel()
        distinct_rows = np.sort(np.unique(english, return_index=True)[1])
        self.pool_rows = np.sort(drawn(distinct_rows, 1250))
        self.pool = np.concatenate([p.ravel()[self.pool_rows] for p in self.pairs])

    def sample(self, numbers):
        """Texts to fit on, so many of each language, and their languages."""
        parts = [drawn(np.unique(texts), n) for texts, n in zip(self.fit, numbers, strict=True)]
        return np.concatenate(parts), np.repeat(self.names, [len(part) for part in parts])

    def shares(self, Z):
        """Share of a text's translations among its nearest, and of nearest of one language."""
        Z, n, k = unit(Z), len(self.pool_rows), len(self.names) - 1
        similarity = Z @ Z.T
        np.fill_diagonal(similarity, -np.inf)
        nearest = np.argpartition(-similarity, k, axis=1)[:, :k]
        rows = np.arange(len(Z))[:, None]
        return 100 * np.mean(nearest % n == rows % n), 100 * np.mean(nearest // n == rows // n)

    def accuracy(self, Z, scale=None):
        """Share of texts whose nearest of another language, each on its own, is a translation.

        With a `SimilarityScale`, by the corrected similarity.
        """
        n = len(self.pool_rows)
        half = 0 if scale is None else scale.density(Z) / 2
        parts = np.split(unit(Z), len(self.names))
        half = np.split(np.broadcast_to(half, len(Z)), len(self.names))
        hits = [
            (parts[i] @ parts[j].T - half[j]).argmax(axis=1) == np.arange(n)
            for i in range(len(parts))
            for j in range(len(parts))
            if i != j
        ]
        return 100 * np.mean(hits)

    def sts(self, left, right):
        """Spearman's rho of all pairs of languages ranked together, and within a language."""
        cosines = [[np.sum(a * b, axis=1) for b in right] for a in left]
        grades = np.tile(self.grades, len(left) ** 2)
        mono = [spearmanr(cosines[i][i], self.grades)[0] for i in range(len(left))]
        return 100 * spearmanr(np.ravel(cosines), grades)[0], 100 * np.mean(mono)


def languages(encoders):
    """Print a row per calibrator."""
    data = Languages()
    texts, groups = data.sample([3000] * len(data.names))
    for encoder in encoders:
        X, pool = encoder(texts), encoder(data.pool)
        pairs = [[encoder(side) for side in language] for language in data.pairs]
        erasure = GroupErasure().fit(X, groups=groups)
        E = erasure.transform(X)
        auto, behind = Whitening(noise="auto").fit(X), Whitening(noise="auto").fit(E)
        for name, transform in {
            "raw": lambda Z: Z,
            "auto": auto.transform,
            "erased": erasure.transform,
            "erased, then auto": lambda Z: behind.transform(erasure.transform(Z)),  # noqa: B023
        }.items():
            Z = transform(pool)
            left, right = ([unit(transform(p[side])) for p in pairs] for side in (0, 1))
            scale = SimilarityScale(n_neighbors=10).fit(transform(X))
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # raw vectors are not to be corrected
                cells = [*data.shares(Z), *data.sts(left, right)]
                cells += [data.accuracy(Z), data.accuracy(Z, scale)]
            row = " | ".join(f"{cell:.1f}" for cell in cells)
            print(f"| {encoder.name}, {name} | {row} |", flush=True)


def groups(encoders):
    """Print the share of translations by the number of fitted texts of each language."""
    data = Languages()
    n = len(data.names)
    whole = data.sample([3000] * n)[0]
    for encoder in encoders:
        X, pool = encoder(whole), encoder(data.pool)
        for numbers in ([20] * n, [50] * n, [100] * n, [750] * n, [2700] + [100] * (n - 1)):
            texts, names = data.sample(numbers)
            erasure = GroupErasure().fit(encoder(texts), groups=names)
            whitening = Whitening(noise="auto").fit(erasure.transform(X))
            share = data.shares(whitening.transform(erasure.transform(pool)))[0]
            print(f"{encoder.name}, {numbers}: {share:.1f}", flush=True)


def scale(encoders):
    """Print average precision at one threshold, and rates promised and found."""
    for encoder in encoders:
        for task, train, test in tasks():
            X, Y = encoder(drawn(train["text"].to_numpy())), encoder(test["text"])
            whitening = Whitening(noise="auto").fit(X)
            scale = SimilarityScale().fit(whitening.transform(X))
            Z, codes = whitening.transform(Y), test["category"].to_numpy()
            pairs = np.triu_indices(len(Z), k=1)
            same = codes[pairs[0]] == codes[pairs[1]]
            half = scale.density(Z) / 2
            cosine = unit(Z) @ unit(Z).T
            kinds = {
                "raw": (unit(Y) @ unit(Y).T)[pairs],
                "auto": cosine[pairs],
                "corrected": (cosine - half[:, None] - half)[pairs],
            }
            precision = [100 * average_precision_score(same, kind) for kind in kinds.values()]
            row = " | ".join(f"{cell:.1f}" for cell in precision)
            print(f"| {encoder.name}, {task} | {row} |")
            rates(f"{encoder.name}, {task}", scale, kinds["auto"], kinds["corrected"], ~same)
        whitening = Whitening(noise="auto").fit(X := encoder(sts_train()))
        scale = SimilarityScale().fit(whitening.transform(X))
        texts, pairs = sts_pairs()
        Z = whitening.transform(encoder(texts))
        half = scale.density(Z) / 2
        for name, sub in (("auto", 0 * half), ("corrected", half)):
            scores = [
                spearmanr(np.sum(unit(Z[i]) * unit(Z[j]), axis=1) - sub[i] - sub[j], grades)[0]
                for (i, j), grades in pairs
            ]
            print(f"{encoder.name}, STS, {name}: {100 * np.mean(scores):.1f}")
        for task, ((i, j), _) in zip(TASKS, pairs, strict=True):
            rows = drawn(np.unique([i, j]), 3000)
            pool, b = unit(Z[rows]), half[rows]
            upper = np.triu_indices(len(rows), k=1)
            cosine = pool @ pool.T
            corrected = (cosine - b[:, None] - b)[upper]
            rates(f"{encoder.name}, STS-B to {task}", scale, cosine[upper], corrected)


def rates(name, scale, cosines, corrected, unrelated=slice(None)):
    """Print the shares of pairs that pass thresholds: of all, and of the unrelated."""
    for kind, values in ((False, cosines), (True, corrected)):
        cells = []
        for rate in (1e-2, 1e-3, 1e-4, 1e-5):
            passed = values >= scale.threshold(rate, corrected=kind)
            cells.append(f"{passed.mean():.1e} ({passed[unrelated].mean():.1e})")
        print(f"| {name}, {'corrected' if kind else 'cosine'} | {' | '.join(cells)} |")


def speed(encoders):
    """Print seconds for 10,000 queries among 100,000 vectors of 128, in turn with faiss."""
    import faiss

    X = unit(np.random.default_rng(0).normal(size=(100_000, 128))).astype(np.float32)
    index = faiss.IndexFlatIP(128)
    index.add(X)
    smooth = fitted(NeighborSmoothing(), X)
    ratios = []
    for _ in range(5):
        start = time.perf_counter()
        index.search(X[:10_000], 11)
        middle = time.perf_counter()
        smooth.transform(X[:10_000])
        end = time.perf_counter()
        ratios.append((end - middle) / (middle - start))
        print(f"faiss {middle - start:.2f} s, smoothing {end - middle:.2f} s")
    print(f"median ratio {np.median(ratios):.2f}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    commands = {
        f.__name__: f for f in (neighbors, references, languages, groups, scale, speed)
    } | {"siblings": show_siblings}
    parser.add_argument("table", choices=commands)
    parser.add_argument("--memory", required=True, help="folder for vectors")
    parser.add_argument("--e5", help="folder of multilingual-e5-small")
    parser.add_argument("--only", choices=["MiniLM", "e5"], help="one encoder")
    options = parser.parse_args()
    models = {"MiniLM": minilm_path(), "e5": options.e5}
    commands[options.table]([
        Encoder(name, model, options.memory)
        for name, model in models.items()
        if model and options.only in (None, name)
    ])  # fmt: skip
