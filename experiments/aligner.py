"""Vectors of one model in the space of another: what `SpaceAligner` keeps.

"new to old" sends new queries into the old index: the map goes from the new model to the old
one. R-precision of 1,000 new texts: of the old model, of the new one (encoding again), of new
queries among the old vectors, and of old vectors carried into the new space, asked by new
queries. "kept" is the share of a text's ten nearest among 1,000 new texts that stay, which
`kept_` estimates from the pairs. "warns" is 1 where `fit` warns of few pairs.
"""

import warnings

import numpy as np
from data import labeled, match, sentences
from measures import codes_of, precisions, unit

from skcalib import SpaceAligner

SETS = "Banking77", "biomedical", "news", "intents", "spam", "emotions", "STS-B", "translations"
PAIRS = 100, 300, 1000, 1600, 3000
NEW = 1000


def texts_of(name):
    """Texts of pairs, new ones, and their labels if they have some."""
    if name == "STS-B":
        found = sentences(None)
        return found[:3300], found[3300:4300], None
    if name == "translations":  # their English
        found = np.unique([*match(name).fit[1], *match(name).sides[1]])
        found = np.random.default_rng(0).permutation(found)
        n = min(NEW, len(found) // 4)
        return found[n:][:3300], found[:n], None
    new, labels = labeled(name, "test", NEW)
    return labeled(name, "train", 3300)[0], new, labels


def rows(encode, options):
    for name in options.only or SETS:
        texts, others, labels = texts_of(name)
        pairs = {key: encode.named(key)(texts) for key in ("minilm", "e5")}
        held = {key: encode.named(key)(others) for key in ("minilm", "e5")}
        for old, new in (("minilm", "e5"), ("e5", "minilm")):
            for n in (n for n in PAIRS if n <= len(texts)):
                with warnings.catch_warnings(record=True) as caught:
                    warnings.simplefilter("always")
                    to_old = SpaceAligner().fit(pairs[new][:n], pairs[old][:n])
                    warns = len(caught)
                    to_new = SpaceAligner().fit(pairs[old][:n], pairs[new][:n])
                asked, carried = to_old.transform(held[new]), to_new.transform(held[old])
                row = {"data": name, "change": f"{old} to {new}", "pairs": n}
                if labels is not None:
                    row |= {
                        "old model": score(held[old], held[old], labels),
                        "new model": score(held[new], held[new], labels),
                        "queries": score(asked, held[old], labels),
                        "carried": score(held[new], carried, labels),
                    }
                row |= {
                    "kept_": f"{to_old.kept_:.2f}",
                    "kept": f"{kept(asked, held[old]):.2f}",
                    "warns": int(warns > 0),
                }
                yield row


def score(queries, documents, labels):
    codes = codes_of(labels)
    found = precisions(unit(queries) @ unit(documents).T, codes[:, None] == codes)
    return f"{100 * np.nanmean(found):.1f}"


def kept(asked, stored):
    k = max(1, round(0.01 * len(stored)))
    masks = []
    for queries in (asked, stored):
        cosines = unit(queries) @ unit(stored).T
        np.fill_diagonal(cosines, -1)
        mask = np.zeros(cosines.shape, bool)
        np.put_along_axis(mask, np.argsort(-cosines, axis=1)[:, :k], True, axis=1)
        masks.append(mask)
    return (masks[0] & masks[1]).sum() / (k * len(stored))
