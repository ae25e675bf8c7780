"""One of the stored answers, or none: the promised rate, and what gets an answer.

Half of the groups of the test texts (intents, topics) are stored, with 500 questions, and the
group is the answer. Of the other texts one half is scored, and the others are the queries, of
which every other question without an answer is the sample of unanswerable ones. "false" is the
share of texts of the groups left out that get an answer, and "right" and "wrong" are shares of
the others. All are means of three draws, in percent.

"raw, per pair" is the threshold that this share of all pairs with different answers reaches.
"""

from types import SimpleNamespace

import numpy as np
from data import labeled, lookup
from measures import unit

from skcalib import NearestAnswer, TextEncoder

SETS = "Banking77", "biomedical", "news"
RATES, DRAWS, STORED, MOST = (0.01, 0.05, 0.1), 3, 500, 3080


def rows(encode, options):
    for data in options.only or SETS:
        found = {}
        for step, rate, rates in of_set(encode, data):
            found.setdefault((step, f"{100 * rate:.0f} %"), []).append(rates)
        for place, observed in found.items():
            means = (f"{mean:.1f}" for mean in 100 * np.mean(observed, axis=0))
            names = "data", "step", "promised", "false", "right", "wrong"
            yield dict(zip(names, (data, *place, *means), strict=True))


def of_set(encode, name):
    """Yield step, rate, and the rates observed in one draw."""
    for draw in draws(encode, name):
        queries = {"queries": draw.log}
        models = {
            "ours": {},
            "ours, queries": queries,
            "ours, queries, unanswerable": queries | {"unanswerable": draw.unanswerable},
        }
        for step, more in models.items():
            model = NearestAnswer(TextEncoder(draw.encode), false_positive_rate=RATES[-1])
            model.fit(draw.stored, draw.answers, **more)
            for rate in RATES:  # the threshold alone depends on it
                model.set_params(false_positive_rate=rate)
                model.partial_fit(draw.stored[:1], draw.answers[:1])
                found = model.hit_rates(draw.scored, draw.truth)
                yield step, rate, (found.false, found.right, found.wrong)
        stored, asked = (unit(draw.encode(of)) for of in (draw.stored, draw.scored))
        cosines, known = asked @ stored.T, draw.known
        right = draw.answers[cosines.argmax(axis=1)] == draw.truth
        unlike = (stored @ stored.T)[draw.answers[:, None] != draw.answers]
        for rate in RATES:
            answered = cosines.max(axis=1) > np.quantile(unlike, 1 - rate)
            kinds = answered[~known], (answered & right)[known], (answered & ~right)[known]
            yield "raw, per pair", rate, [kind.mean() for kind in kinds]


def draws(encode, name):
    """Yield draws of a set of texts, of which half of the groups are stored."""
    texts, groups = labeled(name, "test")
    texts, rows = np.unique(texts[:MOST].astype(str), return_index=True)
    groups, encode = groups[rows], lookup(texts, encode(texts))
    for seed in range(DRAWS):
        rng = np.random.default_rng(seed)
        names = rng.permutation(np.unique(groups))
        kept = np.isin(groups, names[: len(names) // 2])
        rows = rng.permutation(np.flatnonzero(kept))
        stored, rest = rows[:STORED], rng.permutation([*rows[STORED:], *np.flatnonzero(~kept)])
        scored, log = np.split(rest, [len(rest) // 2])
        yield SimpleNamespace(
            encode=encode,
            stored=texts[stored],
            answers=groups[stored],
            scored=texts[scored],
            log=texts[log],
            unanswerable=texts[log[~kept[log]]][::2],
            known=kept[scored],
            truth=np.where(kept[scored], groups[scored], None),
        )
