r"""Common steps after an encoder compared, with intervals, and a picture of the cosines.

    SKCALIB_DATA=folder python benchmarks/comparison.py minilm --memory vectors \
        --output docs/results/comparison-minilm.csv
    SKCALIB_DATA=folder python benchmarks/comparison.py E5 --memory vectors \
        --prompt "query: " --document-prompt "passage: " \
        --output docs/results/comparison-e5.csv --figure docs/_static/cosines.svg

Beside the folder of ``SKCALIB_DATA`` there are the folders ``tasks`` (banking77-train.csv,
banking77-test.csv), ``topics`` (biomedical-...), ``coarse`` (news-...) and
``retrieval/cranfield`` (in BEIR's layout). E5 is a folder with multilingual-e5-small. The pages
read the two files of ``--output``, and README and the front page the picture.

No fit uses labels. The fits use 4,000 of STS-B's training sentences ("STS") or those that are
in no test set ("STS unseen"), 4,000 texts of the training half of each labelled set, and, for
the search, Cranfield's documents and queries. "told" knows the number of groups. Each score has
its difference to raw vectors and the 95 % interval of a paired bootstrap over pairs (STS),
texts (labelled sets) or queries (Cranfield).
"""

import argparse
import csv
import os
import re
from pathlib import Path

import numpy as np
import pandas as pd
from scipy.signal import argrelextrema
from scipy.stats import rankdata
from sklearn.base import BaseEstimator, TransformerMixin, clone
from sklearn.cluster import KMeans
from sklearn.decomposition import PCA
from sklearn.metrics import normalized_mutual_info_score
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import FunctionTransformer, StandardScaler

from skcalib import (
    BertEncoder,
    GroupErasure,
    NeighborSmoothing,
    SimilarityScale,
    VectorStore,
    Whitening,
)
from skcalib.datasets import fetch_sts, minilm_path
from skcalib.evaluation import evaluate_retrieval
from skcalib.evaluation._beir import read_beir
from skcalib.evaluation._labelled import few_labels
from skcalib.evaluation._sts import BENCHMARKS
from skcalib.utils.vectors import unit_rows

DATA = Path(os.environ["SKCALIB_DATA"]).parent
FITTED = 4000  # texts
RESAMPLES = 200
RESAMPLES_OF_PAIRS = 40  # of millions of pairs each
DRAWS = 20  # of three labels of each class
SETS = {
    "Banking77": "tasks/banking77",
    "biomedical": "topics/biomedical",
    "news": "coarse/news",
    "intents": "narrow/intents",
    "spam": "narrow/spam",
    "emotions": "narrow/emotions",
}


class AllButTheTop(TransformerMixin, BaseEstimator):
    """Remove mean and d / 100 directions of largest variance (Mu & Viswanath, 2018)."""

    def fit(self, X, y=None):
        self.pca_ = PCA(X.shape[1] // 100, random_state=0).fit(X)
        return self

    def transform(self, X):
        return X - self.pca_.inverse_transform(self.pca_.transform(X))


class MeanProjectedOff(TransformerMixin, BaseEstimator):
    """Remove the direction of the mean (Ren et al., 2025, arXiv:2511.11041, "R2")."""

    def fit(self, X, y=None):
        self.direction_ = unit_rows(unit_rows(X)[0].mean(axis=0, keepdims=True))[0][0]
        return self

    def transform(self, X):
        return X - np.outer(X @ self.direction_, self.direction_)


def knee_of(curve, sensitivity=0.5):
    """Return the first knee of a convex, falling curve (Kneedle, with the paper's setting)."""
    below = (curve[0] - curve) / (curve[0] - curve[-1]) - np.linspace(0, 1, len(curve))
    enough = sensitivity / (len(curve) - 1)
    peaks = argrelextrema(below, np.greater_equal)[0]
    ends = [*peaks[1:], len(below)]
    falls = (below[k:end].min() < below[k] - enough for k, end in zip(peaks, ends, strict=True))
    return next((k for k, fall in zip(peaks, falls, strict=True) if fall), np.argmax(below))


class SpectralTempering(TransformerMixin, BaseEstimator):
    """Whiten the leading axes by a power that their spectrum gives (Li et al., 2026).

    arXiv:2603.19339: the power is the signal-to-noise ratio of the last kept axis over that of
    the knee of the spectrum, at most 1; the noise is the mean of the last tenth of variances.
    """

    def __init__(self, n_components=128):
        self.n_components = n_components

    def fit(self, X, y=None):
        self.pca_ = PCA(svd_solver="full").fit(np.asarray(X, dtype=float))
        variances = self.pca_.explained_variance_
        tail = int(0.9 * len(variances))
        ratio = np.maximum(variances[:tail] / variances[tail:].mean() - 1, 0)
        self.power_ = min(1.0, ratio[self.n_components - 1] / ratio[knee_of(ratio)])
        self.scale_ = variances[: self.n_components] ** (-self.power_ / 2)
        return self

    def transform(self, X):
        return self.pca_.transform(X)[:, : self.n_components] * self.scale_


def steps(n_groups=None):
    """Return the steps by name, with those that know the number of groups if there is one."""
    whitened, smoothing = Whitening(noise="auto"), NeighborSmoothing()
    found = {
        "raw": FunctionTransformer(),
        "first 128": FunctionTransformer(lambda X: X[:, :128]),
        "centered": StandardScaler(with_std=False),
        "mean projected off": MeanProjectedOff(),
        "all but the top": AllButTheTop(),
        "PCA(30)": PCA(30, random_state=0),
        "PCA(128)": PCA(128, random_state=0),
        "PCA(whiten=True)": PCA(whiten=True),
        "spectral tempering": SpectralTempering(),
        "exact": Whitening(),
        "whitened": whitened,
        "whitened to 128": Whitening(128, noise="auto"),
        "smoothed": make_pipeline(whitened, smoothing),
    }
    if n_groups is not None:
        told = Whitening(noise="auto", n_groups=n_groups)
        found["PCA(groups)"] = PCA(n_groups, random_state=0)
        found["told"] = told
        found["told and smoothed"] = make_pipeline(told, smoothing)
    return found


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


def correlations(grades, cosines):
    """Spearman's rho of each row of cosines with the grades."""
    return np.corrcoef(rankdata(np.vstack([grades, *cosines]), axis=1))[0, 1:]


def sts(encode):
    """Spearman's rho, averaged over the seven sets, after two fits."""
    train = np.unique(fetch_sts("stsb", "train").data)
    tests = {task: fetch_sts(task, "test", return_X_y=True) for task in BENCHMARKS}
    seen = {plain(text) for pairs, _ in tests.values() for text in pairs.ravel()}
    unseen = train[[plain(text) not in seen for text in train]]
    print(f"{len(unseen)} of STS-B's {len(train)} training sentences are in no test set")
    for name, texts in {"STS": train, "STS unseen": unseen}.items():
        vectors = encode(some(texts))
        fitted = [step.fit(vectors) for step in steps().values()]
        scores, samples = [], []
        for seed, (pairs, grades) in enumerate(tests.values()):
            A, B = encode(pairs[:, 0]), encode(pairs[:, 1])
            sides = [[unit_rows(step.transform(X))[0] for X in (A, B)] for step in fitted]
            cosines = np.array([(a * b).sum(axis=1) for a, b in sides])
            scores.append(correlations(grades, cosines))
            drawn = resampled(len(grades), seed=seed)
            samples.append([correlations(grades[i], cosines[:, i]) for i in drawn])
        ends = intervals(np.mean(samples, axis=0).T)
        yield name, "Spearman", steps(), np.mean(scores, axis=0), ends


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


def labelled(encode, name):
    """Return names, steps, scores and intervals of one set, and cosines of pairs by step."""
    fit, test = (pd.read_csv(DATA / f"{SETS[name]}-{half}.csv") for half in ("train", "test"))
    X = encode(some(fit["text"].to_numpy()))
    vectors, y = encode(test["text"].to_numpy()), pd.factorize(test.iloc[:, 1])[0]
    same = y[:, None] == y
    i, j = np.triu_indices(len(y), k=1)
    contenders, cosines = steps(y.max() + 1), {}
    found, pairs_found, few, clusters = [], [], [], []

    def of_pairs(similarity):
        pairs = Pairs(similarity, i, j, same[i, j])
        drawn = resampled(len(y), RESAMPLES_OF_PAIRS)
        counts = [np.ones(len(y)), *(np.bincount(rows, minlength=len(y)) for rows in drawn)]
        return [pairs.average_precision(count) for count in counts]

    for step_name, step in contenders.items():
        unit = unit_rows(clone(step).fit(X).transform(vectors))[0]
        similarity = unit @ unit.T
        right = np.nanmean(few_labels(unit, y, draws=DRAWS), axis=0)
        for measure, of_each in ((found, precisions(similarity, same)), (few, right)):
            means = (of_each[rows].mean() for rows in resampled(len(y)))
            measure.append([of_each.mean(), *means])
        pairs_found.append(of_pairs(similarity[i, j]))
        seeds = (KMeans(y.max() + 1, n_init=3, random_state=seed) for seed in range(5))
        nmi = [normalized_mutual_info_score(y, seed.fit_predict(unit)) for seed in seeds]
        clusters.append(np.mean(nmi))
        if name == "Banking77":
            cosines[step_name] = similarity[i, j].astype(np.float32), same[i, j]
        if step_name == "whitened":
            fitted = clone(step).fit(X)
            scale = SimilarityScale().fit(fitted.transform(X))
            r = scale.neighbor_similarity(fitted.transform(vectors))
            corrected = of_pairs(similarity[i, j] - (r[i] + r[j]) / 2)
    rows = []
    for score, names, measured in (
        ("R-precision", contenders, found),
        ("average precision", [*contenders, "corrected"], [*pairs_found, corrected]),
        ("3 labels", contenders, few),
    ):
        measured = np.array(measured)
        rows.append((name, score, names, measured[:, 0], intervals(measured[:, 1:])))
    return [*rows, (name, "NMI", contenders, np.array(clusters), None)], cosines


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
    """nDCG@10 on Cranfield."""
    folder = DATA / "retrieval" / "cranfield"
    documents, queries, *_ = read_beir(folder, "test")
    D = documents_encoder.transform(list(documents.values()))
    Q = queries_encoder.transform(list(queries.values()))
    rows, query_rows = {}, {}
    for name, step in steps().items():
        for_documents, for_queries = of_queries(step, D, Q)
        rows[name] = make_pipeline(documents_encoder, for_documents)
        query_rows[name] = make_pipeline(queries_encoder, for_queries)
    found = evaluate_retrieval(rows, folder, queries_encoder=query_rows)
    ends = found.intervals[:, 0] / 100
    return "Cranfield", "nDCG@10", steps(), found.scores[:, 0] / 100, ends


def write(measured, path):
    """Write a row for each set, score and step: value, difference to raw, and its interval."""
    with open(path, "w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(["data", "score", "step", "value", "difference", "low", "high"])
        for name, score, contenders, values, ends in measured:
            ends = [(), *([()] * (len(values) - 1) if ends is None else 100 * ends[1:])]
            for k, step in enumerate(contenders):
                difference = [100 * (values[k] - values[0])] * (k > 0)
                signed = [f"{points:+.1f}" for points in (*difference, *ends[k])]
                cells = [name, score, step, f"{100 * values[k]:.1f}", *signed]
                writer.writerow(cells + [""] * (7 - len(cells)))


def thresholds(cosines, path):
    """Write, and return, the cosine that 1 % of unrelated pairs reach, by step."""
    found = {}
    with open(path, "w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(
            ["step", "threshold", "related above", "unrelated mean", "related mean"]
        )
        for name, (cosine, same) in cosines.items():
            threshold = np.quantile(cosine[~same], 0.99)
            found[name] = threshold, np.mean(cosine[same] >= threshold)
            means = (f"{cosine[kind].mean():z.2f}" for kind in (~same, same))
            writer.writerow([name, f"{threshold:.2f}", f"{100 * found[name][1]:.0f}", *means])
    return found


def figure(cosines, found, path):
    """Draw the cosines of related and unrelated pairs, before and after, for both themes."""
    import matplotlib.pyplot as plt

    # Text stays text, so that the file is small; nothing in it changes from run to run.
    plt.rcParams.update({"svg.fonttype": "none", "svg.hashsalt": "cosines", "font.size": 12})
    names = {"raw": "raw", "whitened": "calibrated"}
    for ink, grey, suffix in (("black", "#8c8c8c", ""), ("white", "#7f8a99", "-dark")):
        inked = ("text.color", "axes.edgecolor", "axes.labelcolor", "axes.titlecolor")
        plt.rcParams.update(dict.fromkeys((*inked, "xtick.color"), ink))
        fig, axes = plt.subplots(2, sharex=True, figsize=(7, 4), layout="constrained")
        for ax, (name, title) in zip(axes, names.items(), strict=True):
            cosine, same = cosines[name]
            threshold, share = found[name]
            for kind, color, label in (
                (~same, grey, "unrelated questions"),
                (same, "#d9570d", "questions that want the same thing"),
            ):
                heights, edges = np.histogram(cosine[kind], bins=np.linspace(-0.3, 1, 105))
                heights = heights / heights.max()
                ax.stairs(heights, edges, fill=True, color=color, alpha=0.6, label=label)
            ax.axvline(threshold, color=ink, linewidth=1.5)
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
        file = path.with_stem(path.stem + suffix)
        # Elsewhere than on these pages, the light one may stand on a dark ground.
        color = "none" if suffix else "white"
        fig.savefig(file, facecolor=color, metadata={"Date": None, "Creator": None})
        plt.close(fig)


def main(options):
    model = minilm_path() if options.model == "minilm" else options.model
    prompts = options.prompt, options.document_prompt
    prompts = prompts[0], prompts[0] if prompts[1] is None else prompts[1]
    store = VectorStore(options.memory, layers=(-1,), pooling="mean")
    encoder, documents_encoder = (
        BertEncoder(model, pooling="mean", prompt=prompt, memory=store).fit(["one text"])
        for prompt in prompts
    )
    measured = [*sts(encoder.transform), search(documents_encoder, encoder)]
    kind = options.output.name.removeprefix("comparison-")
    for name in SETS:
        rows, cosines = labelled(encoder.transform, name)
        measured += rows
        if cosines:
            passed = thresholds(cosines, options.output.with_name(f"cosines-{kind}"))
            if options.figure:
                figure(cosines, passed, options.figure)
    write(measured, options.output)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model", metavar="MODEL", help="a folder, or minilm")
    parser.add_argument("--memory", required=True, help="folder for vectors")
    text = "table (CSV); one of cosines lies beside it"
    parser.add_argument("--output", type=Path, required=True, metavar="FILE", help=text)
    text = "draw the cosines into this SVG file and one for dark pages"
    parser.add_argument("--figure", type=Path, metavar="FILE", help=text)
    parser.add_argument("--prompt", help='comes before each text, such as "query: "')
    text = "comes before Cranfield's documents; default: the same as --prompt"
    parser.add_argument("--document-prompt", help=text)
    options = parser.parse_args()
    main(options)
