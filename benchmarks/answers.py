"""One of the stored answers, or none: promised and observed false hits, and right answers.

    SKCALIB_DATA=folder python benchmarks/answers.py minilm --memory vectors \
        --output docs/results/answers-minilm.csv
    SKCALIB_DATA=folder python benchmarks/answers.py E5 --memory vectors \
        --prompt "query: " --document-prompt "passage: " --output docs/results/answers-e5.csv

E5 is a folder with multilingual-e5-small. Beside the folder of ``SKCALIB_DATA`` there are the
folders ``tasks`` (Banking77), ``topics`` (biomedical titles), ``coarse`` (news, four topics)
and ``retrieval/cranfield``. Bayesian BM25 is compared if it can be imported.

Half of the groups of the test texts (intents, topics) are stored, with 500 questions, and the
group is the answer. Of the other texts one half is scored, and the other is the log, of which
every other question without an answer is the sample of unanswerable ones. "false" is the share
of texts of the groups left out that get an answer, and "right" and "wrong" are shares of the
others. All are means of three draws, in percent.

"raw" asks each stored question as if its own answer were not stored, as all steps do but those
"unanswerable", which know such questions, and "per pair", the threshold that this share of all
pairs with different answers reaches. "whitened in itself" is a whitening of the stored
questions, which are farther apart in it than new ones.

Cranfield has no groups. Half of its questions have no answer in a store that has none of the
abstracts judged relevant to them; the others are asked with those relevant to themselves left
out ("false") or not ("right": the nearest is relevant). Rules are each abstract's best among
the others ("documents alone"), and the questions without an answer.
"""

import argparse
import csv
import os
import warnings
from itertools import chain
from pathlib import Path

import numpy as np
import pandas as pd

from skcalib import (
    BertEncoder,
    NearestAnswer,
    NeighborSmoothing,
    SimilarityScale,
    TextEncoder,
    Whitening,
)
from skcalib.calibration.neighbors.search import best_of_others
from skcalib.datasets import minilm_path
from skcalib.evaluation._beir import read_beir
from skcalib.similarity.answers.threshold import promised_by_answers
from skcalib.utils.vectors import unit_rows

try:
    from bayesian_bm25.vector_probability import VectorProbabilityTransform
except ImportError:
    VectorProbabilityTransform = None

DATA = Path(os.environ["SKCALIB_DATA"]).parent
SETS = {
    "Banking77": "tasks/banking77-test",
    "biomedical": "topics/biomedical-test",
    "news": "coarse/news-test",
}
RATES, DRAWS, STORED, MOST = (0.01, 0.05, 0.1), 3, 500, 3080


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

    def rates(self, answered, right):
        known = self.truth != None  # noqa: E711, of an array
        false, right_of, wrong = answered[~known], (answered & right)[known], answered & ~right
        return false.mean(), right_of.mean(), wrong[known].mean()

    def fixed(self, step):
        """Yield the rates of thresholds of vectors after a fitted step."""
        stored, asked = (unit_rows(step(self.encode(t)))[0] for t in (self.stored, self.scored))
        cosines = asked @ stored.T
        right = self.answers[cosines.argmax(axis=1)] == self.truth
        single = stored.astype(np.float32)
        best = best_of_others(single, self.answers, single, self.answers)
        pairs = (stored @ stored.T)[self.answers[:, None] != self.answers]
        for rate in RATES:
            threshold = promised_by_answers(best, self.answers, rate)
            yield rate, "own", self.rates(cosines.max(axis=1) > threshold, right)
            threshold = np.quantile(pairs, 1 - rate)
            yield rate, "per pair", self.rates(cosines.max(axis=1) > threshold, right)

    def ours(self, **more):
        model = NearestAnswer(TextEncoder(self.encode), false_hit_rate=RATES[-1])
        model.fit(self.stored, self.answers, **more)
        for rate in RATES:  # the threshold alone depends on it
            model.set_params(false_hit_rate=rate).partial_fit(self.stored[:1], self.answers[:1])
            found = model.hit_rates(self.scored, self.truth)
            yield rate, (found.false, found.right, found.wrong)

    def bayesian(self):
        """Yield the rates of the probability that the nearest is relevant, 1 minus promised."""
        stored, asked = (unit_rows(self.encode(t))[0] for t in (self.stored, self.scored))
        distances = 1 - asked @ stored.T
        background = (1 - stored @ stored.T)[np.triu_indices(len(stored), k=1)]
        model = VectorProbabilityTransform.fit_background(background)
        nearest = distances.argmin(axis=1)
        best = np.array([model.calibrate(row).max() for row in distances])
        right = self.answers[nearest] == self.truth
        for rate in RATES:
            yield rate, self.rates(best >= 1 - rate, right)

    def results(self):
        for rate, rule, found in self.fixed(lambda vectors: vectors):
            yield "raw" if rule == "own" else "raw, per pair", rate, found
        step = Whitening(noise="auto").fit(self.encode(self.stored))
        for rate, rule, found in self.fixed(step.transform):
            if rule == "own":
                yield "whitened in itself", rate, found
        steps = {
            "ours": {},
            "ours, log": {"log": self.log},
            "ours, log, unanswerable": {"log": self.log, "unanswerable": self.unanswerable},
        }
        for name, more in steps.items():
            for rate, found in self.ours(**more):
                yield name, rate, found
        if VectorProbabilityTransform:
            for rate, found in self.bayesian():
                yield "Bayesian BM25", rate, found


def labelled(encoder):
    """Yield data, step, rate, and the rates observed in one draw."""
    for data, path in SETS.items():
        frame = pd.read_csv(DATA / f"{path}.csv", keep_default_na=False).iloc[:MOST]
        frame = frame[~frame.iloc[:, 0].duplicated()]
        texts, groups = frame.iloc[:, 0].to_numpy(), frame.iloc[:, 1].astype(str).to_numpy()
        vectors = encoder.fit_transform(texts)
        for seed in range(DRAWS):
            for step, rate, found in Draw(texts, groups, vectors, seed).results():
                yield data, step, rate, found


def cranfield(of_documents, of_queries):
    """Yield the same of questions against abstracts."""
    collection = read_beir(DATA / "retrieval/cranfield", "test")
    documents = of_documents.fit_transform([*collection.documents.values()])
    queries = of_queries.fit_transform([*collection.queries.values()])
    ids = [*collection.documents]
    relevant = np.array([[name in grades for name in ids] for grades in collection.grades])
    for seed in range(DRAWS):
        order = np.random.default_rng(seed).permutation(len(queries))
        sample, scored = order[: len(order) // 2], order[len(order) // 2 :]
        for smoothed in (False, True):
            d, q = documents, queries
            if smoothed:
                d, q = d - d.mean(axis=0), q - q[sample].mean(axis=0)  # two kinds of text
                whitening = Whitening(noise="auto").fit(np.vstack([d, q[sample]]))
                d, q = whitening.transform(d), whitening.transform(q)
                smooth = NeighborSmoothing().fit(d)
                d, q = smooth.transform(d), smooth.transform(q)
            d, q = unit_rows(d)[0], unit_rows(q)[0]
            cosines = q[scored] @ d.T
            without = np.where(relevant[scored], -1, cosines).max(axis=1)
            right = np.take_along_axis(relevant[scored], cosines.argmax(1)[:, None], 1)[:, 0]
            kept = ~relevant[sample].any(axis=0)
            alone, scale = SimilarityScale(), SimilarityScale()
            alone.fit(d), scale.fit(d[kept], queries=q[sample])
            for rate in RATES:
                rules = {
                    "documents alone": alone.threshold(rate, per="query"),
                    "unanswerable": scale.threshold(rate, per="query"),
                }
                for rule, threshold in rules.items():
                    passed = cosines.max(axis=1) > threshold
                    found = (without > threshold).mean(), (passed & right).mean()
                    step = f"{'calibrated' if smoothed else 'raw'}, {rule}"
                    yield "Cranfield", step, rate, (*found, (passed & ~right).mean())


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("model")
    parser.add_argument("--prompt")
    parser.add_argument("--document-prompt")
    parser.add_argument("--memory")
    parser.add_argument("--output", default="answers.csv")
    options = parser.parse_args()
    model = minilm_path() if options.model == "minilm" else options.model
    encoder, documents = (
        BertEncoder(model, prompt=prompt, memory=options.memory)
        for prompt in (options.prompt, options.document_prompt)
    )
    found = {}
    for data, step, rate, rates in chain(labelled(encoder), cranfield(documents, encoder)):
        place = data, step, f"{100 * rate:.0f} %"
        found.setdefault(place, []).append(rates)
        if len(found[place]) == DRAWS:
            print(*place, np.mean(found[place], axis=0).round(3), sep="\t", flush=True)
    with open(options.output, "w", newline="", encoding="utf-8") as stream:
        writer = csv.writer(stream)
        writer.writerow(["data", "step", "promised", "false", "right", "wrong"])
        for place, rates in found.items():
            means = 100 * np.mean(rates, axis=0)
            writer.writerow([*place, *(f"{mean:.1f}" for mean in means)])


if __name__ == "__main__":
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        main()
