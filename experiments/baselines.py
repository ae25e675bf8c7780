"""Three lines or the package: each job beside what a user would write with scikit-learn.

One row a set and step, with the difference of skcalib to that step and the interval of 95 % of
a paired bootstrap over pairs, texts, queries or draws. The rows "mean" have the mean over the
sets and encoders of a job, the interval of the mean difference over these, by Student's t, and
the worst difference.

- "similarity": Spearman's rho on the seven STS sets, fitted on STS-B's training sentences.
  "raw model" is SmolLM2: three lines follow the mean of its last layer, and skcalib is what
  `CalibrationSearch` chooses among nine layers and four poolings. "trained model" has the
  default.
- "groups unknown", "groups known": R-precision on six labeled sets, fitted on training texts;
  known is their number, and skcalib smooths. "clusters" is the mutual information of `KMeans`,
  in smoothed vectors. "raw model, groups known" has the mean of the first and the
  last layer of SmolLM2 and 500 texts, on four sets.
- "search": nDCG@10 of queries, of ten collections, with a bank of 100 others or none.
- "answers": mean of the share of questions answered right and of those without an answer that
  get none, promised 5 % false ones. The three lines take the quantile of each stored
  question's largest cosine with one that has another answer.
- "names", "three labels": accuracy by the names of classes, and by three labels of each; in
  skewed sets the mean of accuracy and balanced accuracy.
- "no class": mean of the shares of texts kept of known classes and rejected of others.
- "languages": share of a sentence's translations among its nearest, in one pool of four
  languages, after a map fitted on other sentences and their languages.
- "rate": how well a threshold for one false pair in a thousand keeps it on other texts, the
  smaller of the rates divided by the larger.
"""

import warnings

import answers
import languages
import numpy as np
import raw_depths
import raw_search
import raw_sts
import rejections
import search
from classes import Bench
from data import SETS, STS, labeled, pairs, sentences
from measures import codes_of, correlations, ndcg, precisions, unit
from scipy.stats import t
from sklearn.base import clone
from sklearn.cluster import KMeans
from sklearn.decomposition import PCA
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import normalized_mutual_info_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer, StandardScaler

from skcalib import (
    CalibrationSearch,
    NearestAnswer,
    NeighborSmoothing,
    SimilarityScale,
    TextEncoder,
    Whitening,
)

OURS, TEXTS, RESAMPLES = "skcalib", 2000, 1000
ENCODERS = "minilm", "e5"


def rows(encode, options):
    warnings.simplefilter("ignore", UserWarning)  # of few texts, no pair, a shift
    found = {}
    for job, task in TASKS.items():
        if options.only and job not in options.only:
            continue
        for name in ("smollm2",) if job.startswith("raw") else ENCODERS:
            for data, score, steps in task(encode.named(name), options):
                ours = np.array(steps[OURS])
                for step, samples in steps.items():
                    gains = ours - samples
                    place = job, score, step
                    found.setdefault(place, []).append((samples[0], gains[0]))
                    yield row(job, name, data, score, step, samples[0], gains)
    for (job, score, step), cells in found.items():
        value, gain = np.mean(cells, axis=0)
        gains = np.array(cells)[:, 1]
        half = t.ppf(0.975, len(gains) - 1) * gains.std(ddof=1) / len(gains) ** 0.5
        known = {"job": job, "encoder": "all", "data": "mean", "score": score, "step": step}
        known |= {"value": f"{value:.1f}"}
        if step != OURS:
            ends = {"low": gain - half, "high": gain + half, "worst": gains.min()}
            known |= {key: f"{v:+z.1f}" for key, v in ({"difference": gain} | ends).items()}
        yield known


def row(job, encoder, data, score, step, value, gains):
    known = {"job": job, "encoder": encoder, "data": data, "score": score, "step": step}
    known |= {"value": f"{value:.1f}"}
    if step == OURS:
        return known
    known["difference"] = f"{gains[0]:+z.1f}"
    if len(gains) > 1:
        low, high = np.quantile(gains[1:], (0.025, 0.975))
        known |= {"low": f"{low:+z.1f}", "high": f"{high:+z.1f}"}
    return known


def drawn(steps):
    """Means of values of each text, query or draw, times 100, and of resamples of these."""
    n = len(next(iter(steps.values())))
    rng = np.random.default_rng(0)
    rows = rng.integers(n, size=(RESAMPLES, n))
    return {
        step: 100 * np.r_[np.mean(values), np.asarray(values)[rows].mean(axis=1)]
        for step, values in steps.items()
    }


# Vectors: what a user writes after an encoder, by name.


def after(n_groups=None):
    steps = {
        "raw": FunctionTransformer(),
        "mean subtracted": StandardScaler(with_std=False),
        "PCA(128)": PCA(128, random_state=0),
        "PCA(whiten=True)": PCA(whiten=True),
    }
    if n_groups is not None:
        steps["PCA(groups)"] = PCA(n_groups, random_state=0)
    return steps


def calibration(n_groups=None):
    default = Whitening(noise="auto", n_groups=n_groups)
    return default if n_groups is None else make_pipeline(default, NeighborSmoothing())


def graded(vectors_of, more, ours=None):
    """Spearman's rho of each STS set, by step, with resamples of its pairs."""
    fitted = vectors_of(sentences())
    steps = {name: clone(step).fit(fitted) for name, step in (after() | more).items()}
    for name in STS:
        both, grades = pairs(name)
        sides = [vectors_of(side) for side in both.T]
        mapped = {step: [map_.transform(X) for X in sides] for step, map_ in steps.items()}
        if ours is not None:
            mapped[OURS] = [ours.transform(list(side)) for side in both.T]
        cosines = np.array([(unit(A) * unit(B)).sum(axis=1) for A, B in mapped.values()])
        rng, n = np.random.default_rng(0), len(grades)
        samples = [correlations(grades, cosines)]
        for rows in rng.integers(n, size=(200, n)):
            samples.append(correlations(grades[rows], cosines[:, rows]))
        yield name, "Spearman", dict(zip(mapped, 100 * np.transpose(samples), strict=True))


def of_raw_model(encode, options):
    """Three lines take the last layer, which the model declares, and skcalib chooses."""
    tried = CalibrationSearch(raw_depths.stored(encode, options), **raw_search.SEARCH)
    chosen = tried.fit(list(sentences(400))).best_estimator_
    chosen = clone(chosen).set_params(encode__memory=None).fit(list(sentences()))
    last = raw_sts.stored(encode, options, **raw_sts.FEATURES["last"]).fit([""])
    whitened = {"PCA(256, whiten=True)": PCA(256, whiten=True)}
    return graded(lambda texts: last.transform(list(texts)), whitened, chosen)


def of_raw_groups(encode, options):
    encoder = raw_depths.stored(encode, options, layers="first_last").fit([""])
    for name in raw_depths.SETS[1:]:
        fitted, texts, codes = raw_depths.texts_of(name)
        yield of_groups(name, *map(encoder.transform, (fitted, texts)), codes, True)


def of_trained_model(encode, options):
    return graded(encode, {OURS: Whitening(noise="auto")})


def grouped(is_known):
    def task(encode, options):
        for name in SETS:
            yield of_groups(name, *set_of(encode, name), is_known)

    return task


def of_groups(name, fitted, vectors, codes, is_known):
    n_groups, same = (codes.max() + 1 if is_known else None), codes[:, None] == codes
    steps, values = after(n_groups) | {OURS: calibration(n_groups)}, {}
    for step, model in steps.items():
        units = unit(clone(model).fit(fitted).transform(vectors))
        values[step] = precisions(units @ units.T, same)
    return name, "R-precision", drawn(values)


def clusters(encode, options):
    for name in SETS:
        fitted, vectors, codes = set_of(encode, name)
        n_groups, values = codes.max() + 1, {}
        ours = make_pipeline(Whitening(noise="auto"), NeighborSmoothing())
        for step, model in (after(n_groups) | {OURS: ours}).items():
            units = unit(clone(model).fit(fitted).transform(vectors))
            seeds = (KMeans(n_groups, n_init=3, random_state=seed) for seed in range(5))
            found = [normalized_mutual_info_score(codes, s.fit_predict(units)) for s in seeds]
            values[step] = [100 * np.mean(found)]
        yield name, "mutual information", values


def set_of(encode, name):
    """Vectors to fit on, vectors to score, and the groups of these, each of two or more."""
    fitted, texts, codes = raw_depths.texts_of(name, 4000, TEXTS)
    return encode(fitted), encode(texts), codes_of(codes)


# Search and answers.


def searched(n_bank):
    def task(encode, options):
        for name in search.SETS:
            documents, queries, grades, _ = search.collection(encode, name)
            answered = np.flatnonzero(grades.any(axis=1))
            order = np.random.default_rng(0).permutation(answered)
            bank, asked = order[: len(order) // 2][:n_bank], order[len(order) // 2 :]
            if n_bank and len(bank) < n_bank:
                continue
            texts, bank = [queries[i] for i in asked], [queries[i] for i in bank]
            by_side = {True: lambda x: unit(encode(x, True)), False: lambda x: unit(encode(x))}
            D, Q = by_side[True](documents), by_side[False](texts)
            words = search.bm25(documents, texts)
            steps = {"raw": Q @ D.T, "BM25": words}
            steps["reciprocal ranks"] = search.ranks(steps["raw"], words)
            if bank:
                mean = by_side[False](bank).mean(axis=0)
                steps["means subtracted"] = unit(Q - mean) @ unit(D - D.mean(axis=0)).T
            ours = search.fitted(by_side, documents, bank or None, {})
            steps[OURS] = search.scores(ours, texts)
            values = {step: ndcg(scores, grades[asked]) for step, scores in steps.items()}
            yield name, "nDCG@10", drawn(values)

    return task


def answered(encode, options):
    rate = 0.05
    for name in answers.SETS:
        texts, groups = labeled(name, "test")
        texts, rows = np.unique(texts[: answers.MOST].astype(str), return_index=True)
        vectors, values = encode(texts), {}
        for seed in range(answers.DRAWS):
            draw = answers.Draw(texts, groups[rows], vectors, seed)
            known = np.array([truth is not None for truth in draw.truth])
            stored, asked = unit(draw.encode(draw.stored)), unit(draw.encode(draw.scored))
            unlike = np.where(draw.answers[:, None] != draw.answers, stored @ stored.T, -1)
            cosines = asked @ stored.T
            limit = np.quantile(unlike.max(axis=1), 1 - rate)
            nearest = draw.answers[cosines.argmax(axis=1)].astype(object)
            predicted = {"raw": nearest, "quantile": nearest.copy()}
            predicted["quantile"][cosines.max(axis=1) <= limit] = None
            model = NearestAnswer(TextEncoder(draw.encode), false_positive_rate=rate)
            model.fit(draw.stored, draw.answers, queries=draw.log)
            predicted[OURS] = model.predict(list(draw.scored))
            for step, found in predicted.items():
                right = np.array([a == b for a, b in zip(found, draw.truth, strict=True)])
                weight = np.where(known, 0.5 / known.mean(), 0.5 / (~known).mean())
                values.setdefault(step, []).append(right * weight)
        yield name, "right", drawn({s: np.concatenate(v) for s, v in values.items()})


# Classes.


def of_names(encode, options):
    for name in SETS:
        if name == "biomedical":  # whose topics have no names
            continue
        bench = Bench(encode, name)
        hits = {
            step: bench.hits(bench.nearest_name(model, moves=step != "raw"))
            for step, model in after(len(bench.classes)).items()
        }
        yield name, "accuracy", drawn(hits | {OURS: bench.hits(bench.ours(bench.pool))})


def of_labels(encode, options):
    for name in SETS:
        bench, hits = Bench(encode, name), {}
        pool, new = unit(bench.encode(bench.pool)), unit(bench.encode(bench.new))
        for seed in range(4):
            known = bench.drawn(3, seed)
            labels = bench.pool_labels[known]
            means = [pool[known][labels == c].mean(axis=0) for c in bench.classes]
            logistic = LogisticRegression(C=10, max_iter=2000).fit(pool[known], labels)
            for step, predicted in {
                "nearest mean": bench.classes[(new @ unit(means).T).argmax(axis=1)],
                "logistic regression": logistic.predict(new),
                OURS: bench.ours(bench.pool, known, names=()),
            }.items():
                hits.setdefault(step, []).append(bench.hits(predicted))
        means = {step: np.mean(hit, axis=0) for step, hit in hits.items()}
        yield name, "accuracy", drawn(means)


def of_no_class(encode, options):
    for name in rejections.SETS:
        values = {}
        for step, kept, _, rejected in rejections.draws(encode, name):
            for odd, of_kind in rejected.items():
                found = values.setdefault(odd, {}).setdefault(
                    {"ours": OURS}.get(step, step), []
                )
                weights = np.repeat([0.5, 0.5], [len(kept), len(of_kind)])
                weights[: len(kept)] *= len(weights) / len(kept)
                weights[len(kept) :] *= len(weights) / len(of_kind)
                found.append(np.r_[kept, of_kind] * weights)
        for odd, of_steps in values.items():
            means = {step: np.mean(hits, axis=0) for step, hits in of_steps.items()}
            yield f"{name}, {odd}", "balanced accuracy", drawn(means)


# Languages, rates.


def of_languages(encode, options):
    fitted, groups, pool, text = languages.sentences()
    X, Z = encode(fitted), encode(pool)
    means = {group: X[groups == group].mean(axis=0) for group in languages.TASKS}
    of_pool = np.repeat(list(languages.TASKS), len(pool) // len(languages.TASKS))
    steps = {
        "raw": Z,
        "mean subtracted": Z - X.mean(axis=0),
        "mean of each language subtracted": Z - np.array([means[group] for group in of_pool]),
        OURS: languages.erased(X, groups).transform(Z),
    }
    found = {step: languages.hits(vectors, text) for step, vectors in steps.items()}
    yield "STS-B", "translations found", drawn(found)


def rate_kept(encode, options):
    rate = 1e-3
    for name in SETS:
        fitted, (texts, _) = (
            encode(labeled(name, "train", TEXTS)[0]),
            labeled(name, "test", TEXTS),
        )
        A, B = unit(fitted), unit(encode(texts))
        upper = np.triu_indices(len(A), 1)
        limits = {
            "quantile": np.quantile((A @ A.T)[upper], 1 - rate),
            OURS: SimilarityScale().fit(A).threshold(rate),
        }
        found = (B @ B.T)[np.triu_indices(len(B), 1)]
        values = {}
        for step, limit in limits.items():
            seen = max(np.mean(found >= limit), 1e-12)
            values[step] = [100 * min(seen / rate, rate / seen)]
        yield name, "rate kept", values


TASKS = {
    "raw model": of_raw_model,
    "raw model, groups known": of_raw_groups,
    "trained model": of_trained_model,
    "groups unknown": grouped(False),
    "groups known": grouped(True),
    "clusters": clusters,
    "search, 100 queries": searched(100),
    "search, no queries": searched(0),
    "answers": answered,
    "names": of_names,
    "three labels": of_labels,
    "no class": of_no_class,
    "languages": of_languages,
    "rate": rate_kept,
}
