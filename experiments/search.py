"""Search with queries, beside what others would write in a few lines.

Half of a set's queries, drawn five times, are scored by nDCG@10. The bank is 100 of the other
half, without judgments, or "none". "half of the means" and "the means" are subtracted from each
side. "0.3 characters" adds this weight times the cosine of TF-IDF of characters. "search" is
`SearchEncoder`, and "search of parts" searches parts of 100 words by the best one.

"frequent answers" are questions of Banking77 against one question of each intent. "tools" are
requests that need two tools each, "CACM" verbose queries, and "meetings" have documents of
1,200 words, of which an encoder reads 256 tokens. The sentences of STS-B in Spanish, German and
French search their English translations.

"difference" is to cosines, and "worst" is that of the worst draw. In the rows of all sets these
are the mean over sets, without "meetings", and the least mean of a set.
"""

from itertools import chain

import bm25s
import numpy as np
from data import MATCHES, cranfield, labeled, lookup, match, pairs
from measures import ndcg, unit
from sklearn.feature_extraction.text import TfidfVectorizer

from skcalib import SearchEncoder, TextEncoder

DRAWS, BANK = 5, 100
SHARES = {"cosines": 0, "half of the means": 0.5, "the means": 1}
WEIGHTS = 0, 0.2, 0.3, 0.5
LANGUAGES = {"Spanish": "es", "German": "de", "French": "fr"}
SETS = "Cranfield", "CACM", "tools", *MATCHES, "frequent answers", *LANGUAGES
LONG = "meetings"  # whose documents are longer than what an encoder reads
TEXTS = 500  # of STS-B in two languages
PART = 100  # words
WITHOUT_BANK = "BM25", "reciprocal ranks"


def rows(encode, options):
    means = {}
    for name in options.only or (*SETS, LONG):
        found = {}
        for bank, steps in of_set(encode, name):
            values = {step: 100 * scores.mean() for step, scores in steps.items()}
            for step, value in values.items():
                if bank == "none" or step not in WITHOUT_BANK:
                    difference = value - values["cosines"]
                    found.setdefault((bank, step), []).append((value, difference))
        for place, draws in found.items():
            value, difference = np.mean(draws, axis=0)
            if name != LONG:
                means.setdefault(place, []).append((value, difference))
            yield row(name, place, value, difference, np.min(draws, axis=0)[1])
    if options.only is None:
        for place, of_sets in means.items():
            yield row("all", place, *np.mean(of_sets, axis=0), np.min(of_sets, axis=0)[1])


def row(name, place, value, difference, worst):
    bank, step = place
    numbers = {} if step == "cosines" else {"difference": difference, "worst": worst}
    signed = {key: f"{number:+z.1f}" for key, number in numbers.items()}
    return {"data": name, "bank": bank, "step": step, "value": f"{value:.1f}"} | signed


def collection(encode, name):
    """Return documents, queries and grades."""
    if name == "Cranfield":
        return cranfield()
    if name == "frequent answers":
        texts, intents = labeled("Banking77", "test", 1500)
        names, first = np.unique(intents, return_index=True)
        others = np.setdiff1d(np.arange(len(texts)), first)
        grades = (intents[others, None] == names).astype(float)
        return texts[first].tolist(), texts[others].tolist(), grades
    if name in LANGUAGES:
        foreign, english = pairs(f"stsb-{LANGUAGES[name]}")[0].T[0], pairs("stsb")[0].T[0]
        kept = np.unique(english, return_index=True)[1][:TEXTS]
        return english[kept].tolist(), foreign[kept].tolist(), np.eye(len(kept))
    found = match(name.lower())
    queries, documents = found.sides
    return documents, queries, found.belong.astype(float)


def of_set(encode, name, n_draws=DRAWS, mean=None):
    """Yield a bank and nDCG@10 of each query, by step.

    Without a bank, the mean of queries is that of the documents, or the given one.
    """
    documents, queries, grades = collection(encode, name)
    answered = np.flatnonzero(grades.any(axis=1))
    queries, grades = [queries[i] for i in answered], grades[answered]
    D, Q = unit(encode(documents, True)), unit(encode(queries))
    # Without a bank, an encoder of queries is fitted on documents.
    of_queries = lookup([*documents, *queries], np.vstack([D, Q]))
    by_side = lookup(documents, D), of_queries
    characters, words = n_grams(documents, queries), bm25(documents, queries)
    for seed in range(n_draws):
        order = np.random.default_rng(seed).permutation(len(queries))
        drawn, scored = np.split(order, [len(queries) // 2])
        new = [queries[i] for i in scored]
        for bank in ([], drawn[:BANK]) if len(drawn) >= 0.8 * BANK else ([],):
            texts = [queries[i] for i in bank] or None
            without = D.mean(axis=0) if mean is None else mean
            shift = Q[bank].mean(axis=0) if texts else without
            steps = contenders(D, Q[scored], characters[scored], shift)
            steps["BM25"] = words[scored]
            steps["reciprocal ranks"] = ranks(steps["cosines"], words[scored])
            steps["search"] = scores(by_side, documents, texts, new)
            if name == LONG:
                steps["search of parts"] = of_parts(encode, documents, texts, new)
            by_query = {step: ndcg(found, grades[scored]) for step, found in steps.items()}
            yield str(BANK) if texts else "none", by_query


def of_parts(encode, documents, bank, queries):
    """Return the scores of queries with documents, by the best part of each."""
    cut = [document.split() for document in documents]
    parts = [
        [" ".join(words[i : i + PART]) for i in range(0, len(words), PART)] for words in cut
    ]
    first = np.cumsum([0, *map(len, parts[:-1])])
    by_side = (lambda texts: encode(texts, True)), encode
    found = scores(by_side, [*chain(*parts)], bank, queries)
    return np.maximum.reduceat(found, first, axis=1)


def contenders(D, Q, characters, mean):
    """Return scores by vectors of unit length, less the mean of queries, and characters."""
    steps = {}
    for name, share in SHARES.items():
        cosines = unit(Q - share * mean) @ unit(D - share * D.mean(axis=0)).T
        for weight in WEIGHTS:
            step = f"{name}, {weight} characters" if weight else name
            steps[step] = cosines + weight * characters
    return steps


def n_grams(documents, queries):
    """Return the cosines of queries and documents by TF-IDF of characters."""
    vectorizer = TfidfVectorizer(analyzer="char_wb", ngram_range=(2, 4), sublinear_tf=True)
    of_documents = vectorizer.fit_transform(documents)
    return (vectorizer.transform(queries) @ of_documents.T).toarray()


def bm25(documents, queries):
    """Return the scores of bm25s with its defaults."""
    index = bm25s.BM25()
    index.index(bm25s.tokenize(documents, show_progress=False), show_progress=False)
    tokens = bm25s.tokenize(queries, return_ids=False, show_progress=False)
    none = np.zeros(len(documents))
    return np.array([index.get_scores(asked) if asked else none for asked in tokens])


def ranks(*found):
    """Fuse scores by reciprocal ranks, with the usual constant of 60."""
    orders = (np.argsort(-scores, axis=1, kind="stable") for scores in found)
    return sum(1 / (61 + np.argsort(order, axis=1)) for order in orders)


def scores(by_side, documents, bank, queries):
    """Return the scores of `SearchEncoder`, of queries with documents."""
    search = SearchEncoder(TextEncoder(by_side[0]), query_encoder=TextEncoder(by_side[1]))
    search.fit(documents, queries=bank)
    encoded = search.encode_query(queries)
    return encoded.dense @ search.vectors_.T + (encoded.sparse @ search.words_.T).toarray()
