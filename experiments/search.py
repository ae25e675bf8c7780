"""Search with queries: what a sample of them, the bank, gains, and what a wrong one costs.

Half of a set's queries, drawn five times, are scored by nDCG@10. The bank is 30 or 100 of
the other half, without judgments. "whole" is an index of all documents, as it is in use;
"without" lacks those that answer a query of the bank and no scored one, so that nothing is
learned about the documents that are searched. "none" has no bank.

"vectors" is `SearchEncoder` without words, "power=0" also without a whitening. "BM25" and
"reciprocal ranks" (of BM25 and raw vectors) are what others use.
"frequent answers" are questions of Banking77 against one question of each intent, which answers
all of its intent. "tools" are requests that need two tools each, "CACM" verbose queries. The
sentences of STS-B in Spanish, German and French search their English translations; other banks
of "Spanish" are English.

"difference" is to raw vectors, and "worst" is that of the worst draw. In the rows of all sets
these are the mean over sets, and the least mean of a set.
"""

import bm25s
import numpy as np
from data import MATCHES, cranfield, labeled, match, pairs
from measures import ndcg, unit

from skcalib import SearchEncoder, TextEncoder

DRAWS, BANKS = 5, (30, 100)
SEARCHES = {
    "search": {},
    "vectors": {"lexical": None},
    "power=0": {"power": 0, "lexical": None},
}
LANGUAGES = {"Spanish": "es", "German": "de", "French": "fr"}
SETS = "Cranfield", "CACM", "tools", *MATCHES, "frequent answers", *LANGUAGES
TEXTS = 500  # of STS-B in two languages


def rows(encode, options):
    means = {}
    for name in options.only or SETS:
        found = {}
        for place, step, value, difference in of_set(encode, name):
            found.setdefault((*place, step), []).append((value, difference))
        for place, drawn in found.items():
            value, difference = np.mean(drawn, axis=0)
            if "English" not in place[0]:  # which is the wrong bank
                means.setdefault(place, []).append((value, difference))
            yield row(name, place, value, difference, np.min(drawn, axis=0)[1])
    if options.only is None:
        for place, of_sets in means.items():
            yield row("all", place, *np.mean(of_sets, axis=0), np.min(of_sets, axis=0)[1])


def row(name, place, value, difference, worst):
    bank, index, step = place
    numbers = {} if step == "raw" else {"difference": difference, "worst": worst}
    signed = {key: f"{number:+.1f}" for key, number in numbers.items()}
    place = {"data": name, "bank": bank, "index": index, "step": step}
    return place | {"value": f"{value:.1f}"} | signed


def collection(encode, name):
    """Return documents, queries, grades, and other texts that may be the bank."""
    if name == "Cranfield":
        return *cranfield(), None
    if name == "frequent answers":
        texts, intents = labeled("Banking77", "test", 1500)
        names, codes = np.unique(intents, return_inverse=True)
        first = np.array([np.flatnonzero(codes == code)[0] for code in range(len(names))])
        others = np.setdiff1d(np.arange(len(texts)), first)
        grades = (codes[others, None] == np.arange(len(names))).astype(float)
        return texts[first].tolist(), texts[others].tolist(), grades, None
    if name in LANGUAGES:
        foreign, english = (
            pairs(task)[0][:, 0] for task in (f"stsb-{LANGUAGES[name]}", "stsb")
        )
        kept = np.unique(english, return_index=True)[1][:TEXTS]
        other = None
        if name == "Spanish":
            other = np.setdiff1d(np.unique(pairs("stsb", "dev")[0][:, 0]), english)[:TEXTS]
            other = other.tolist()
        return english[kept].tolist(), foreign[kept].tolist(), np.eye(len(kept)), other
    found = match(name.lower())
    queries, documents = found.sides
    return documents, queries, found.belong.astype(float), None


def of_set(encode, name):
    """Yield bank and index, step, nDCG@10 and its difference to raw vectors, by draw."""
    documents, queries, grades, other = collection(encode, name)
    answered = np.flatnonzero(grades.any(axis=1))
    queries, grades = [queries[i] for i in answered], grades[answered]
    asking = [*queries, *(other or [])]
    D, kept = unit(encode(documents, True)), {}
    kept[True] = dict(zip(documents, D, strict=True))
    kept[False] = kept[True] | dict(zip(asking, unit(encode(asking)), strict=True))
    by_side = {
        is_document: lambda texts, of=of: np.array([of[text] for text in texts])
        for is_document, of in kept.items()
    }
    alone = {
        step: fitted(by_side, documents, None, params) for step, params in SEARCHES.items()
    }
    words = bm25(documents, queries)
    Q, documents = by_side[False](queries), np.array(documents, object)
    for seed in range(DRAWS):
        order = np.random.default_rng(seed).permutation(len(Q))
        drawn, scored = order[: len(Q) // 2], order[len(Q) // 2 :]
        asked, right = [queries[i] for i in scored], grades[scored]

        def of(place, steps, right):
            value = {step: 100 * ndcg(scores, right).mean() for step, scores in steps.items()}
            for step in value:
                yield place, step, value[step], value[step] - value["raw"]

        raw = Q[scored] @ D.T
        steps = {
            "raw": raw,
            "BM25": words[scored],
            "reciprocal ranks": ranks(raw, words[scored]),
        }
        steps |= {step: scores(search, asked) for step, search in alone.items()}
        yield from of(("none", "whole"), steps, right)
        last = 0
        for n in BANKS:
            rows = drawn[:n]
            if len(rows) == last:
                break
            last = len(rows)
            only = (grades[rows] > 0).any(axis=0) & ~(right > 0).any(axis=0)
            for index, kept in {"whole": only >= 0, "without": ~only}.items():
                bank = [queries[i] for i in rows]
                steps = contenders(by_side, documents[kept].tolist(), bank, asked)
                yield from of((str(n), index), steps, right[:, kept])
            if other is not None:
                steps = contenders(by_side, documents.tolist(), other[:n], asked)
                yield from of((f"{n}, English", "whole"), steps, right)


def fitted(by_side, documents, bank, params):
    """Return a search by the vectors of both sides."""
    search = SearchEncoder(TextEncoder(by_side[True]), TextEncoder(by_side[False]), **params)
    return search.fit(documents, queries=bank)


def scores(search, asked):
    """Return the scores of queries with all documents."""
    encoded = search.encode_query(asked)
    if search.words_ is None:
        return encoded @ search.vectors_.T
    return encoded.dense @ search.vectors_.T + (encoded.sparse @ search.words_.T).toarray()


def bm25(documents, queries):
    """Return the scores of bm25s with its defaults."""
    index = bm25s.BM25()
    index.index(bm25s.tokenize(documents, show_progress=False), show_progress=False)
    tokens = bm25s.tokenize(queries, return_ids=False, show_progress=False)
    none = np.zeros(len(documents))
    return np.array([index.get_scores(asked) if asked else none for asked in tokens])


def ranks(*found):
    """Fuse scores by reciprocal ranks, with the usual constant of 60."""
    orders = [
        np.argsort(np.argsort(-scores, axis=1, kind="stable"), axis=1) for scores in found
    ]
    return sum(1 / (61 + order) for order in orders)


def contenders(by_side, documents, bank, asked):
    """Return the scores of queries with documents, by each step."""
    D, Q = by_side[True](documents), by_side[False](asked)
    ways = {"two means": {"hub_weight": 0, "power": 0, "lexical": None}} | SEARCHES
    searches = {step: fitted(by_side, documents, bank, p) for step, p in ways.items()}
    steps = {step: scores(search, asked) for step, search in searches.items()}
    return {"raw": Q @ D.T} | steps
