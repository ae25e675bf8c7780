"""Thresholds for a search: how many queries without an answer get a document.

Half of a set's queries have no answer: the documents that answer them are taken out. One half
of these is the sample that a threshold is estimated from, the others are scored, "false". Of
the queries with an answer, half are the bank of `SearchEncoder`, and of the others "right" is
the share whose best document passes and answers them. All are means of ten draws, in percent.

"raw" and "search" have thresholds by the sample of queries without an answer, "search, bank" by
the bank, whose queries have answers and were fitted.
"""

import numpy as np
from data import MATCHES
from measures import unit
from search import collection

from skcalib import SearchEncoder, SimilarityScale

SETS = "Cranfield", *MATCHES
RATES, DRAWS = (0.02, 0.05, 0.1), 10


def rows(encode, options):
    for name in options.only or SETS:
        documents, queries, grades, _ = collection(encode, name)
        answered = np.flatnonzero(grades.any(axis=1))
        relevant = grades[answered] > 0
        D, Q = unit(encode(documents, True)), unit(encode([queries[i] for i in answered]))
        found = {}
        for seed in range(DRAWS):
            for place, rates in of_draw(D, Q, relevant, np.random.default_rng(seed)):
                found.setdefault(place, []).append(rates)
        for (step, rate), rates in found.items():
            false, right = 100 * np.mean(rates, axis=0)
            row = {"data": name, "step": step, "promised": f"{100 * rate:.0f} %"}
            yield row | {"false": f"{false:.1f}", "right": f"{right:.1f}"}


def of_draw(D, Q, relevant, rng):
    """Yield step and rate, and the shares of false and of right answers."""
    order = rng.permutation(len(Q))
    sample, unanswered, bank, answered = np.array_split(order, 4)
    kept = ~relevant[[*sample, *unanswered]].any(axis=0)
    documents, relevant = D[kept], relevant[:, kept]
    answered = answered[relevant[answered].any(axis=1)]
    search = SearchEncoder().fit(documents, queries=Q[bank])
    for step, d, q, of in (
        ("raw", documents, Q, sample),
        ("search", search.vectors_, search.encode_query(Q), sample),
        ("search, bank", search.vectors_, search.encode_query(Q), bank),
    ):
        scale, scores = SimilarityScale().fit(d, unanswerable=q[of]), q @ d.T
        for rate in RATES:
            threshold = scale.threshold(rate, per="query", confidence=None)
            false = (scores[unanswered].max(axis=1) > threshold).mean()
            best = scores[answered].argmax(axis=1)
            right = relevant[answered, best] & (scores[answered].max(axis=1) > threshold)
            yield (step, rate), (false, right.mean())
