"""What is neutral on inner layers: gains over raw vectors, of means and of [CLS].

500 training texts are fitted and 400 test texts scored of each labeled set, and STS-B's test
pairs after a fit on as many training sentences. A gain is that of R-precision, or of Spearman's
rho on STS-B; "pairs" is that of the average precision of pairs. The layers are those at a
quarter, a half and three quarters of the depth. The experiment "default" has last layers,
"raw_depths" a language model.
"""

import numpy as np
from contenders import some
from data import SETS, labeled, pairs, sentences
from measures import of_groups, of_pairs
from sklearn.preprocessing import FunctionTransformer

from skcalib import Whitening

DEPTHS = {"minilm": 6, "e5": 12, "mpnet": 12}
STEPS = "centered", "PCA(128)", "PCA(groups)", "whitened", "n_groups"
STRONG = {
    "many": Whitening(noise="auto", n_groups="many"),
    "exact": Whitening(tol=1e-6),  # without directions that few texts do not span
}
FITTED, SCORED = 500, 400


def rows(encode, options):
    last = DEPTHS[encode.name]
    inner = last // 4, last // 2, 3 * last // 4
    kinds = {
        "means of inner layers": ("mean", inner),
        "[CLS] of inner layers": ("cls", inner),
    }
    gains = {}
    for kind, (pooling, layers) in kinds.items():
        for name in options.only or (*SETS, "STS-B"):
            if name == "Banking77":
                continue  # so few texts have no others of their intent
            for fit, score, k in cells(encode, name, pooling, layers):
                raw = score(FunctionTransformer())
                for step, map_ in (some(STEPS, k) | STRONG).items():
                    gained = score(map_.fit(fit)) - raw
                    gains.setdefault((kind, step), []).append((name, *gained))
    for (kind, step), found in gains.items():
        names, of_groups_, of_pairs_ = zip(*found, strict=True)
        row = {"vectors": kind, "step": step}
        for column, values in (("", of_groups_), (" of pairs", of_pairs_)):
            row[f"mean{column}"] = f"{np.nanmean(values):+z.1f}"
            row[f"worst{column}"] = f"{np.nanmin(values):+z.1f}"
        for name in dict.fromkeys(names):
            of_set = [gain for n, gain in zip(names, of_groups_, strict=True) if n == name]
            row[name] = f"{np.mean(of_set):+z.1f}"
        yield row


def cells(encode, name, pooling, layers):
    """Yield vectors to fit on, a function from a map to scores, and the number of groups."""
    kept = {"pooling": pooling, "layers": layers, "layer_merge": "concat", "memory": None}

    def by_layer(texts):
        return np.split(encode(texts, **kept), len(layers), axis=1)

    if name == "STS-B":
        both, grades = pairs("stsb")
        sides = zip(*map(by_layer, both.T), strict=True)
        for fit, pair in zip(by_layer(sentences(FITTED)), sides, strict=True):

            def graded(step, pair=pair):
                return np.array([of_pairs(*map(step.transform, pair), grades), np.nan])

            yield fit, graded, None
        return
    texts, labels = labeled(name, "test", SCORED)
    fits = by_layer(labeled(name, "train", FITTED)[0])
    for fit, T in zip(fits, by_layer(texts), strict=True):

        def grouped(step, T=T):
            return of_groups(step.transform(T), labels)[[0, 2]]

        yield fit, grouped, len(np.unique(labels))
