"""One pool of several languages: the share of a text's translations among its nearest texts.

"STS-B" has the distinct test sentences of STS-B in English and in machine translations to
German, Spanish and French, whose three translations must be the three nearest. All maps are
fitted on the dev sentences of the four languages. Further rows erase by few texts, without one
of the languages, or by languages of which half are drawn at random. "translations" are
sentences in eight languages and in English, in one pool, fitted on others.

"found" are groups without labels: `KMeans` of n-grams of characters, or the script of most
letters. The other sets are in one language, with labels or pairs with grades, and are scored
by R-precision and by Spearman's rho. What is found there are templates or topics, no languages.
"""

import unicodedata
from collections import Counter

import numpy as np
from data import FITTED, labeled, match, pairs, sentences
from measures import of_pairs, r_precision, unit
from sklearn.cluster import KMeans
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer

from skcalib import GroupErasure, Whitening

TASKS = {"en": "stsb", "de": "stsb-de", "es": "stsb-es", "fr": "stsb-fr"}
ONE_LANGUAGE = "Banking77", "biomedical", "intents", "news"
RAW = FunctionTransformer()


def rows(encode, options):
    for data, step, score in (*stsb(encode), *translations(encode), *one_language(encode)):
        yield {"data": data, "step": step, "score": f"{score:.1f}"}


def whitened(X, groups=None, among=slice(None)):
    """Whitening, after an erasure of groups by some of the vectors."""
    if groups is None:
        return Whitening(noise="auto").fit(X)
    erasure = GroupErasure().fit(X[among], groups=groups[among])
    return make_pipeline(erasure, Whitening(noise="auto").fit(erasure.transform(X)))


def without_labels(texts, X):
    """Yield a name and a step for raw vectors, none, and each way to find groups."""
    yield "raw", RAW
    yield "mean subtracted", Whitening(power=0).fit(X)
    yield "whitened", whitened(X)
    for n in (4, 8, 16):
        yield f"found, {n}", whitened(X, by_characters(texts, n))
    yield "found, script", whitened(X, np.array([*map(script, texts)]))


def by_characters(texts, n_groups):
    n_grams = TfidfVectorizer(analyzer="char_wb", ngram_range=(1, 3), max_features=20_000)
    return make_pipeline(n_grams, KMeans(n_groups, random_state=0)).fit_predict(texts)


def script(text):
    """Return the script of most letters, such as "CYRILLIC"."""
    names = (unicodedata.name(letter, "none").split()[0] for letter in text if letter.isalpha())
    return Counter(names).most_common(1)[0][0] if any(map(str.isalpha, text)) else "none"


def hits(Z, text, n):
    """Share of the n nearest of each vector that are of the same text."""
    Z = unit(Z)
    similarity = Z @ Z.T
    np.fill_diagonal(similarity, -np.inf)
    nearest = np.argpartition(-similarity, n, axis=1)[:, :n]
    return np.mean(text[nearest] == text[:, None], axis=1)


def found_among(Z, text, n):
    return 100 * hits(Z, text, n).mean()


def stsb(encode):
    dev = [pairs(task, "dev")[0].ravel() for task in TASKS.values()]
    test = [pairs(task)[0][:, 0] for task in TASKS.values()]
    first = np.unique(test[0], return_index=True)[1]
    pool = np.vstack([encode(texts[first]) for texts in test])
    fitted = np.concatenate(dev)
    X, text = encode(fitted), np.tile(np.arange(len(first)), len(test))
    groups, place = np.repeat(list(TASKS), len(dev[0])), np.tile(np.arange(len(dev[0])), 4)
    steps = dict(without_labels(fitted, X))
    steps["erased, whitened"] = whitened(X, groups)
    steps["Spanish not erased"] = whitened(X, groups, groups != "es")
    for n in (20, 50):
        steps[f"erased by {n} texts each"] = whitened(X, groups, place < n)
    wrong, rng = groups.copy(), np.random.default_rng(0)
    changed = rng.random(len(wrong)) < 0.5
    wrong[changed] = rng.choice(list(TASKS), changed.sum())
    steps["half of the languages at random"] = whitened(X, wrong)
    for name, step in steps.items():
        yield "STS-B", name, found_among(step.transform(pool), text, len(test) - 1)


def translations(encode):
    found = match("translations")
    fitted, pool = np.concatenate(found.fit), np.concatenate(found.sides)
    X, vectors = encode(fitted), encode(pool)
    text = np.tile(np.arange(len(found.sides[0])), 2)
    for name, step in without_labels(fitted, X):
        yield "translations", name, found_among(step.transform(vectors), text, 1)


def one_language(encode):
    for data in ONE_LANGUAGE:
        fitted, (texts, labels) = labeled(data, "train", FITTED)[0], labeled(data, "test", 2000)
        X, vectors = encode(fitted), encode(texts)
        for name, step in without_labels(fitted, X):
            yield data, name, r_precision(step.transform(vectors), labels)
    both, grades = pairs("stsb")
    sides, fitted = [encode(side) for side in both.T], sentences()
    for name, step in without_labels(fitted, encode(fitted)):
        yield "English STS-B", name, of_pairs(*map(step.transform, sides), grades)
