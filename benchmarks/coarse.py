"""The dial from fine to coarse: gain over raw vectors by noise, for few and for many groups.

    SKCALIB_DATA=folder python benchmarks/coarse.py MODEL --memory vectors [--prompt "query: "]
        --output docs/results/coarse-minilm.csv [--picture docs/_static/coarse.svg]

Beside the folder of ``SKCALIB_DATA`` there are the folders ``coarse`` (news, of four topics
and of each pair of them), ``topics`` (biomedical titles) and ``tasks`` (Banking77). Each fit
takes up to 4,000 training texts without labels, or STS-B's training sentences; scores are of up
to 2,000 test texts, or of ``--most`` texts of each. A gain is the mean of those of R-precision
and of the accuracy of the nearest mean of three labelled texts a class (ten draws), of
Spearman's rho on STS-B's test pairs and in the mean of all STS sets, or of nDCG@10 on
Cranfield (``retrieval/cranfield``), times 100. Beside it stand the two, and the average
precision of pairs. ``--most`` leaves out the last two sets, which are large. ``--words`` adds
WordSim-353: a file of two words and people's score a line, separated by tabs, as gensim's
package has it (``gensim/test/test_data/wordsim353.tsv``). Maps are fitted on its 437 words.

"x4" is the neutral map with four times its noise. "neutral" is
``Whitening(noise="auto")``, "told" the same with ``n_groups``, and "smoothed" adds
`NeighborSmoothing`. "best PCA" is the better of 128 dimensions and of as many as groups, in
hindsight.
"""

import argparse
import csv
import os
from functools import partial
from itertools import combinations
from pathlib import Path

import numpy as np
import pandas as pd
from choices import scores
from noise_rule import SETS as TASKS
from noise_rule import Cranfield, Sts
from sklearn.base import clone
from sklearn.decomposition import PCA
from sklearn.pipeline import make_pipeline

from skcalib import BertEncoder, NeighborSmoothing, Whitening
from skcalib.datasets import minilm_path
from skcalib.utils.texts import distinct

DATA = Path(os.environ["SKCALIB_DATA"]).parent
SETS = {
    "news": "coarse/news",
    "biomedical": "topics/biomedical",
    "Banking77": "tasks/banking77",
    "intents": "narrow/intents",
    "spam": "narrow/spam",
    "emotions": "narrow/emotions",
}
FACTORS = (0.25, 1, 4, 16, 64, 256)


def read(name, half, most):
    frame = pd.read_csv(DATA / f"{SETS[name]}-{half}.csv", keep_default_na=False)
    frame = frame.iloc[np.sort(np.random.default_rng(0).permutation(len(frame))[:most])]
    return frame.iloc[:, 0].to_numpy(), frame.iloc[:, 1].to_numpy()


class Words(Sts):
    """Spearman's rho of pairs of words, fitted on the words."""

    def __init__(self, encode, path):
        lines = pd.read_csv(path, sep="\t", comment="#", header=None).to_numpy()
        texts, rows = distinct(lines[:, :2].ravel().tolist())
        self.fit = encode(texts)
        self.pairs = {"words": (self.fit, np.reshape(rows, (-1, 2)), lines[:, 2].astype(float))}


def of_labels(X, labels, map_):
    return scores(X if map_ is None else map_.transform(X), labels)


def cells(encode, most, tasks):
    """Name, number of groups, vectors to fit on, and a function from a fitted map to scores."""
    for name in SETS:
        fit_on, of_fit = read(name, "train", most or 4000)
        texts, labels = read(name, "test", most or 2000)
        A, B = encode(fit_on), encode(texts)
        yield name, len(np.unique(labels)), A, partial(of_labels, B, labels)
        if name == "news":
            for pair in combinations(np.unique(labels), 2):
                kept, y = np.isin(labels, pair), labels[np.isin(labels, pair)]
                part, score = A[np.isin(of_fit, pair)], partial(of_labels, B[kept], y)
                yield " and ".join(pair), 2, part, score
    for name, task in tasks:
        yield name, None, task.fit, task.scores


def steps(A, k):
    """Yield steps by name, for k groups."""
    base = Whitening(noise="auto").fit(A)
    dial = {"power": base.power_, "shrinkage": base.shrinkage_}
    yield "raw", None
    yield "mean subtracted", Whitening(power=0)
    yield "PCA(128)", PCA(128, random_state=0)
    yield "neutral", Whitening(noise="auto")
    if k is not None:
        yield "PCA(groups)", PCA(k, random_state=0)
        told = Whitening(noise="auto", n_groups=k)
        yield "told", told
        yield "neutral, smoothed", make_pipeline(Whitening(noise="auto"), NeighborSmoothing())
        yield "told, smoothed", make_pipeline(told, NeighborSmoothing())
    for factor in FACTORS:
        yield f"x{factor:g}", Whitening(noise=factor * base.noise_, **dial)


def measured(encode, most, tasks):
    """Rows: cell, number of groups, step, gain over raw vectors, and that of each score."""
    for name, k, A, score in cells(encode, most, tasks):
        raw, gains = None, {}
        for step, map_ in steps(A, k):
            values = np.array(score(map_ and map_.fit(A)))
            raw = values if raw is None else raw
            gains[step] = [np.mean((values - raw)[:2]), *(values - raw if k else [])]
        known = [gains[step] for step in ("PCA(128)", "PCA(groups)") if step in gains]
        gains["best PCA"] = max(known, key=lambda several: several[0])
        print(f"{name:24}", *(f"{step} {g[0]:+.1f}" for step, g in gains.items()), flush=True)
        for step, several in gains.items():
            yield [name, k or "", step, *(f"{gain:+.1f}" for gain in several)]


def draw(rows, path):
    """Draw the dial, for light and for dark pages."""
    import matplotlib as mpl

    mpl.use("svg")
    mpl.rcParams["svg.hashsalt"] = "coarse"
    from matplotlib import pyplot as plt

    curves = {}
    for _, k, step, gain, *_ in rows:
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
            axes.set(xscale="log", xlabel="noise, times the neutral one", ylabel="points")
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
    parser.add_argument("--dtype", default="float32")
    parser.add_argument("--document-prompt")
    parser.add_argument("--most", type=int, help="texts of each set")
    parser.add_argument("--words", help="file of pairs of words")
    parser.add_argument("--output", default="coarse.csv")
    parser.add_argument("--picture", type=Path)
    options = parser.parse_args()
    model = minilm_path() if options.model == "minilm" else options.model
    kept = {"dtype": options.dtype, "memory": options.memory}
    encoder = BertEncoder(model, prompt=options.prompt, **kept)

    def encode(texts, documents=False):
        prompt = options.document_prompt if documents else options.prompt
        return clone(encoder).set_params(prompt=prompt).fit_transform(texts)

    tasks = {"STS-B": Sts(encode, options.most or 4000, ["stsb"])}
    if options.most is None:
        tasks |= {"STS": Sts(encode, 4000, TASKS), "Cranfield": Cranfield(encode)}
    if options.words:
        tasks["words"] = Words(encode, options.words)
    rows = list(measured(encode, options.most, tasks.items()))
    with open(options.output, "w", newline="", encoding="utf-8") as stream:
        header = ["cell", "groups", "step", "gain", "R-precision", "three labels", "pairs"]
        csv.writer(stream).writerows([header, *rows])
    if options.picture:
        draw(rows, options.picture)


if __name__ == "__main__":
    main()
