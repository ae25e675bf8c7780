"""Each job by skcalib and by the strongest few lines that one would write with scikit-learn.

A row has the difference of "skcalib" to a step, and the interval of 95 % of a paired bootstrap
over pairs, texts, queries or draws. Rows of the set "mean" have the mean over the
sets of a job, of one encoder or of all, the interval of the mean difference over these sets, by
Student's t, and the worst difference of a set and encoder. In the place of an encoder,
"strongest" marks the line with the best mean of all. "near" adds the mean of the ten nearest
fitted vectors, and "smoothed" is `NeighborSmoothing`.

- "similarity": Spearman's rho on the seven STS sets, fitted on STS-B's training sentences,
  1,000 with the raw model, SmolLM2, for which "skcalib" is `n_groups="many"`.
- "groups": R-precision on labeled sets, fitted on up to 4,000 training texts, and 400 with the
  raw model. "known" is their number. "others fitted" fits texts of other groups.
- "clusters": mutual information of `KMeans`, which knows the number of groups.
- "odd texts": area under the ROC curve, for texts of groups that were not fitted.
- "search": see `search`, with one draw; without a bank, no mean is subtracted from queries.
- "answers": mean of the share of questions answered right and of those without an answer that
  get none, promised 5 % false ones. The limit is the quantile of each stored question's largest
  cosine with one that has another answer.
- "names", "three labels": accuracy; in skewed sets the mean of accuracy and balanced accuracy.
- "classifier": accuracy of `LogisticRegression` after a step; 500 labeled texts choose `C`.
- "no class": mean of the shares of texts kept of known classes and rejected of others.
- "rate": how well a threshold for one false pair in a thousand keeps it on other texts, the
  smaller of the rates divided by the larger.
"""

import re
import warnings

import answers
import numpy as np
import pandas as pd
import raw_depths
import raw_recipes
import search
from classes import ODD, hits, kinds_of, rejections
from contenders import OURS, for_groups, for_known_groups, for_similarity, pca
from data import FITTED, SETS, STS, distinct, drawn_pairs, labeled, sentences, texts_of
from measures import codes_of, of_groups, of_places, unit, with_resamples
from scipy.stats import t
from sklearn.cluster import KMeans
from sklearn.covariance import LedoitWolf
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import normalized_mutual_info_score, roc_auc_score
from sklearn.model_selection import GridSearchCV, KFold
from sklearn.neighbors import NearestNeighbors
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from skcalib import NearestAnswer, NormalizingFlow, SimilarityScale, TextEncoder, Whitening

RESAMPLES = 1000
TRAINED = "minilm", "e5"
RAW = {f"smollm2, {feature}": feature for feature in raw_recipes.CHOSEN[:3]}
CLUSTERS = "raw", "StandardScaler", "raw, near", "PCA(128), near", OURS, "skcalib, not smoothed"
RAW_SETS = "Banking77", "news", "biomedical", "emotions", "intents", "assistants"


def rows(encode, options):
    warnings.simplefilter("ignore", UserWarning)  # of few texts, no pair, a shift
    for job, (task, names) in TASKS.items():
        if options.only and job not in options.only:
            continue
        cells = {}
        for name in names:
            if options.encoder not in (None, name):
                continue
            for data, score, steps in task(encoder_of(job, name, encode, options), options):
                for step, samples in steps.items():
                    gains = np.subtract(steps[OURS], samples)
                    for group in (name, "all"):
                        of_sets = cells.setdefault((group, score), {}).setdefault(step, [])
                        of_sets.append((data, samples[0], gains[0]))
                    yield row((job, name, data, score, step), samples[0], gains[:1], gains[1:])
        yield from means(job, cells)


def means(job, cells):
    """Yield the means of a job, and again that of the strongest line.

    Encoders and features of one set are averaged first, since they are not independent.
    """
    for (group, score), steps in cells.items():
        columns = ["data", "value", "gain"]
        tables = {step: pd.DataFrame(rows, columns=columns) for step, rows in steps.items()}
        values = {step: table.groupby("data").mean() for step, table in tables.items()}
        of_steps = [(group, step) for step in values]
        if group == "all":
            lines = [step for step in values if not re.search("skcalib|smoothed", step)]
            of_steps += [("strongest", max(lines, key=lambda step: values[step].value.mean()))]
        for encoder, step in of_steps:
            place = job, encoder, "mean", score, step
            made = row(place, values[step].value.mean(), values[step].gain)
            if "worst" in made:
                made["worst"] = f"{tables[step].gain.min():+z.1f}"
            yield made


def row(place, value, gains, resamples=()):
    """Return a row with the mean gain and its interval, of resamples or over sets."""
    cells = dict(zip(("job", "encoder", "data", "score", "step"), place, strict=True))
    cells["value"] = f"{value:.1f}"
    if place[-1] == OURS:
        return cells
    numbers = {"difference": np.mean(gains)}
    if len(resamples):
        numbers["low"], numbers["high"] = np.quantile(resamples, (0.025, 0.975))
    elif len(gains) > 1:
        half = t.ppf(0.975, len(gains) - 1) * np.std(gains, ddof=1) / len(gains) ** 0.5
        numbers |= {"low": np.mean(gains) - half, "high": np.mean(gains) + half}
        numbers["worst"] = np.min(gains)
    return cells | {key: f"{number:+z.1f}" for key, number in numbers.items()}


def resampled(steps):
    """Means of the values of texts, queries or draws, times 100, and of resamples of these."""
    n = len(next(iter(steps.values())))
    places = np.random.default_rng(0).integers(n, size=(RESAMPLES, n))
    return {
        step: 100 * np.r_[np.mean(values), np.asarray(values)[places].mean(axis=1)]
        for step, values in steps.items()
    }


def balanced(first, second):
    """Weight two groups of hits so that their mean is the mean of both shares."""
    n = len(first) + len(second)
    return np.r_[
        np.multiply(first, n / len(first) / 2), np.multiply(second, n / len(second) / 2)
    ]


def encoder_of(job, name, encode, options):
    """Return what encodes texts: a trained encoder, or features of a raw language model."""
    if name in TRAINED:
        return encode.named(name)
    if job == "raw model, classifier":
        encoder = raw_depths.stored(encode.named(name), options, layers=-1).fit([""])
        return lambda texts: encoder.transform(list(texts))
    model, feature = encode.named("smollm2"), RAW[name]
    return lambda texts: raw_recipes.encoded(model, options, feature, texts)[0]


def is_raw(encode):
    return not hasattr(encode, "named")


# Vectors.


def graded(encode, options):
    """Spearman's rho of each STS set, by step, with resamples of its pairs."""
    fitted = encode(sentences(1000 if is_raw(encode) else FITTED))
    steps = for_similarity()
    if is_raw(encode):  # the recipe of the pages
        steps["skcalib, default"], steps[OURS] = steps[OURS], steps.pop("skcalib, many")
    steps = {step: map_.fit(fitted) for step, map_ in steps.items()}
    for name in STS:
        both, grades = drawn_pairs(name, options.most)
        texts, places = distinct(both)
        vectors = encode(texts)
        cosines = [of_places(unit(map_.transform(vectors)), places) for map_ in steps.values()]
        yield name, "Spearman", dict(zip(steps, with_resamples(grades, cosines), strict=True))


def sets_of(encode):
    """Yield a name, vectors to fit on, vectors to score, and the groups of these."""
    size = (400, 400) if is_raw(encode) else (4000, 2000)
    for name in RAW_SETS if is_raw(encode) else SETS:
        fitted, texts, codes = texts_of(name, *size)
        yield name, encode(fitted), encode(texts), codes


def others_fitted(encode):
    """Of half of the groups texts are fitted, and of the others scored."""
    for name in ODD:
        texts, labels = labeled(name, "train", 4000)
        new, of_new = labeled(name, "test", 2000)
        groups = np.random.default_rng(0).permutation(np.unique(labels))
        is_scored, kept = (np.isin(of, groups[: len(groups) // 2]) for of in (labels, of_new))
        yield name, encode(texts)[~is_scored], encode(new)[kept], codes_of(of_new[kept])


def grouped(steps_for, sets=sets_of):
    def task(encode, options):
        for name, fitted, vectors, codes in sets(encode):
            steps = steps_for(codes.max() + 1).items()
            values = {s: of_groups(m.fit(fitted).transform(vectors), codes) for s, m in steps}
            yield name, "R-precision", resampled(values)

    return task


def clusters(encode, options):
    for name, fitted, vectors, codes in sets_of(encode):
        n_groups, values = codes.max() + 1, {}
        known, steps = for_known_groups(n_groups), for_groups()
        steps = {step: steps[step] for step in CLUSTERS}
        steps |= {step: known[step] for step in ("PCA(groups)", "PCA(groups), near")}
        steps["skcalib, n_groups"] = known[OURS]
        for step, model in steps.items():
            units = unit(model.fit(fitted).transform(vectors))
            seeds = (KMeans(n_groups, n_init=3, random_state=seed) for seed in range(5))
            agreed = [normalized_mutual_info_score(codes, s.fit_predict(units)) for s in seeds]
            values[step] = [100 * np.mean(agreed)]
        yield name, "mutual information", values


def odd(encode, options):
    for name in ODD:
        pool, _, usual, of_kinds = kinds_of(name)
        fitted, usual = encode(pool), encode(usual)
        neighbors = NearestNeighbors(n_neighbors=5, metric="cosine").fit(fitted)
        covariance, flow = LedoitWolf().fit(fitted), NormalizingFlow(random_state=0).fit(fitted)
        scores = {
            "nearest neighbors": lambda X, of=neighbors: of.kneighbors(X)[0].mean(axis=1),
            "LedoitWolf": covariance.mahalanobis,
            OURS: lambda X, of=flow: -of.score_samples(X),
        }
        for kind, texts in of_kinds.items():
            X, is_odd = np.vstack([usual, encode(texts)]), np.arange(len(usual) + len(texts))
            is_odd, values = is_odd >= len(usual), {}
            for step, score in scores.items():
                values[step] = [100 * roc_auc_score(is_odd, score(X))]
            yield name, f"ROC AUC, {kind}", values


# Search and answers.


def searched(bank, sets=search.SETS):
    def task(encode, options):
        for name in sets:
            for of_bank, steps in search.of_set(encode, name, n_draws=1, mean=0):
                if of_bank == bank:
                    values = {"raw": steps.pop("cosines"), OURS: steps.pop("search")}
                    steps.pop("search of parts", None)
                    yield name, "nDCG@10", resampled(steps | values)

    return task


def answered(encode, options):
    rate = 0.05
    for name in answers.SETS:
        values = {}
        for draw in answers.draws(encode, name):
            stored, new = draw.encode(draw.stored), draw.encode(draw.scored)
            predicted, known = {}, draw.known
            for step, shift in {"raw": 0, "mean subtracted": stored.mean(axis=0)}.items():
                S, cosines = unit(stored - shift), unit(new - shift) @ unit(stored - shift).T
                unlike = np.where(draw.answers[:, None] != draw.answers, S @ S.T, -1)
                limit = np.quantile(unlike.max(axis=1), 1 - rate)
                predicted[step] = draw.answers[cosines.argmax(axis=1)].astype(object)
                predicted[f"{step}, quantile"] = np.where(
                    cosines.max(axis=1) <= limit, None, predicted[step]
                )
            model = NearestAnswer(TextEncoder(draw.encode), false_positive_rate=rate)
            model.fit(draw.stored, draw.answers, queries=draw.log)
            predicted[OURS] = model.predict(list(draw.scored))
            for step, of_step in predicted.items():
                right = np.array([a == b for a, b in zip(of_step, draw.truth, strict=True)])
                values.setdefault(step, []).append(balanced(right[known], right[~known]))
        yield name, "right", resampled({s: np.concatenate(v) for s, v in values.items()})


# Classes.


def classified(n_labels, are_named):
    def task(encode, options):
        for name in SETS:
            if not are_named or name != "biomedical":  # whose topics have no names
                yield name, "accuracy", resampled(hits(encode, name, n_labels, are_named))

    return task


def with_many_labels(encode, options):
    steps = {"raw": "passthrough", "StandardScaler": StandardScaler(), "PCA(128)": pca(128)}
    steps |= {"skcalib, exact": Whitening(), OURS: Whitening(power="auto")}
    for name in raw_depths.SETS[1:]:
        n = 400 if name == "intents" else 500  # as `raw_depths`, which has stored them
        (known, y), (new, of_new) = (labeled(name, half, n) for half in ("train", "test"))
        X, Z, values = encode(known), encode(new), {}
        for step, map_ in steps.items():
            logistic = LogisticRegression(max_iter=2000)
            logistic = GridSearchCV(logistic, {"C": [1, 10, 100]}, cv=KFold(3))
            model = make_pipeline(map_, logistic).fit(X, y)
            values[step] = model.predict(Z) == of_new
        yield name, "accuracy", resampled(values)


def of_no_class(encode, options):
    for name in ODD:
        values = {}
        for step, kept, rejected in rejections(encode, name):
            for kind, of_kind in rejected.items():
                draws = values.setdefault(kind, {}).setdefault(step, [])
                draws.append(balanced(kept, of_kind))
        for kind, of_steps in values.items():
            means = {step: np.mean(drawn, axis=0) for step, drawn in of_steps.items()}
            yield name, f"balanced accuracy, {kind}", resampled(means)


def rate_kept(encode, options):
    rate = 1e-3
    for name in SETS:
        A, B = (unit(encode(labeled(name, half, 2000)[0])) for half in ("train", "test"))
        fitted, new = ((X @ X.T)[np.triu_indices(len(X), 1)] for X in (A, B))
        limits = {"quantile": np.quantile(fitted, 1 - rate)}
        limits[OURS] = SimilarityScale().fit(A).threshold(rate)
        seen = {step: max(np.mean(new >= limit), 1e-12) for step, limit in limits.items()}
        values = {step: [100 * min(s / rate, rate / s)] for step, s in seen.items()}
        yield name, "rate kept", values


TASKS = {  # the task of a job, and its encoders
    "raw model, similarity": (graded, RAW),
    "raw model, groups unknown": (grouped(for_groups), RAW),
    "raw model, groups known": (grouped(for_known_groups), RAW),
    "similarity": (graded, TRAINED),
    "groups unknown": (grouped(for_groups), TRAINED),
    "groups known": (grouped(for_known_groups), TRAINED),
    "groups unknown, others fitted": (grouped(for_groups, others_fitted), TRAINED),
    "odd texts": (odd, TRAINED),
    "clusters": (clusters, TRAINED),
    "search, 100 queries": (searched("100"), TRAINED),
    "search, no queries": (searched("none"), TRAINED),
    "long documents, 100 queries": (searched("100", [search.LONG]), TRAINED),
    "answers": (answered, TRAINED),
    "names": (classified(0, True), TRAINED),
    "three labels": (classified(3, False), TRAINED),
    "three labels and names": (classified(3, True), TRAINED),
    "classifier": (with_many_labels, TRAINED),
    "raw model, classifier": (with_many_labels, ("smollm2",)),
    "no class": (of_no_class, TRAINED),
    "rate": (rate_kept, TRAINED),
}
