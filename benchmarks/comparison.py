"""Common steps after an encoder compared, with intervals, and a picture of the cosines.

    SKCALIB_DATA=folder python benchmarks/comparison.py MODEL --memory vectors [--unseen]
        [--prompt "query: " --document-prompt "passage: "]

Beside the folder of ``SKCALIB_DATA`` there are the folders ``tasks`` (Banking77:
banking77-train.csv, banking77-test.csv), ``topics`` (biomedical-train.csv, biomedical-test.csv)
and ``retrieval/cranfield`` (in BEIR's layout). MODEL is a folder, or minilm. No fit uses
labels: the fits use 4,000 of STS-B's training sentences, 4,000 texts of the training half of
Banking77 and of the topics, and, for the search, Cranfield's documents and queries. Each score
is followed by its difference to the raw model, with the 95 % interval of a paired bootstrap
over pairs (STS), texts (Banking77, topics) or queries (Cranfield).
"""

import argparse
import os
import re
from pathlib import Path

import numpy as np
import pandas as pd
from sklearn.base import BaseEstimator, TransformerMixin, clone
from sklearn.cluster import KMeans
from sklearn.decomposition import PCA
from sklearn.metrics import normalized_mutual_info_score
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import FunctionTransformer, StandardScaler

from skcalib import BertEncoder, GroupErasure, NeighborSmoothing, VectorStore, Whitening
from skcalib._vectors import unit_rows
from skcalib.datasets import fetch_sts, minilm_path
from skcalib.evaluation import evaluate_retrieval
from skcalib.evaluation._beir import read_beir
from skcalib.evaluation._sts import TASKS
from skcalib.metrics import spearman

DATA = Path(os.environ["SKCALIB_DATA"])
FITTED = 4000  # texts
RESAMPLES = 1000
RESAMPLES_OF_PAIRS = 400  # of millions of pairs each
SETS = {"intent": ("tasks", "banking77"), "topic": ("topics", "biomedical")}


class AllButTheTop(TransformerMixin, BaseEstimator):
    """Remove mean and d / 100 directions of largest variance (Mu & Viswanath, 2018)."""

    def fit(self, X, y=None):
        self.pca_ = PCA(X.shape[1] // 100, random_state=0).fit(X)
        return self

    def transform(self, X):
        return X - self.pca_.inverse_transform(self.pca_.transform(X))


ROWS = {
    "raw": FunctionTransformer(),
    "the first 128 dimensions": FunctionTransformer(lambda X: X[:, :128]),
    "subtract the mean": StandardScaler(with_std=False),
    "all but the top": AllButTheTop(),
    "PCA(30)": PCA(30, random_state=0),
    "PCA(128)": PCA(128, random_state=0),
    "PCA(whiten=True)": PCA(whiten=True),
    "Whitening()": Whitening(),
    'Whitening(noise="auto")': Whitening(noise="auto"),
    'Whitening(128, noise="auto")': Whitening(128, noise="auto"),
    "and NeighborSmoothing()": make_pipeline(Whitening(noise="auto"), NeighborSmoothing()),
}


def resampled(n, times=RESAMPLES, seed=0):
    """Rows of each resample, the same for all contenders."""
    rng = np.random.default_rng(seed)
    return (rng.integers(n, size=n) for _ in range(times))


def some(texts):
    return np.random.default_rng(0).permutation(texts)[:FITTED]


def intervals(samples):
    """Return the ends of the 95 % interval of each row's difference to the first row."""
    samples = np.asarray(samples)
    return np.quantile(samples - samples[0], (0.025, 0.975), axis=1).T


def plain(text):
    return re.sub(r"\W+", " ", text.lower()).strip()


def sts(encode, unseen=False):
    """Mean of Spearman's rho over the seven sets, and the intervals of its differences."""
    train = np.unique(fetch_sts("stsb", "train").data)
    tests = {task: fetch_sts(task, "test", return_X_y=True) for task in TASKS}
    if unseen:
        seen = {plain(text) for pairs, _ in tests.values() for text in pairs.ravel()}
        train = train[[plain(text) not in seen for text in train]]
        print(f"STS: fitted on {len(train)} sentences that are in no test set")
    train = encode(some(train))
    fitted = [clone(step).fit(train) for step in ROWS.values()]
    scores, samples = [], []
    for seed, (pairs, grades) in enumerate(tests.values()):
        A, B = encode(pairs[:, 0]), encode(pairs[:, 1])
        sides = [[unit_rows(step.transform(X))[0] for X in (A, B)] for step in fitted]
        cosines = [(a * b).sum(axis=1) for a, b in sides]
        scores.append([spearman(grades, c) for c in cosines])
        drawn = resampled(len(grades), seed=seed)
        samples.append([[spearman(grades[i], c[i]) for c in cosines] for i in drawn])
    return np.mean(scores, axis=0), intervals(np.mean(samples, axis=0).T)


def precisions(similarity, same):
    """R-precision of each text with R others of its kind: their share of its R nearest."""
    similarity = similarity.copy()
    np.fill_diagonal(similarity, -np.inf)
    others = same.sum(axis=1) - 1
    order = np.argsort(-similarity, axis=1, kind="stable")[:, : others.max()]
    among = np.arange(others.max()) < others[:, None]
    return (np.take_along_axis(same, order, axis=1) & among).sum(axis=1) / others


class Pairs:
    """Pairs of texts by falling cosine, counted as often as their texts are drawn."""

    def __init__(self, cosine, i, j, same):
        order = np.argsort(-cosine, kind="stable")
        self.first, self.second = i[order], j[order]
        self.alike = np.flatnonzero(same[order])

        # Each run of pairs ends with a pair of the same kind; these are the starts.
        self.begins = np.r_[0, self.alike[:-1] + 1]

    def average_precision(self, counts):
        """Of the pairs that are alike. A text that is drawn twice makes no pair with itself."""
        # A product of two counts fits into a byte, since no text is drawn sixteen times.
        counts = counts.astype(np.uint8)
        weights = counts.take(self.first) * counts.take(self.second)
        above = np.add.reduceat(weights, self.begins, dtype=np.int32).cumsum()
        weights = weights[self.alike].astype(float)
        found = weights.cumsum()
        return weights @ (found / np.maximum(above, 1)) / found[-1]


def labelled(encode, fit, texts, y):
    """R-precision, average precision of pairs, NMI of k-means, and cosines of pairs, by row."""
    X, vectors = encode(fit), encode(texts)
    y = np.unique(y, return_inverse=True)[1]
    same = y[:, None] == y
    i, j = np.triu_indices(len(y), k=1)
    found, pairs_found, clusters, cosines = [], [], [], {}
    for name, step in ROWS.items():
        unit = unit_rows(clone(step).fit(X).transform(vectors))[0]
        similarity = unit @ unit.T
        each = precisions(similarity, same)
        found.append([each.mean(), *(each[rows].mean() for rows in resampled(len(y)))])
        pairs = Pairs(similarity[i, j], i, j, same[i, j])
        drawn = resampled(len(y), RESAMPLES_OF_PAIRS)
        counts = [np.ones(len(y)), *(np.bincount(rows, minlength=len(y)) for rows in drawn)]
        pairs_found.append([pairs.average_precision(count) for count in counts])
        seeds = (KMeans(y.max() + 1, n_init=3, random_state=seed) for seed in range(5))
        nmi = [normalized_mutual_info_score(y, seed.fit_predict(unit)) for seed in seeds]
        clusters.append(np.mean(nmi))
        cosines[name] = similarity[i, j].astype(np.float32), same[i, j]
    measures = [np.array(measure) for measure in (found, pairs_found)]
    return *((m[:, 0], intervals(m[:, 1:])) for m in measures), np.array(clusters), cosines


def of_queries(step, D, Q):
    """Return fitted steps for documents and for queries, whose means differ."""
    if isinstance(step, FunctionTransformer):
        return step, step
    whitening = step[0] if isinstance(step, Pipeline) else step
    if not isinstance(whitening, Whitening):
        # Each side has its own mean subtracted.
        shift = Q.mean(axis=0) - D.mean(axis=0)
        fitted = clone(step).fit(D)
        return fitted, make_pipeline(FunctionTransformer(lambda X: X - shift), fitted)
    # As `calibrate(model, documents, queries=queries)` does.
    both = np.vstack([D, Q])
    groups = np.repeat(["document", "query"], [len(D), len(Q)])
    erasure = GroupErasure().fit(both, groups=groups)
    steps = [erasure, clone(whitening).fit(erasure.transform(both))]
    if isinstance(step, Pipeline):
        steps.append(clone(step[1]).fit(make_pipeline(*steps).transform(D)))
    fitted = make_pipeline(*steps)
    return fitted, fitted


def search(documents_encoder, queries_encoder):
    """nDCG@10 on Cranfield, and the intervals of its differences to raw vectors."""
    folder = DATA.parent / "retrieval" / "cranfield"
    documents, queries, *_ = read_beir(folder, "test")
    D = documents_encoder.transform(list(documents.values()))
    Q = queries_encoder.transform(list(queries.values()))
    rows, query_rows = {}, {}
    for name, step in ROWS.items():
        for_documents, for_queries = of_queries(step, D, Q)
        rows[name] = make_pipeline(documents_encoder, for_documents)
        query_rows[name] = make_pipeline(queries_encoder, for_queries)
    found = evaluate_retrieval(rows, folder, queries_encoder=query_rows)
    return found.scores[:, 0] / 100, found.intervals[:, 0] / 100


def table(measures):
    """Print a row for each of ROWS: score, difference to the first row, interval."""
    print(f"| after the encoder | {' | '.join(measures)} |")
    print("|---|" + "---:|" * len(measures))
    for k, name in enumerate(ROWS):
        cells = []
        for scores, ends in measures.values():
            cell = f"{100 * scores[k]:.1f}"
            if k and ends is not None:
                low, high = 100 * ends[k]
                cell += f" ({100 * (scores[k] - scores[0]):+.1f}, {low:+.1f} to {high:+.1f})"
            cells.append(cell)
        print(f"| {name} | {' | '.join(cells)} |")


def thresholds(cosines):
    """Print and return the cosine that 1 % of unrelated pairs reach, by row."""
    print("cosine that 1 % of pairs of other intents reach; pairs of one intent that do; means")
    found = {}
    for name, (cosine, same) in cosines.items():
        threshold = np.quantile(cosine[~same], 0.99)
        found[name] = threshold, np.mean(cosine[same] >= threshold)
        means = f"{cosine[~same].mean():6.2f}{cosine[same].mean():6.2f}"
        print(f"  {name:30}{threshold:6.2f}{100 * found[name][1]:6.1f} %, means{means}")
    return found


def figure(cosines, found, path):
    """Draw the cosines of related and unrelated pairs, before and after."""
    import matplotlib.pyplot as plt

    # Text stays text, so that the file is small; nothing in it changes from run to run.
    plt.rcParams.update({"svg.fonttype": "none", "svg.hashsalt": "cosines", "font.size": 12})
    _, axes = plt.subplots(2, sharex=True, figsize=(7, 5), layout="constrained")
    titles = {"raw": "raw", 'Whitening(noise="auto")': "calibrated"}
    for ax, (name, title) in zip(axes, titles.items(), strict=True):
        cosine, same = cosines[name]
        threshold, share = found[name]
        for kind, color, label in (
            (~same, "#8c8c8c", "unrelated questions"),
            (same, "#d9570d", "questions that want the same thing"),
        ):
            heights, edges = np.histogram(cosine[kind], bins=np.linspace(-0.3, 1, 105))
            heights = heights / heights.max()
            ax.stairs(heights, edges, fill=True, color=color, alpha=0.55, label=label)
        ax.axvline(threshold, color="black", linewidth=1.5)
        left = threshold > 0.6
        ax.annotate(
            f"1 % of unrelated pairs exceed {threshold:.2f},\n"
            f"and {100 * share:.0f} % of those that want the same",
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


def main(options):
    model = minilm_path() if options.model == "minilm" else options.model
    prompts = options.prompt, options.document_prompt
    prompts = prompts[0], prompts[0] if prompts[1] is None else prompts[1]
    store = VectorStore(options.memory, layers=(-1,), pooling="mean")
    encoder, documents_encoder = (
        BertEncoder(model, pooling="mean", prompt=prompt, memory=store).fit(["one text"])
        for prompt in prompts
    )
    encode = encoder.transform
    measures, clusters = {"STS": sts(encode, options.unseen)}, {}
    for kind, (folder, name) in SETS.items():
        fit, test = (
            pd.read_csv(DATA.parent / folder / f"{name}-{split}.csv")
            for split in ("train", "test")
        )
        texts, y = test["text"].to_numpy(), test["category"].to_numpy()
        found, pairs, nmi, cosines = labelled(encode, some(fit["text"].to_numpy()), texts, y)
        measures |= {f"same {kind}": found, f"pairs of one {kind}": pairs}
        clusters[f"clusters, {kind}s"] = nmi, None
        if kind == "intent":
            passed = thresholds(cosines)
            if options.figure:
                figure(cosines, passed, options.figure)
    measures["search"] = search(documents_encoder, encoder)
    table(measures)
    print()
    table(clusters)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model", metavar="MODEL")
    parser.add_argument("--memory", required=True, help="folder for vectors")
    parser.add_argument("--figure", metavar="FILE", help="draw the cosines into a file")
    text = "fit STS on sentences of no test set (case and punctuation are ignored)"
    parser.add_argument("--unseen", action="store_true", help=text)
    parser.add_argument("--prompt", help='comes before each text, such as "query: "')
    text = "comes before Cranfield's documents; default: the same as --prompt"
    parser.add_argument("--document-prompt", help=text)
    options = parser.parse_args()
    main(options)
