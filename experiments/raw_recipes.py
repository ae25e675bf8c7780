"""Which features and which calibration of a language model for which use.

The features are those of `raw_sts`. Uses are graded similarity (Spearman's rho of STS-B), pairs
with labels (area under the ROC curve: questions and sentences that answer them, medical
questions with the same meaning), and groups (R-precision, in two columns: two sets of many
groups, and four of few or skewed ones). Pairs are fitted on their own texts; 300 pairs are
drawn at random. For groups 400 texts are fitted and 400 others scored; "n_groups" knows their
number. "value" is the mean over sets, "gain" that over raw vectors, "worst" that of the worst
set.
"""

import numpy as np
import pandas as pd
from contenders import Near, chosen
from data import DATA, distinct, pairs, side, texts_of
from measures import correlation, of_groups, of_places
from raw_sts import FEATURES, mapped, stored
from sklearn.metrics import roc_auc_score
from sklearn.pipeline import make_pipeline

from skcalib import NeighborSmoothing, Whitening

CHOSEN = "first_last", "last token, prompt", "second text", "side by side"
GROUPS = {
    "Banking77": "many groups",
    "biomedical": "many groups",
    "emotions": "few groups",
    "news": "few groups",
    "intents": "few groups",
    "assistants": "few groups",
}
FEW, TEXTS = 300, 400
STEPS = "raw", "StandardScaler", "PCA(128, whiten=True)", "exact", "default", "many"


def steps(n_groups=None):
    by_name = chosen(*STEPS)
    if n_groups is not None:
        known = Whitening(power="auto", n_groups=n_groups)
        by_name["StandardScaler, near"] = make_pipeline(by_name["StandardScaler"], Near())
        by_name["default, smoothed"] = make_pipeline(by_name["default"], NeighborSmoothing())
        by_name["n_groups"] = known
        by_name["n_groups, smoothed"] = make_pipeline(known, NeighborSmoothing())
    return by_name


def rows(encode, options):
    for feature in CHOSEN:
        values = {}
        for use, name, both, grades in of_pairs():
            order = np.random.default_rng(0).permutation(len(both))
            drawn = {use: order, f"{use}, {FEW} pairs": order[:FEW]}
            for fitted, kept in drawn.items() if use == "similarity" else [(use, order)]:
                scores = paired(encode, options, feature, both[kept], grades[kept], use)
                values.setdefault(fitted, {})[name] = scores
        for name, use in GROUPS.items():
            values.setdefault(use, {})[name] = grouped(encode, options, feature, name)
        for use, of_sets in values.items():
            table = pd.DataFrame(of_sets)
            gains = table - table.loc["raw"]
            for step in table.index:
                row = {"feature": feature, "use": use, "step": step}
                row["value"] = f"{table.loc[step].mean():.1f}"
                row["gain"] = f"{gains.loc[step].mean():+z.1f}"
                yield row | {"worst": f"{gains.loc[step].min():+z.1f}"}


def of_pairs():
    """Yield the use, the name, the texts and the grades of sets of pairs."""
    yield "similarity", "STS-B", *pairs("stsb")
    frame = pd.read_csv(DATA / "raw" / "qnli" / "qnli-dev.csv", keep_default_na=False)
    drawn = frame.iloc[np.random.default_rng(0).permutation(len(frame))[: FEW // 2]]
    yield "answers", "QNLI", drawn.iloc[:, :2].to_numpy(), drawn.iloc[:, 2].to_numpy()
    entries = side("medical-pairs")
    both = np.column_stack([entries["a"], entries["b"]])
    yield "same meaning", "medical", both, np.array(entries["same"])


def encoded(encode, options, feature, texts):
    """Vectors of texts, one array for each part of a feature."""
    encoders = [stored(encode, options, **params) for params in FEATURES[feature]]
    return [encoder.fit([""]).transform(list(texts)) for encoder in encoders]


def paired(encode, options, feature, both, grades, use):
    """Return the score of each step, times 100, on pairs on whose texts it is fitted."""
    texts, places = distinct(both)
    parts, scores = encoded(encode, options, feature, texts), {}
    for step, map_ in steps().items():
        scores[step] = score(use, mapped(map_, parts), places, grades)
    return scores


def score(use, units, places, grades):
    """Return Spearman's rho or, of labels, the area under the ROC curve, times 100."""
    cosines = of_places(units, places)
    if use == "similarity":
        return correlation(grades, cosines)
    return 100 * roc_auc_score(grades, cosines)


def grouped(encode, options, feature, name):
    """Return the R-precision of each step, times 100."""
    fit_on, texts, codes = texts_of(name, TEXTS, TEXTS)
    parts = [encoded(encode, options, feature, of) for of in (fit_on, texts)]
    maps = steps(codes.max() + 1).items()
    return {step: 100 * of_groups(mapped(m, *parts), codes).mean() for step, m in maps}
