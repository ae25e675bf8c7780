"""One of the stored answers, or none: the promised rate, and what gets an answer.

Half of the groups of the test texts (intents, topics) are stored, with 500 questions, and the
group is the answer. Of the other texts one half is scored, and the others are the queries, of
which every other question without an answer is the sample of unanswerable ones. "false" is the
share of texts of the groups left out that get an answer, and "right" and "wrong" are shares of
the others. All are means of three draws, in percent.

"raw, per pair" is the threshold that this share of all pairs with different answers reaches.
"""

import numpy as np
from data import labeled
from measures import unit

from skcalib import NearestAnswer, TextEncoder

SETS = "Banking77", "biomedical", "news"
RATES, DRAWS, STORED, MOST = (0.01, 0.05, 0.1), 3, 500, 3080


def rows(encode, options):
    for data in options.only or SETS:
        found = {}
        for step, rate, rates in of_set(encode, data):
            found.setdefault((step, f"{100 * rate:.0f} %"), []).append(rates)
        for place, draws in found.items():
            means = (f"{mean:.1f}" for mean in 100 * np.mean(draws, axis=0))
            names = "data", "step", "promised", "false", "right", "wrong"
            yield dict(zip(names, (data, *place, *means), strict=True))


def of_set(encode, name):
    """Yield step, rate, and the rates observed in one draw."""
    texts, groups = labeled(name, "test")
    texts, rows = np.unique(texts[:MOST].astype(str), return_index=True)
    groups, vectors = groups[rows], encode(texts)
    for seed in range(DRAWS):
        yield from Draw(texts, groups, vectors, seed).results()


class Draw:
    """One set of texts with vectors, of which half of the groups are stored."""

    def __init__(self, texts, groups, vectors, seed):
        self.row, self.vectors = {text: i for i, text in enumerate(texts)}, vectors
        rng = np.random.default_rng(seed)
        names = rng.permutation(np.unique(groups))
        kept = np.isin(groups, names[: len(names) // 2])
        rows = rng.permutation(np.flatnonzero(kept))
        stored, rest = rows[:STORED], rng.permutation([*rows[STORED:], *np.flatnonzero(~kept)])
        scored, log = rest[: len(rest) // 2], rest[len(rest) // 2 :]
        self.stored, self.answers = texts[stored], groups[stored]
        self.scored, self.log = texts[scored], texts[log]
        self.unanswerable = texts[log[~kept[log]]][::2]
        self.truth = np.where(kept[scored], groups[scored], None)

    def encode(self, texts):
        return self.vectors[[self.row[text] for text in texts]]

    def results(self):
        queries = {"queries": self.log}
        models = {
            "ours": {},
            "ours, queries": queries,
            "ours, queries, unanswerable": queries | {"unanswerable": self.unanswerable},
        }
        for name, more in models.items():
            model = NearestAnswer(TextEncoder(self.encode), false_positive_rate=RATES[-1])
            model.fit(self.stored, self.answers, **more)
            for rate in RATES:  # the threshold alone depends on it
                model.set_params(false_positive_rate=rate)
                model.partial_fit(self.stored[:1], self.answers[:1])
                found = model.hit_rates(self.scored, self.truth)
                yield name, rate, (found.false, found.right, found.wrong)
        stored, asked = (unit(self.encode(t)) for t in (self.stored, self.scored))
        cosines, among = asked @ stored.T, stored @ stored.T
        right = self.answers[cosines.argmax(axis=1)] == self.truth
        unlike = among[self.answers[:, None] != self.answers]
        for rate in RATES:
            answered = cosines.max(axis=1) > np.quantile(unlike, 1 - rate)
            yield "raw, per pair", rate, self.rates(answered, right)

    def rates(self, answered, right):
        known = np.array([truth is not None for truth in self.truth])
        wrong = (answered & ~right)[known]
        return answered[~known].mean(), (answered & right)[known].mean(), wrong.mean()
