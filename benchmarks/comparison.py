"""What people put behind an encoder, side by side, with intervals; a picture of its cosines.

    SKCALIB_DATA=folder python benchmarks/comparison.py MODEL --memory vectors [--unseen]

The folder ``tasks`` (Banking77: banking77-train.csv, banking77-test.csv) lies beside that of
``SKCALIB_DATA``. MODEL is a folder, or minilm. All fits are without labels: on STS-B's training
sentences for the seven STS sets, on 4,000 training questions for Banking77's test questions.
Behind each score stands its difference to the encoder as shipped, with the 95 % interval of a
paired bootstrap over pairs (STS) or questions (Banking77).
"""

import argparse
import os
import re
from pathlib import Path

import numpy as np
import pandas as pd
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.decomposition import PCA
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer, StandardScaler

from skcalib import BertEncoder, NeighborSmoothing, VectorStore, Whitening
from skcalib._vectors import unit_rows
from skcalib.datasets import fetch_sts, minilm_path
from skcalib.evaluation._sts import TASKS
from skcalib.metrics import spearman

DATA = Path(os.environ["SKCALIB_DATA"])
RESAMPLES = 1000


class AllButTheTop(TransformerMixin, BaseEstimator):
    """Mean and the d / 100 directions of largest variance removed (Mu & Viswanath, 2018)."""

    def fit(self, X, y=None):
        self.pca_ = PCA(X.shape[1] // 100).fit(X)
        return self

    def transform(self, X):
        return X - self.pca_.inverse_transform(self.pca_.transform(X))


ROWS = {
    "nothing: as shipped": FunctionTransformer(),
    "the first 128 dimensions": FunctionTransformer(lambda X: X[:, :128]),
    "subtract the mean": StandardScaler(with_std=False),
    "all but the top": AllButTheTop(),
    "PCA(30)": PCA(30),
    "PCA(128)": PCA(128),
    "PCA(whiten=True)": PCA(whiten=True),
    "Whitening()": Whitening(),
    'Whitening(noise="auto")': Whitening(noise="auto"),
    'Whitening(128, noise="auto")': Whitening(128, noise="auto"),
    "and NeighborSmoothing()": make_pipeline(Whitening(noise="auto"), NeighborSmoothing()),
}


def resampled(n, seed=0):
    """Rows of each resample, the same ones for all that is compared."""
    rng = np.random.default_rng(seed)
    return (rng.integers(n, size=n) for _ in range(RESAMPLES))


def plain(text):
    return re.sub(r"\W+", " ", text.lower()).strip()


def sts(encode, unseen=False):
    """Mean of Spearman's rho over the seven sets, and that of each resample, for each row."""
    train = np.unique(fetch_sts("stsb", "train").data)
    tests = {task: fetch_sts(task, "test", return_X_y=True) for task in TASKS}
    if unseen:
        seen = {plain(text) for pairs, _ in tests.values() for text in pairs.ravel()}
        train = train[[plain(text) not in seen for text in train]]
        print(f"STS: fitted on {len(train)} sentences that are in no test set")
    train = encode(train)
    fitted = [step.fit(train) for step in ROWS.values()]
    scores, samples = [], []
    for seed, (pairs, grades) in enumerate(tests.values()):
        A, B = encode(pairs[:, 0]), encode(pairs[:, 1])
        sides = [[unit_rows(step.transform(X))[0] for X in (A, B)] for step in fitted]
        cosines = [(a * b).sum(axis=1) for a, b in sides]
        scores.append([spearman(grades, c) for c in cosines])
        samples.append(
            [[spearman(grades[i], c[i]) for c in cosines] for i in resampled(len(grades), seed)]
        )
    return np.mean(scores, axis=0), np.mean(samples, axis=0).T


def precisions(similarity, same):
    """R-precision of each question."""
    similarity = similarity.copy()
    np.fill_diagonal(similarity, -np.inf)
    others = same.sum(axis=1) - 1
    order = np.argsort(-similarity, axis=1, kind="stable")[:, : others.max()]
    among = np.arange(others.max()) < others[:, None]
    return (np.take_along_axis(same, order, axis=1) & among).sum(axis=1) / others


class Pairs:
    """Pairs of texts by falling cosine, to be counted as often as their texts are drawn."""

    def __init__(self, cosine, i, j, same):
        order = np.argsort(-cosine, kind="stable")
        self.first, self.second = i[order], j[order]
        self.alike = np.flatnonzero(same[order])

    def average_precision(self, counts):
        """Of the pairs that are alike. A text that is drawn twice makes no pair with itself."""
        weights = counts[self.first] * counts[self.second]
        above = weights.cumsum(dtype=np.int64)[self.alike]
        weights = weights[self.alike].astype(float)
        found = weights.cumsum()
        return weights @ (found / np.maximum(above, 1)) / found[-1]


def banking(encode):
    """R-precision and average precision of duplicates, each as `sts` has its scores."""
    fit, test = (
        pd.read_csv(DATA.parent / "tasks" / f"banking77-{split}.csv")
        for split in ("train", "test")
    )
    fit = encode(np.random.default_rng(0).permutation(fit["text"].to_numpy())[:4000])
    vectors, y = encode(test["text"].to_numpy()), test["category"].to_numpy()
    same = y[:, None] == y
    i, j = np.triu_indices(len(y), k=1)
    search, duplicates, cosines = [], [], {}
    for name, step in ROWS.items():
        unit = unit_rows(step.fit(fit).transform(vectors))[0]
        similarity = unit @ unit.T
        each = precisions(similarity, same)
        search.append((each.mean(), [each[rows].mean() for rows in resampled(len(y))]))
        cosines[name] = similarity[i, j].astype(np.float32), same[i, j]
        pairs = Pairs(similarity[i, j], i, j, same[i, j])
        # Products of two counts fit into a byte: nothing is drawn sixteen times.
        counts = (np.bincount(rows, minlength=len(y)) for rows in resampled(len(y)))
        drawn = [pairs.average_precision(count.astype(np.uint8)) for count in counts]
        duplicates.append((pairs.average_precision(np.ones(len(y), np.uint8)), drawn))
    measures = [tuple(map(np.array, zip(*m, strict=True))) for m in (search, duplicates)]
    return *measures, cosines


def table(measures):
    """Print a row for each of ROWS: score, difference to the first row, interval."""
    print(f"| behind the encoder | {' | '.join(measures)} |")
    print("|---|" + "---:|" * len(measures))
    for k, name in enumerate(ROWS):
        cells = []
        for scores, samples in measures.values():
            cell = f"{100 * scores[k]:.1f}"
            if k:
                low, high = 100 * np.quantile(samples[k] - samples[0], (0.025, 0.975))
                cell += f" ({100 * (scores[k] - scores[0]):+.1f}, {low:+.1f} to {high:+.1f})"
            cells.append(cell)
        print(f"| {name} | {' | '.join(cells)} |")


def thresholds(cosines):
    """Print and return what one pair of unlike questions in a hundred reaches, by row."""
    print("one pair of other intents in a hundred reaches; pairs of one intent that do")
    found = {}
    for name, (cosine, same) in cosines.items():
        threshold = np.quantile(cosine[~same], 0.99)
        found[name] = threshold, np.mean(cosine[same] >= threshold)
        means = f"{cosine[~same].mean():6.2f}{cosine[same].mean():6.2f}"
        print(f"  {name:30}{threshold:6.2f}{100 * found[name][1]:6.1f} %, means{means}")
    return found


def figure(cosines, found, path):
    """Draw the cosines of pairs of one intent and of others, before and after."""
    import matplotlib.pyplot as plt

    # Text stays text, so that the file is small; nothing in it changes from run to run.
    plt.rcParams.update({"svg.fonttype": "none", "svg.hashsalt": "cosines", "font.size": 12})
    _, axes = plt.subplots(2, sharex=True, figsize=(7, 5), layout="constrained")
    titles = {"nothing: as shipped": "as shipped", 'Whitening(noise="auto")': "calibrated"}
    for ax, (name, title) in zip(axes, titles.items(), strict=True):
        cosine, same = cosines[name]
        threshold, share = found[name]
        for kind, color, label in (
            (~same, "#8c8c8c", "other intents"),
            (same, "#d9570d", "the same intent"),
        ):
            heights, edges = np.histogram(cosine[kind], bins=np.linspace(-0.3, 1, 105))
            heights = heights / heights.max()
            ax.stairs(heights, edges, fill=True, color=color, alpha=0.55, label=label)
        ax.axvline(threshold, color="black", linewidth=1.5)
        left = threshold > 0.6
        ax.annotate(
            f"1 % of other intents pass {threshold:.2f},\n"
            f"{100 * share:.0f} % of the same intent",
            (threshold, 1.45),
            (-6 if left else 6, 0),
            textcoords="offset points",
            ha="right" if left else "left",
            va="top",
        )
        ax.set(title=title, yticks=[], ylim=(0, 1.5))
        ax.spines[["left", "right", "top"]].set_visible(False)
    axes[0].legend(loc="center left", frameon=False)
    axes[1].set(xlabel="cosine of two questions", xlim=(-0.3, 1))
    plt.savefig(path, facecolor="white", metadata={"Date": None, "Creator": None})


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model", metavar="MODEL")
    parser.add_argument("--memory", required=True, help="folder for vectors")
    parser.add_argument("--figure", metavar="FILE", help="draw the cosines into a file")
    text = "fit STS on sentences that are in no test set, but for case and punctuation"
    parser.add_argument("--unseen", action="store_true", help=text)
    options = parser.parse_args()
    model = minilm_path() if options.model == "minilm" else options.model
    store = VectorStore(options.memory, layers=(-1,), pooling="mean")
    encode = BertEncoder(model, pooling="mean", memory=store).fit(["one text"]).transform
    search, duplicates, cosines = banking(encode)
    found = thresholds(cosines)
    if options.figure:
        figure(cosines, found, options.figure)
    table({"STS": sts(encode, options.unseen), "search": search, "duplicates": duplicates})
