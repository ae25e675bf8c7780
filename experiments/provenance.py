"""Which model are vectors of? Wrong answers of `provenance`, and rows of another model found.

Each whitening is fitted on up to 300 or 1,500 texts of one of eight sets. "same, own set" are
other texts of the set, "same, other sets" those of the seven other sets by the same model; the
other models have the same width. A sample has 5 or 20 texts, and "wrong" is the percentage of
samples with a wrong answer. A mixed index has 1, 5 or 20 % rows of the other model, of texts of
the same set.
"""

from itertools import product

import numpy as np
from data import labeled, match, sentences

from skcalib import Whitening
from skcalib.inspection import provenance

SETS = "Banking77", "STS-B", "intents", "emotions", "news", "biomedical", "spam", "translations"
FOREIGN = {"minilm": ("e5", "layer 3", "cls"), "e5": ("minilm",)}
MOST = 900  # new texts of a set


def texts_of(name, most):
    """Texts to fit on, and others."""
    if name == "STS-B":
        found = sentences(None)
    elif name == "translations":
        found = np.unique([*match(name).fit[1], *match(name).sides[1]])
        found = np.random.default_rng(0).permutation(found)
    else:
        found = labeled(name, "train", 3300)[0]
    n = min(most, len(found) // 2)
    return found[:n], found[n:][:MOST]


def vectors_of(encode, model, texts):
    if model == "layer 3":
        return encode.named("minilm")(texts, layers=(3,), memory=None)
    if model == "cls":
        return encode.named("minilm")(texts, pooling="cls", memory=None)
    return encode.named(model)(texts)


def rows(encode, options):
    names = options.only or SETS
    for model, n_fit in product(FOREIGN, (300, 1500)):
        texts = {name: texts_of(name, n_fit) for name in names}
        new = {name: vectors_of(encode, model, texts[name][1]) for name in names}
        other = {
            (kind, name): vectors_of(
                encode, kind, texts[name][1][: MOST if kind in ("e5", "minilm") else 200]
            )
            for kind in FOREIGN[model]
            for name in names
        }
        distances, index = {}, {}
        for name in names:
            fitted = Whitening(noise="auto").fit(vectors_of(encode, model, texts[name][0]))
            for source in names:
                kind = "same, own set" if source == name else "same, other sets"
                found = provenance(fitted, new[source]).distances
                distances.setdefault(kind, []).append(found)
            for (kind, source), X in other.items():
                where = "own set" if source == name else "other sets"
                found = provenance(fitted, X)
                distances.setdefault(f"{kind}, {where}", []).append(found.distances)
                if source == name and kind in FOREIGN:
                    mixed(fitted, new[name], X, index)
        for kind, found in distances.items():
            row = {"model": model, "fit": n_fit, "vectors": kind}
            for size in (5, 20):
                means = np.concatenate([of_samples(values, size) for values in found])
                wrong = (means < 0.95) != kind.startswith("same")
                row[f"{size}: wrong"] = f"{100 * wrong.mean():.1f}"
                row[f"{size}: 1 % to 99 %"] = " to ".join(
                    f"{q:.2f}" for q in np.quantile(means, (0.01, 0.99))
                )
            yield row
        for share, counts in index.items():
            true, marked, all_foreign = np.sum(counts, axis=0)
            yield {
                "model": model,
                "fit": n_fit,
                "vectors": f"index, {100 * share:.0f} %",
                "precision": f"{true / marked:.3f}",
                "recall": f"{true / all_foreign:.3f}",
            }


def of_samples(values, size):
    """Mean distance of samples of so many rows."""
    n = len(values) // size
    return values[: n * size].reshape(n, size).mean(axis=1)


def mixed(whitening, own, foreign, index):
    """Count foreign rows that are marked, all that are marked, and all that are foreign."""
    for share in (0.01, 0.05, 0.2):
        n = round(share / (1 - share) * len(own))
        marked = provenance(whitening, np.vstack([own, foreign[:n]])).foreign
        index.setdefault(share, []).append((marked[len(own) :].sum(), marked.sum(), n))
