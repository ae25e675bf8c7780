"""When queries help `NearestAnswer`: one question for each answer, or several.

"Banking77, 2" stores two questions of each of half of the intents; the other texts are scored,
or are the queries. In the matches each record of one list is an answer with one question, and
the records of the other list ask: half of them have their partner in the store. Their queries
are texts to fit on and the half of the records that ask that is not scored.

"right", "wrong" and "false" are shares in percent at a promised rate of 6 %, which needs 33
answers; means of three draws. "queries" compares words and vectors, "vectors" only these, and
"smoothed" is a whitening and a smoothing toward the queries, by an encoder that is fitted on
them.
"""

import numpy as np
from data import MATCHES, labeled, match
from sklearn.frozen import FrozenEstimator
from sklearn.pipeline import make_pipeline

from skcalib import NearestAnswer, NeighborSmoothing, SearchEncoder, TextEncoder, Whitening

RATE, DRAWS, MOST = 0.06, 3, 3080
STORED = 1, 2, 4, 8


def rows(encode, options):
    for name in options.only or ("Banking77", *MATCHES):
        vectors, draws = (of_intents if name == "Banking77" else of_matches)(encode, name)
        found = {}
        for seed in range(DRAWS):
            for number, draw in draws(np.random.default_rng(seed)):
                for way, rates in results(vectors, *draw):
                    found.setdefault((number, way), []).append(rates)
        for (number, way), rates in found.items():
            row = {"data": name, "questions": number, "way": way}
            means = 100 * np.mean(rates, axis=0)
            yield row | {
                score: f"{mean:.1f}"
                for score, mean in zip(("right", "wrong", "false"), means, strict=True)
            }


def of_intents(encode, name):
    """Return the vector of each text, and what draws questions, answers, and a log."""
    texts, intents = labeled(name, "test", MOST)
    texts, first = np.unique(texts.astype(str), return_index=True)
    intents = intents[first]

    def draws(rng):
        kept = rng.permutation(np.unique(intents))[: len(np.unique(intents)) // 2]
        order = rng.permutation(len(texts))
        has_answer = np.isin(intents, kept)
        for number in STORED:
            of_each = [order[intents[order] == intent][:number] for intent in kept]
            stored = np.concatenate(of_each)
            rest = order[~np.isin(order, stored)]
            scored, log = rest[::2], rest[1::2]
            truth = np.where(has_answer[scored], intents[scored], None)
            yield number, (texts[stored], intents[stored], texts[scored], truth, texts[log])

    return dict(zip(texts, encode(texts), strict=True)), draws


def of_matches(encode, name):
    """Return the same of two lists."""
    lists = match(name)
    both = [(lists.sides[0][i], lists.sides[1][j]) for i, j in np.argwhere(lists.belong)]
    both = list({asked: (asked, answer) for asked, answer in reversed(both)}.values())
    both = list({answer: (asked, answer) for asked, answer in both}.values())
    texts = {*(text for pair in both for text in pair)}
    more = sorted({*lists.fit[0], *lists.fit[1]} - texts)
    everything = [*sorted(texts), *more]

    def draws(rng):
        order = rng.permutation(len(both))
        stored = set(order[: len(order) // 2].tolist())
        scored, rest = order[::2], order[1::2]
        truth = [both[i][1] if i in stored else None for i in scored]
        answers = [both[i][1] for i in stored]
        log = [*more, *(both[i][0] for i in rest)]
        yield 1, (answers, answers, [both[i][0] for i in scored], truth, log)

    return dict(zip(everything, encode(everything), strict=True)), draws


def results(vectors, stored, answers, asked, truth, log):
    """Yield a way, and the shares of right, wrong and false answers."""
    encoder = TextEncoder(lambda texts: np.array([vectors[text] for text in texts]))
    steps = encoder, Whitening(noise="auto"), NeighborSmoothing()
    smoothed = FrozenEstimator(make_pipeline(*steps).fit(sorted({*log} - {*stored})))
    ways = {
        "no queries": (SearchEncoder(encoder), None),
        "queries": (SearchEncoder(encoder), log),
        "queries, vectors": (SearchEncoder(encoder, lexical=None), log),
        "smoothed": (SearchEncoder(smoothed, lexical=None, power=0), None),
    }
    for way, (search, more) in ways.items():
        model = NearestAnswer(search, false_positive_rate=RATE)
        yield way, model.fit(stored, answers, queries=more).hit_rates(asked, truth)
