"""The dial from fine to coarse: gain over raw vectors by n_groups, for few and for many groups.

Each fit takes up to 4,000 training texts, or STS-B's training sentences; scores are of up to
2,000 test texts. The cells are the labeled sets and the pairs of topics of the news. A gain is
the mean of those of R-precision and of the accuracy with three labels a class, or of Spearman's
rho on STS-B's test pairs, times 100. Beside it stand the two, and the average precision of
pairs. "n_groups=8" is ``Whitening(noise="auto", n_groups=8)`` whatever the true number is, and
"best PCA" the better of 128 dimensions and of as many as groups, in hindsight.
"""

from functools import partial
from itertools import combinations

import numpy as np
from contenders import some
from data import FITTED, SETS, labeled, pairs, sentences
from measures import of_groups, of_pairs
from sklearn.preprocessing import FunctionTransformer

from skcalib import Whitening

NUMBERS = 2, 8, 32, 128, 512, 2048
STEPS = "raw", "centered", "PCA(128)", "PCA(groups)", "whitened", "n_groups"
STEPS += "smoothed", "n_groups and smoothed"


def cells(encode, options):
    """Name, number of groups, vectors to fit on, and a function from a map to scores."""
    most = options.most or 2000
    for name in options.only or SETS:
        fit_on, of_fit = labeled(name, "train", FITTED)
        texts, labels = labeled(name, "test", most)
        A, B = encode(fit_on), encode(texts)
        yield name, len(np.unique(labels)), A, partial(grouped, B, labels)
        if name == "news":
            for pair in combinations(np.unique(labels), 2):
                kept, part = np.isin(labels, pair), A[np.isin(of_fit, pair)]
                yield " and ".join(pair), 2, part, partial(grouped, B[kept], labels[kept])
    both, grades = pairs("stsb")
    sides = [encode(side) for side in both.T]
    yield "STS-B", None, encode(sentences()), partial(graded, sides, grades)


def grouped(B, labels, step):
    return of_groups(step.transform(B), labels)


def graded(sides, grades, step):
    return np.array([of_pairs(*map(step.transform, sides), grades)])


def dial():
    """Return the map for several numbers of groups."""
    return {f"n_groups={n}": Whitening(noise="auto", n_groups=n) for n in NUMBERS}


def rows(encode, options):
    for name, k, A, score in cells(encode, options):
        raw, gains = score(FunctionTransformer()), {}
        contenders = some(STEPS, k) | dial()
        if k is None:
            del contenders["smoothed"]  # which is not for graded similarity
        for step, map_ in contenders.items():
            gained = score(map_.fit(A)) - raw
            gains[step] = [np.mean(gained[:2]), *(gained if k else [])]
        known = (gains[step] for step in ("PCA(128)", "PCA(groups)") if step in gains)
        gains["best PCA"] = max(known, key=lambda several: several[0])
        for step, several in gains.items():
            columns = "gain", "R-precision", "three labels", "pairs"
            points = zip(columns, (f"{gain:+.1f}" for gain in several), strict=False)
            yield {"cell": name, "groups": k or "", "step": step, **dict(points)}


def draw(rows, path):
    """Draw the dial, for light and for dark pages."""
    import matplotlib as mpl

    mpl.use("svg")
    mpl.rcParams["svg.hashsalt"] = "coarse"
    from matplotlib import pyplot as plt

    curves = {}
    for row in rows:
        if row["step"].startswith("n_groups="):
            k = row["groups"]
            place = k or 1000, f"{k} groups" if k else "similarity"
            gains = curves.setdefault(place, {}).setdefault(row["step"], [])
            gains.append(float(row["gain"]))
    for suffix, ink in (("", "black"), ("-dark", "white")):
        inked = "text.color", "axes.labelcolor", "axes.edgecolor", "xtick.color", "ytick.color"
        with plt.rc_context(dict.fromkeys(inked, ink) | {"font.size": 11}):
            figure, axes = plt.subplots(figsize=(7.2, 3.6), layout="constrained")
            for (_, label), gains in sorted(curves.items()):
                means = [np.mean(gains[step]) for step in dial()]
                axes.plot(NUMBERS, means, marker="o", label=label)
            axes.axhline(0, color=ink, linewidth=0.8)
            axes.set(xscale="log", xlabel="n_groups", ylabel="points")
            axes.set_xticks(NUMBERS, NUMBERS)
            axes.minorticks_off()
            axes.legend(frameon=False)
            kept = {"transparent": True, "metadata": {"Date": None}}
            figure.savefig(path.with_stem(path.stem + suffix), **kept)
            plt.close(figure)
