"""Common steps after an encoder compared on all tasks, with intervals.

The fits use 4,000 of STS-B's training sentences ("STS") or those that are in no test set ("STS
unseen"), 4,000 texts of the training half of each labeled set, and, for the search,
Cranfield's documents and queries. "n_groups" knows the number of groups. Each score has its
difference to raw vectors and the 95 % interval of a paired bootstrap over pairs (STS), texts
(labeled sets) or queries (Cranfield).
"""

import re

import numpy as np
from contenders import steps
from data import CRANFIELD, SETS, STS, cranfield, labeled, pairs, sentences
from measures import codes_of, correlations, intervals, precisions, resampled, unit
from sklearn.base import clone
from sklearn.cluster import KMeans
from sklearn.metrics import normalized_mutual_info_score
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import FunctionTransformer

from skcalib import GroupErasure, Whitening
from skcalib.evaluation import evaluate_retrieval


def rows(encode, options):
    measured = [*sts(encode), search(encode)] if options.only is None else []
    for name in options.only or SETS:
        measured += of_set(encode, name, options.most)
    for data, score, names, values, ends in measured:
        for k, step in enumerate(names):
            row = {
                "data": data,
                "score": score,
                "step": step,
                "value": f"{100 * values[k]:.1f}",
            }
            points = [100 * (values[k] - values[0])] if k else []
            points += [] if ends is None or not k else list(100 * ends[k])
            yield row | dict(
                zip(("difference", "low", "high"), (f"{p:+.1f}" for p in points), strict=False)
            )


def plain(text):
    return re.sub(r"\W+", " ", text.lower()).strip()


def sts(encode):
    """Spearman's rho, averaged over the seven sets, after two fits."""
    tests, names = {task: pairs(task) for task in STS}, steps()
    seen = {plain(text) for both, _ in tests.values() for text in both.ravel()}
    train = np.sort(sentences(None))
    unseen = train[[plain(text) not in seen for text in train]]
    for data, texts in {"STS": sentences(), "STS unseen": unseen}.items():
        vectors = encode(texts)
        fitted = [step.fit(vectors) for step in steps().values()]
        scores, samples = [], []
        for seed, (both, grades) in enumerate(tests.values()):
            A, B = encode(both[:, 0]), encode(both[:, 1])
            sides = ([unit(step.transform(X)) for X in (A, B)] for step in fitted)
            cosines = np.array([(a * b).sum(axis=1) for a, b in sides])
            scores.append(correlations(grades, cosines))
            drawn = resampled(len(grades), seed=seed)
            samples.append([correlations(grades[i], cosines[:, i]) for i in drawn])
        ends = intervals(np.mean(samples, axis=0).T)
        yield data, "Spearman", names, np.mean(scores, axis=0), ends


def of_set(encode, name, most):
    """Return scores and intervals of one labeled set."""
    X, (texts, labels) = encode(labeled(name, "train", 4000)[0]), labeled(name, "test", most)
    vectors, y = encode(texts), codes_of(labels)
    same, k = y[:, None] == y, y.max() + 1
    names, found, clusters = steps(k), [], []
    for step in names.values():
        units = unit(clone(step).fit(X).transform(vectors))
        each = precisions(units @ units.T, same)
        found.append([each.mean(), *(each[rows].mean() for rows in resampled(len(y)))])
        seeds = (KMeans(k, n_init=3, random_state=seed) for seed in range(5))
        nmi = [normalized_mutual_info_score(y, seed.fit_predict(units)) for seed in seeds]
        clusters.append(np.mean(nmi))
    found = np.array(found)
    yield name, "R-precision", names, found[:, 0], intervals(found[:, 1:])
    yield name, "NMI", names, np.array(clusters), None


def of_queries(step, D, Q):
    """Return fitted steps for documents and for queries, whose means differ."""
    if isinstance(step, FunctionTransformer):
        return step, step
    whitening = step[0] if isinstance(step, Pipeline) else step
    if not isinstance(whitening, Whitening):
        # Each side has its own mean subtracted.
        shift = Q.mean(axis=0) - D.mean(axis=0)
        fitted = clone(step).fit(D)
        return fitted, make_pipeline(FunctionTransformer(lambda X: X - shift), fitted)
    # As in docs/tasks/search.md.
    both = np.vstack([D, Q])
    groups = np.repeat(["document", "query"], [len(D), len(Q)])
    erasure = GroupErasure().fit(both, groups=groups)
    found = [erasure, clone(whitening).fit(erasure.transform(both))]
    if isinstance(step, Pipeline):
        found.append(clone(step[1]).fit(make_pipeline(*found).transform(D)))
    fitted = make_pipeline(*found)
    return fitted, fitted


def search(encode):
    """nDCG@10 on Cranfield."""
    documents, queries, _ = cranfield()
    of_documents, of_query = encode.bert(documents=True), encode.bert()
    D, Q = of_documents.fit_transform(documents), of_query.fit_transform(queries)
    sides, query_sides = {}, {}
    for name, step in steps().items():
        for_documents, for_queries = of_queries(step, D, Q)
        sides[name] = make_pipeline(of_documents, for_documents)
        query_sides[name] = make_pipeline(of_query, for_queries)
    found = evaluate_retrieval(sides, CRANFIELD, query_encoder=query_sides)
    ends = found.intervals[:, 0] / 100
    return "Cranfield", "nDCG@10", steps(), found.scores[:, 0] / 100, ends
