"""The dial from fine to coarse: gain over raw vectors by noise, for few and for many groups.

    SKCALIB_DATA=folder python benchmarks/coarse.py MODEL --memory vectors [--prompt "query: "]
        --output docs/results/coarse-minilm.csv [--picture docs/_static/coarse.svg]

Beside the folder of ``SKCALIB_DATA`` there are the folders ``coarse`` (news, of four topics
and of each pair of them), ``topics`` (biomedical titles) and ``tasks`` (Banking77). Each fit
takes up to 4,000 training texts without labels, or STS-B's training sentences; scores are of up
to 2,000 test texts. A gain is the mean of those of R-precision and of the accuracy of the
nearest mean of three labelled texts a class (ten draws), or of Spearman's rho on STS-B's test
pairs, times 100.

"x4" is a power of 0.5 with four times the noise that goes with a power of 1. "neutral" is
``Whitening(noise="auto")``, "told" the same with ``n_clusters``, and "smoothed" adds
`NeighborSmoothing`. "best PCA" is the better of 128 dimensions and of as many as groups, in
hindsight.
"""

import argparse
import csv
import os
from itertools import combinations
from pathlib import Path

import numpy as np
import pandas as pd
from sklearn.decomposition import PCA
from sklearn.neighbors import NearestCentroid
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer

from skcalib import BertEncoder, NeighborSmoothing, Whitening
from skcalib._vectors import unit_rows
from skcalib.datasets import fetch_sts, minilm_path
from skcalib.evaluation._labelled import _retrieval
from skcalib.metrics import spearman

DATA = Path(os.environ["SKCALIB_DATA"]).parent
SETS = {
    "news": "coarse/news",
    "biomedical": "topics/biomedical",
    "Banking77": "tasks/banking77",
}
FACTORS = (0.1, 0.2, 0.4, 1, 2, 4, 8, 16)


def read(name, half, most):
    frame = pd.read_csv(DATA / f"{SETS[name]}-{half}.csv", keep_default_na=False)
    frame = frame.iloc[np.sort(np.random.default_rng(0).permutation(len(frame))[:most])]
    return frame.iloc[:, 0].to_numpy(), frame.iloc[:, 1].to_numpy()


def score_of(vectors, labels):
    """Mean of R-precision and of the accuracy with three labels a class."""
    units, codes = (
        unit_rows(np.asarray(vectors, np.float64))[0],
        np.unique(labels, False, True)[1],
    )
    rng, found = np.random.default_rng(0), []
    for _ in range(10):
        order = rng.permutation(len(codes))
        few = np.concatenate([order[codes[order] == code][:3] for code in np.unique(codes)])
        rest = np.setdiff1d(order, few)
        means = unit_rows(NearestCentroid().fit(units[few], codes[few]).centroids_)[0]
        found.append(np.mean((units[rest] @ means.T).argmax(axis=1) == codes[rest]))
    return 50 * (_retrieval(units, codes)[1] + np.mean(found))


def cells(encoder):
    """Name, number of groups, vectors to fit on, and a function from a map to a score."""
    for name in SETS:
        fit_on, of_fit = read(name, "train", 4000)
        texts, labels = read(name, "test", 2000)
        A, B = encoder.fit_transform(fit_on), encoder.fit_transform(texts)
        yield name, len(np.unique(labels)), A, lambda f, B=B, y=labels: score_of(f(B), y)
        if name == "news":
            for pair in combinations(np.unique(labels), 2):
                kept, y = np.isin(labels, pair), labels[np.isin(labels, pair)]
                part = A[np.isin(of_fit, pair)]
                yield " and ".join(pair), 2, part, lambda f, B=B[kept], y=y: score_of(f(B), y)
    train = np.unique(fetch_sts("stsb", "train").data.astype(str))
    train = np.random.default_rng(0).permutation(train)[:4000]
    (left, right), grades = (sts := fetch_sts("stsb", "test")).data.T.astype(str), sts.target
    V, W = encoder.fit_transform(left), encoder.fit_transform(right)

    def similarity(f):
        units = (unit_rows(np.asarray(f(X), np.float64))[0] for X in (V, W))
        return 100 * spearman(np.einsum("ij,ij->i", *units), grades)

    yield "STS-B", None, encoder.fit_transform(train), similarity


def steps(A, k):
    """Yield steps by name, for k groups."""
    base = Whitening(noise="auto", power=1.0).fit(A)
    dial = {"power": 0.5, "shrinkage": base.shrinkage_}
    yield "raw", FunctionTransformer()
    yield "mean subtracted", Whitening(power=0)
    yield "PCA(128)", PCA(128, random_state=0)
    yield "neutral", Whitening(noise="auto")
    if k is not None:
        yield "PCA(groups)", PCA(k, random_state=0)
        told = Whitening(noise="auto", n_clusters=k)
        yield "told", told
        yield "neutral, smoothed", make_pipeline(Whitening(noise="auto"), NeighborSmoothing())
        yield "told, smoothed", make_pipeline(told, NeighborSmoothing())
    for factor in FACTORS:
        yield f"x{factor:g}", Whitening(noise=factor * base.noise_, **dial)


def measured(encoder):
    """Rows: cell, number of groups, step, gain over raw vectors."""
    for name, k, A, score in cells(encoder):
        raw, gains = None, {}
        for step, map_ in steps(A, k):
            value = score(map_.fit(A).transform)
            raw = value if raw is None else raw
            gains[step] = value - raw
        gains["best PCA"] = max(gains["PCA(128)"], gains.get("PCA(groups)", -np.inf))
        print(
            f"{name:24}", *(f"{step} {gain:+.1f}" for step, gain in gains.items()), flush=True
        )
        yield from ([name, k or "", step, f"{gain:+.1f}"] for step, gain in gains.items())


def draw(rows, path):
    """Draw the dial, for light and for dark pages."""
    import matplotlib as mpl

    mpl.use("svg")
    mpl.rcParams["svg.hashsalt"] = "coarse"
    from matplotlib import pyplot as plt

    curves = {}
    for _, k, step, gain in rows:
        if step.startswith("x"):
            group = "2 groups" if k == 2 else f"{k} groups" if k else "similarity"
            curves.setdefault((k or 1000, group), {}).setdefault(float(step[1:]), []).append(
                float(gain)
            )
    for suffix, ink in (("", "black"), ("-dark", "white")):
        colors = dict.fromkeys(("text.color", "axes.labelcolor", "axes.edgecolor"), ink)
        colors |= {"xtick.color": ink, "ytick.color": ink, "font.size": 11}
        with plt.rc_context(colors):
            figure, axes = plt.subplots(figsize=(7.2, 3.6), layout="constrained")
            for (_, label), values in sorted(curves.items()):
                x = sorted(values)
                axes.plot(x, [np.mean(values[v]) for v in x], marker="o", label=label)
            axes.axhline(0, color=ink, linewidth=0.8)
            axes.set(xscale="log", xlabel="noise, times that of a power of 1", ylabel="points")
            axes.set_xticks(FACTORS, [f"{f:g}" for f in FACTORS])
            axes.minorticks_off()
            axes.legend(frameon=False)
            file = path.with_stem(path.stem + suffix)
            figure.savefig(file, transparent=True, metadata={"Date": None})
            plt.close(figure)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("model")
    parser.add_argument("--prompt")
    parser.add_argument("--memory")
    parser.add_argument("--output", default="coarse.csv")
    parser.add_argument("--picture", type=Path)
    options = parser.parse_args()
    model = minilm_path() if options.model == "minilm" else options.model
    rows = list(measured(BertEncoder(model, prompt=options.prompt, memory=options.memory)))
    with open(options.output, "w", newline="", encoding="utf-8") as stream:
        csv.writer(stream).writerows([["cell", "groups", "step", "gain"], *rows])
    if options.picture:
        draw(rows, options.picture)


if __name__ == "__main__":
    main()
