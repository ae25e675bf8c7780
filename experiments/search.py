"""Search with queries: what a sample of them, the bank, gains, and what a wrong one costs.

Half of a set's queries, drawn ten times, are scored by nDCG@10. The bank is 30, 100 or all of
the other half, without judgments. "whole" is an index of all documents, as it is in use;
"without" lacks those that answer a query of the bank and no scored one, so that nothing is
learned about the documents that are searched. "none" has no bank: `SearchEncoder` cuts windows
from the documents. "power" is that of its whitening.

"whitened" is fitted on documents and bank together; "erased, whitened" first subtracts the
difference of the two sides. "frequent answers" are questions of Banking77 against one question
of each intent, which answers all of its intent. "Spanish" are sentences of STS-B that search
their English translations; its other banks are English.

"difference" is to raw vectors, and "worst" is that of the worst draw. In the rows of all sets
these are the mean over sets, and the least mean of a set.
"""

import numpy as np
from data import MATCHES, cranfield, labeled, match, pairs
from measures import ndcg, unit

from skcalib import GroupErasure, SearchEncoder, Whitening

DRAWS, BANKS = 10, (30, 100, None)
SEARCHES = {"search": {}} | {f"power={p:g}": {"power": p} for p in (0, 0.1, 0.25)}
SETS = "Cranfield", *MATCHES, "frequent answers", "Spanish"
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
    if name == "Spanish":
        spanish, english = (pairs(task)[0][:, 0] for task in ("stsb-es", "stsb"))
        kept = np.unique(english, return_index=True)[1][:TEXTS]
        other = np.setdiff1d(np.unique(pairs("stsb", "dev")[0][:, 0]), english)[:TEXTS]
        return english[kept].tolist(), spanish[kept].tolist(), np.eye(len(kept)), other.tolist()
    found = match(name)
    queries, documents = found.sides
    return documents, queries, found.belong.astype(float), None


def of_set(encode, name):
    """Yield bank and index, step, nDCG@10 and its difference to raw vectors, by draw."""
    documents, queries, grades, other = collection(encode, name)
    answered = np.flatnonzero(grades.any(axis=1))
    queries, grades = [queries[i] for i in answered], grades[answered]
    D, Q = unit(encode(documents, True)), unit(encode(queries))
    alone = {}
    for step, params in SEARCHES.items():
        search = SearchEncoder(encode.bert(documents=True), encode.bert(), **params)
        search.fit(documents)
        alone[step] = np.asarray(search.vectors_), np.asarray(search.encode_query(queries))
    strange = None if other is None else unit(encode(other))
    for seed in range(DRAWS):
        order = np.random.default_rng(seed).permutation(len(Q))
        drawn, scored = order[: len(Q) // 2], order[len(Q) // 2 :]

        def scores(search, asked, right):
            return 100 * ndcg(asked @ search.T, right).mean()

        raw = scores(D, Q[scored], grades[scored])
        yield ("none", "whole"), "raw", raw, 0
        for step, (d, q) in alone.items():
            found = scores(d, q[scored], grades[scored])
            yield ("none", "whole"), step, found, found - raw
        for n in BANKS:
            rows = drawn[:n]
            only = (grades[rows] > 0).any(axis=0) & ~(grades[scored] > 0).any(axis=0)
            for index, kept in {"whole": only >= 0, "without": ~only}.items():
                right, place = grades[scored][:, kept], (str(n or "all"), index)
                raw = scores(D[kept], Q[scored], right)
                yield place, "raw", raw, 0
                for step, (d, q) in contenders(D[kept], Q[rows], Q[scored]).items():
                    found = scores(d, q, right)
                    yield place, step, found, found - raw
            if strange is not None:
                place, raw = (
                    (f"{n or 'all'}, English", "whole"),
                    scores(D, Q[scored], grades[scored]),
                )
                yield place, "raw", raw, 0
                for step, (d, q) in contenders(D, strange[:n], Q[scored]).items():
                    found = scores(d, q, grades[scored])
                    yield place, step, found, found - raw


def contenders(D, bank, Q):
    """Return vectors of documents and queries by each step."""
    both, mean = np.vstack([D, bank]), D.mean(axis=0)
    groups = np.repeat(["document", "query"], [len(D), len(bank)])
    whitening = Whitening(noise="auto").fit(both)
    erasure = GroupErasure().fit(both, groups=groups)
    after = Whitening(noise="auto").fit(erasure.transform(both))
    ways = {"two means": {"hub_weight": 0, "power": 0}} | SEARCHES
    by = {name: SearchEncoder(**params).fit(D, queries=bank) for name, params in ways.items()}
    return {
        "mean subtracted": (unit(D - mean), unit(Q - mean)),
        "whitened": (unit(whitening.transform(D)), unit(whitening.transform(Q))),
        "erased, whitened": tuple(
            unit(after.transform(erasure.transform(side))) for side in (D, Q)
        ),
        **{name: (search.vectors_, search.encode_query(Q)) for name, search in by.items()},
    }
