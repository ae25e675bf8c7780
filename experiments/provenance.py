"""Which model are vectors of? Wrong answers of `provenance`, and rows of another model found.

Each whitening is fitted on up to 300 texts of one of eight sets. "same" are texts of the seven
other sets by the same model. The others are those of another model, and of other layers,
poolings and prompts of the same one. Models of one width are MiniLM, e5 and the 384 leading
columns of mpnet; and mpnet, and MiniLM beside e5. A sample has 20 texts, and "wrong" is the
percentage of samples with a wrong answer: another model for the same one, or the same for
anything else. "fits" is the number of sets whose whitening was accepted: the others do not
identify a model, and are refused. A mixed index has 1, 5 or 20 % rows of another model, of
texts of the same set.
"""

from itertools import product

import numpy as np
from data import labeled, match, sentences

from skcalib import VectorStore, Whitening
from skcalib.monitoring import provenance

SETS = "Banking77", "STS-B", "intents", "emotions", "news", "biomedical", "spam", "translations"
FITTED, SAMPLE = 300, 20
OTHERS = {"minilm": ("e5", "mpnet"), "e5": ("minilm", "mpnet"), "mpnet": ("minilm and e5",)}
N_LAYERS = {"minilm": 6, "e5": 12, "mpnet": 12}
VARIANTS = {
    "half of the layers": lambda n: {"layers": (n // 2,)},
    "last layer but one": lambda n: {"layers": (n - 1,)},
    "[CLS]": lambda n: {"pooling": "cls"},
    "maximum": lambda n: {"pooling": "max"},
    "another prompt": lambda n: {"prompt": "title: "},
}
MOST, OF_MPNET, FEW = 900, 300, 80  # new texts of a set; with mpnet; of layers and so on


def texts_of(name):
    """Texts to fit on, and others."""
    if name == "STS-B":
        found = sentences(None)
    elif name == "translations":
        found = np.unique([*match(name).fit[1], *match(name).sides[1]])
        found = np.random.default_rng(0).permutation(found)
    else:
        found = labeled(name, "train", 3300)[0]
    n = min(FITTED, len(found) // 2)
    return found[:n], found[n:][:MOST]


def vectors_of(encode, model, texts, variant=None):
    if model == "minilm and e5":
        return np.hstack([vectors_of(encode, part, texts) for part in ("minilm", "e5")])
    encode = encode.named(model)
    if variant is None:
        return encode(texts)
    given = VARIANTS[variant](N_LAYERS[model])
    given["memory"] = None if "prompt" in given else VectorStore(encode.memory / "layers")
    return encode.bert().set_params(**given).fit_transform([*texts])


def rows(encode, options):
    names = options.only or SETS
    for model, others in OTHERS.items():
        texts, n = {name: texts_of(name) for name in names}, n_texts(model)
        new = {name: vectors_of(encode, model, texts[name][1][:n]) for name in names}
        kinds = [("same", name, X) for name, X in new.items()]
        for other, name in product(others, names):
            X = vectors_of(encode, other, texts[name][1][: min(n, n_texts(other))])
            kinds.append(("another model", name, X[:, : new[name].shape[1]]))
        for variant, name in product(VARIANTS, names):
            X = vectors_of(encode, model, texts[name][1][:FEW], variant)
            kinds.append((variant, name, X))
        distances, index, n_accepted = {}, {}, 0
        for name in names:
            fitted = Whitening(power="auto").fit(vectors_of(encode, model, texts[name][0]))
            try:
                provenance(fitted, new[name])
            except ValueError:
                continue
            n_accepted += 1
            for kind, source, X in kinds:
                if source != name:
                    of_kind = distances.setdefault(f"{kind}, other sets", [])
                    of_kind.append(of_samples(provenance(fitted, X).distances))
                elif kind == "another model":
                    mixed(fitted, new[name], X, index)
        row = {"model": model, "fits": n_accepted}
        for kind, means in distances.items():
            wrong = (np.concatenate(means) < 0.94) != kind.startswith("same")
            yield row | {"vectors": kind, "wrong": f"{100 * wrong.mean():.1f}"}
        for share, counts in index.items():
            true, marked, all_foreign = np.sum(counts, axis=0)
            rates = {"precision": f"{true / marked:.3f}", "recall": f"{true / all_foreign:.3f}"}
            yield row | {"vectors": f"index, {100 * share:.0f} %"} | rates


def n_texts(model):
    return OF_MPNET if model == "mpnet" else MOST


def of_samples(values):
    """Return the mean distance of each sample."""
    n = len(values) // SAMPLE
    return values[: n * SAMPLE].reshape(n, SAMPLE).mean(axis=1)


def mixed(whitening, own, foreign, index):
    """Count foreign rows that are marked, all that are marked, and all that are foreign."""
    for share in (0.01, 0.05, 0.2):
        n = min(round(share / (1 - share) * len(own)), len(foreign))
        marked = provenance(whitening, np.vstack([own, foreign[:n]])).foreign
        index.setdefault(share, []).append((marked[len(own) :].sum(), marked.sum(), n))
