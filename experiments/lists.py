"""Two lists matched and copies found, by recipes of a few lines: what each lists.

"matches" are pairs of two lists: "half", five draws of at most 150 records of either list, half
of which have a partner in the other, or both lists as they are. "characters" are mutual nearest
neighbors with a cosine of 0.4 or more by the TF-IDF of n-grams of characters, and "vectors" all
by the encoder.

"copies" are 400 texts that are planted among 4,000, misspelled or with a word dropped;
"catalogs" are 600 texts and a version of each with all three changes. "characters" lists pairs
with a cosine of 0.8, "raw 0.9" those with one of vectors of 0.9, and "scale" those above the
threshold of a `SimilarityScale` that 1,000 pairs reach. Pairs that were not planted count as
false, although many of them are related.
"""

import numpy as np
from data import MATCHES, labeled, match, side
from measures import unit
from sklearn.feature_extraction.text import TfidfVectorizer

from skcalib import SimilarityScale

RECORDS, DRAWS = 150, 5
N_TEXTS, N_PLANTED = 4000, 400
COPIES = {"Banking77": "Banking77", "titles": "biomedical"}


def rows(encode, options):
    for name in (*MATCHES, "records"):
        first, second, A, B = partners(encode, name)
        found = []
        for seed in range(DRAWS):
            a, b, truth = draw(len(first), np.random.default_rng(seed))
            texts = [first[i] for i in a], [second[i] for i in b]
            found.append((matched(*texts, A[a], B[b]), truth))
        yield from compared("matches", name, "half", found)
    for name in ("catalogues", "records"):
        known = side(name)
        listed = matched(known["a"], known["b"], encode(known["a"]), encode(known["b"]))
        truth = set(map(tuple, known["rel"]))
        yield from compared("matches", name, "whole", [(listed, truth)])
    for data, name in COPIES.items():
        texts, _ = labeled(name, "train", 2 * N_TEXTS)
        texts = np.unique([text.strip() for text in texts])
        texts = np.random.default_rng(0).permutation(texts)[:N_TEXTS].tolist()
        for case, everything, planted in plants(texts):
            listed = copied(everything, encode(everything))
            yield from compared("copies", data, case, [(listed, planted)])


def compared(job, data, case, found):
    """Yield a row for each step: the means of true and false pairs, and of F1."""
    for step in found[0][0]:
        counts = []
        for listed, truth in found:
            true = len(listed[step] & truth)
            f1 = 200 * true / (len(listed[step]) + len(truth))
            counts.append((true, len(listed[step]) - true, f1))
        true, false, f1 = np.mean(counts, axis=0)
        row = {"job": job, "data": data, "case": case, "step": step}
        yield row | {"true": f"{true:.0f}", "false": f"{false:.0f}", "F1": f"{f1:.1f}"}


# The recipes. Each returns the pairs that it lists.


def characters(*lists):
    """Cosines of n-grams of characters of the texts of one list, or of two."""
    n_grams = TfidfVectorizer(analyzer="char_wb", ngram_range=(2, 4), sublinear_tf=True)
    n_grams.fit([text for texts in lists for text in texts])
    return (n_grams.transform(lists[0]) @ n_grams.transform(lists[-1]).T).toarray()


def mutual_nearest(cosines, least=-1.0):
    best = cosines.argmax(axis=1)
    mutual = cosines.argmax(axis=0)[best] == np.arange(len(cosines))
    return {(i, best[i]) for i in np.flatnonzero(mutual & (cosines.max(axis=1) >= least))}


def matched(first, second, A, B):
    return {
        "characters": mutual_nearest(characters(first, second), 0.4),
        "vectors": mutual_nearest(unit(A) @ unit(B).T),
    }


def copied(texts, vectors):
    n, units = len(texts), unit(vectors)
    threshold = SimilarityScale().fit(vectors).threshold(1000 / (n * (n - 1) / 2))
    near = {
        "characters": characters(texts) >= 0.8,
        "raw 0.9": units @ units.T >= 0.9,
        "scale": units @ units.T >= threshold,
    }
    above = {step: np.triu(mask, 1).nonzero() for step, mask in near.items()}
    return {step: set(zip(*rows, strict=True)) for step, rows in above.items()}


# Lists with partners.


def partners(encode, name):
    """Texts and vectors of two lists of partners, one to one, each text once."""
    if name == "records":
        known = side(name)
        both = [(known["a"][i], known["b"][j]) for i, j in known["rel"]]
    else:
        lists = match(name)
        both = [(lists.sides[0][i], lists.sides[1][j]) for i, j in np.argwhere(lists.belong)]
        if name == "translations":  # whose texts to fit on are translations, too
            both += zip(*lists.fit, strict=True)
        both = {first: (first, second) for first, second in reversed(both)}.values()
        both = {second: (first, second) for first, second in both}.values()
    first, second = map(list, zip(*both, strict=True))
    return first, second, encode(first), encode(second, name in ("questions-code", "passages"))


def draw(n, rng):
    """Rows of both lists, half of which are partners, and the pairs of places that are."""
    order = rng.permutation(n)
    size = min(RECORDS, 2 * n // 3)
    a, b = order[:size], rng.permutation(order[size // 2 : size // 2 + size])
    place = {row: k for k, row in enumerate(b)}
    return a, b, {(k, place[row]) for k, row in enumerate(a) if row in place}


# Planted copies.


def misspelled(text, rng):
    """Drop, double or swap a letter of the text, and one more per 40 letters."""
    letters = list(text)
    for _ in range(1 + len(letters) // 40):
        i = rng.integers(1, len(letters) - 1)
        first, second = letters[i - 1 : i + 1]
        changed = (second, first), (first,), (first, second, second)
        letters[i - 1 : i + 1] = changed[rng.integers(3)]
    return "".join(letters)


def dropped(text, rng):
    words = text.split()
    del words[rng.integers(len(words))]
    return " ".join(words)


def catalogs(text, rng):
    """Drop a word, swap two, and misspell the text."""
    words = dropped(text, rng).split()
    i = rng.integers(1, len(words))
    words[i - 1 : i + 1] = words[i - 1 : i + 1][::-1]
    return misspelled(" ".join(words), rng)


def plants(texts):
    """Yield a name, all texts, and the pairs of rows that are planted."""
    long = [i for i, text in enumerate(texts) if len(text.split()) >= 5]
    for edit in (misspelled, dropped, catalogs):
        rng, old, chosen = np.random.default_rng(0), texts, long[:N_PLANTED]
        if edit is catalogs:
            old = [texts[row] for row in long[:600]]
            chosen = range(len(old))
        copies = {edit(old[row], rng): row for row in chosen}
        known = set(old)
        new = [(text, row) for text, row in copies.items() if text not in known]
        planted = {(row, len(old) + k) for k, (_, row) in enumerate(new)}
        yield edit.__name__, [*old, *(text for text, _ in new)], planted
