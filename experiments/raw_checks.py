"""More about a language model that was not trained for similarity, a few rows a question.

- answers: whether a sentence answers a question, of QNLI, by the area under the ROC curve of
  the cosine, times 100. Fitted on all questions and sentences.
- edit distance: the rank correlation of the cosines, and of the grades, of STS-B's test pairs
  with the Levenshtein distance of the texts; all pairs, and those of similar grades.
- density: the mean log-density in nats of STS-B's test sentences, less that of a Gaussian with
  the covariance of Ledoit and Wolf, after fits on other sentences of STS-B.
- word frequency: norms of the embeddings of words, and distances to three neighbors, by rank,
  as multiples of those of ranks 5,000 to 10,000.
- search: what `CalibrationSearch` chooses, the best of its candidates in hindsight, and the
  mean of the last layer, by Spearman's rho of STS-B's test pairs or by R-precision.
"""

from itertools import pairwise

import numpy as np
import pandas as pd
from data import DATA, pairs, sentences
from measures import correlations, unit
from raw_depths import KEPT, graded, grouped, texts_of
from raw_depths import stored as stored_depths
from raw_sts import FEATURES, STEPS, stored
from sklearn.covariance import LedoitWolf
from sklearn.metrics import roc_auc_score
from sklearn.neighbors import NearestNeighbors
from sklearn.preprocessing import FunctionTransformer

from skcalib import CalibrationSearch, NormalizingFlow, Whitening
from skcalib.inspection import word_embeddings

SEARCHED = "STS-B", "Banking77", "news", "biomedical", "emotions"
SEARCH = {"layers": [*KEPT["layers"]], "pooling": [*KEPT["pooling"]], "n_texts": 400}
CANDIDATES = {
    "raw": STEPS["raw"],
    "mean": Whitening(power=0),
    "PCA(128)": Whitening(128, power=0),
    "whitening": STEPS["auto"],
    "strong": STEPS["many"],
}
GRADES = (0, 1), (1, 2), (2, 3), (3, 4), (4, 5)
RANKS = {  # of table 1 of the BERT-flow paper
    "0-100": slice(100),
    "100-500": slice(100, 500),
    "500-5K": slice(500, 5000),
    "5K-10K": slice(5000, 10000),
}
TRAINED = {"untrained": 1e-12, "flow": 1e-3}  # by their learning rates


def rows(encode, options):
    for question in (answers, edits, densities, frequencies, searches):
        if options.only is None or question.__name__ in options.only:
            yield from question(encode, options)


def answers(encode, options):
    frame = pd.read_csv(DATA / "raw/qnli/qnli-dev.csv", keep_default_na=False)
    sides = [frame[side].tolist() for side in ("question", "sentence")]
    for feature, params in FEATURES.items():
        A, B = (stored(encode, options, **params).fit_transform(side) for side in sides)
        fit = np.unique(np.vstack([A, B]), axis=0)
        row = {"question": "answers", "vectors": feature}
        for step, map_ in STEPS.items():
            found = map_.fit(fit)
            cosines = (unit(found.transform(A)) * unit(found.transform(B))).sum(axis=1)
            row[step] = f"{100 * roc_auc_score(frame.is_answer, cosines):.1f}"
        yield row


def edits(encode, options):
    both, grades = pairs("stsb")
    texts, places = np.unique(both, return_inverse=True)
    first, second = places.reshape(both.shape).T
    distances = np.array([levenshtein(*pair) for pair in both])
    for feature in ("first_last", "layer 1", "last token, prompt"):
        vectors = stored(encode, options, **FEATURES[feature]).fit_transform(list(texts))
        measured = {"grades": grades}
        for step, map_ in STEPS.items():
            units = unit(map_.fit(vectors).transform(vectors))
            measured[step] = (units[first] * units[second]).sum(axis=1)
        parts = {"all pairs": grades >= 0}
        for low, high in GRADES:
            parts[f"grades {low} to {high}"] = (low <= grades) & (grades <= high)
        for part, kept in parts.items():
            measures = [values[kept] for values in measured.values()]
            found = correlations(distances[kept], measures)
            values = (f"{100 * value:+z.1f}" for value in found)
            row = {"question": "edit distance", "vectors": feature, "part": part}
            yield row | dict(zip(measured, values, strict=True))


def levenshtein(a, b):
    """Return how many characters change, come or go between two texts."""
    row = range(len(b) + 1)
    for i, letter in enumerate(a, 1):
        new = [i]
        for (diagonal, above), other in zip(pairwise(row), b, strict=True):
            new.append(min(above + 1, new[-1] + 1, diagonal + (letter != other)))
        row = new
    return row[-1]


def densities(encode, options):
    fitted = sentences()
    scored = np.setdiff1d(pairs("stsb")[0], fitted)
    for feature in ("last", "first_last", "layer 1", "last token, prompt"):
        encoder = stored(encode, options, **FEATURES[feature]).fit([""])
        X, new = (encoder.transform(list(texts)).astype(float) for texts in (fitted, scored))
        gaussian = LedoitWolf().fit(X).score(new)
        row = {"question": "density", "vectors": feature, "Gaussian": f"{gaussian:.0f}"}
        for step, rate in TRAINED.items():
            flow = NormalizingFlow(learning_rate=rate, random_state=0)
            row[step] = f"{flow.fit(X).score(new) - gaussian:+.0f}"
        flow = NormalizingFlow(max_epochs=20, validation_fraction=0.1, random_state=0)
        yield row | {"flow, best epoch": f"{flow.fit(X).score(new) - gaussian:+.0f}"}


def frequencies(encode, options):
    vectors = word_embeddings(encode.bert().model)[0]  # by falling frequency
    steps = {"raw": FunctionTransformer(), "exact": Whitening(), "auto": STEPS["auto"]}
    for step, map_ in steps.items():
        X = map_.fit(vectors).transform(vectors)
        search = NearestNeighbors(n_neighbors=4, algorithm="brute").fit(X - X.mean(axis=0))
        counted = (X - X.mean(axis=0))[: RANKS["5K-10K"].stop]
        distances = search.kneighbors(counted)[0][:, 1:].mean(axis=1)
        norms = np.linalg.norm(X, axis=1)
        for what, values in (("norm", norms), ("distance", distances)):
            row = {"question": "word frequency", "vectors": "embeddings", "part": what}
            means = {name: values[ranks].mean() for name, ranks in RANKS.items()}
            shares = {name: f"{mean / means['5K-10K']:.2f}" for name, mean in means.items()}
            yield row | {"step": step} | shares


def searches(encode, options):
    for name in SEARCHED:
        fit_on, texts, score_of = task(name)
        search = CalibrationSearch(stored_depths(encode, options), **SEARCH).fit(list(fit_on))
        tried, found, names = pd.DataFrame(search.cv_results_), [], []
        for one in tried.itertuples():
            encoder = stored_depths(encode, options, one.pooling, layers=one.layers).fit([""])
            step = CANDIDATES[one.candidate].fit(encoder.transform(list(fit_on)))
            found.append(score_of(encoder.transform(list(texts)))(step))
            names.append(f"{one.candidate} {one.pooling} {one.layers}")
        best = int(np.argmax(found))
        row = {"question": "search", "part": name}
        for what, i in (("chosen", search.best_index_), ("best", best), ("last", 0)):
            row |= {what: f"{found[i]:.1f}", f"{what} by": names[i]}
        yield row


def task(name):
    """Return texts to fit on, texts to score, and a function from their vectors to a score."""
    if name == "STS-B":
        both, grades = pairs("stsb")
        texts, places = np.unique(both, return_inverse=True)
        places = places.reshape(both.shape).T
        return texts, texts, lambda vectors: graded(vectors, places, grades)
    fit_on, texts, codes = texts_of(name)
    return fit_on, texts, lambda vectors: grouped(vectors, codes)
