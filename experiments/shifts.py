"""New topics in a sample of one domain: how often tests see them, and how often by mistake.

1,000 texts of three quarters of the classes of a set are the reference. A sample of 400 other
texts has none of the other classes, or a quarter of its texts. The cells have the percentage of
20 samples with a p-value below 0.01, by `shift`; by Kolmogorov-Smirnov's test of the
coordinates along the ten leading axes and of the Mahalanobis distance, after Bonferroni; and by
a ridge classifier of fitted and new vectors, whose scores for the other half Mann and Whitney's
test compares.
"""

import numpy as np
import pandas as pd
from data import labeled
from scipy.stats import ks_2samp, mannwhitneyu
from sklearn.decomposition import PCA
from sklearn.linear_model import RidgeClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from skcalib import Whitening
from skcalib.monitoring import shift

SETS = "Banking77", "biomedical", "news", "emotions"
REFERENCE, SIZE, DRAWS = 1000, 400, 20
RATE = 0.01


def rows(encode, options):
    for name in options.only or SETS:
        halves = [labeled(name, half, 3300) for half in ("train", "test")]
        X = np.vstack([encode(texts) for texts, _ in halves])
        classes = np.concatenate([labels for _, labels in halves])
        for kind, share in {"none": 0, "a quarter": 0.25}.items():
            found = pd.DataFrame(
                of_sample(*drawn(X, classes, share, seed)) for seed in range(DRAWS)
            )
            shares = 100 * (found < RATE).mean()
            row = {"data": name, "texts": SIZE, "new": kind}
            yield row | {contender: f"{share:.0f}" for contender, share in shares.items()}


def drawn(X, classes, share, seed):
    """Fitted vectors, and new ones, of which a share is of new classes."""
    rng = np.random.default_rng(seed)
    names = np.unique(classes)
    of_new = np.isin(classes, rng.choice(names, max(1, len(names) // 4), replace=False))
    old, new = (rng.permutation(np.flatnonzero(of_new == kind)) for kind in (False, True))
    is_new = rng.random(SIZE) < share
    rows = np.empty(SIZE, int)
    rows[is_new] = new[: is_new.sum()]
    rows[~is_new] = old[-SIZE:][is_new.sum() :]
    return X[old[:-SIZE][:REFERENCE]], X[rows]


def of_sample(old, new):
    """P-values of the contenders."""
    whitening, axes = Whitening(shrinkage="auto").fit(old[::2]), PCA(10).fit(old)
    scores = (
        np.column_stack([axes.transform(Z), (whitening.transform(Z) ** 2).sum(axis=1)])
        for Z in (old[1::2], new)
    )
    of_axes = ks_2samp(*scores).pvalue  # of each column
    both, y = np.vstack([old, new]), np.repeat([0, 1], [len(old), len(new)])
    order = np.random.default_rng(0).permutation(len(y))
    train, test = order[::2], order[1::2]
    ridge = RidgeClassifier(100, class_weight="balanced")
    classifier = make_pipeline(StandardScaler(), ridge).fit(both[train], y[train])
    scored = classifier.decision_function(both[test])
    parts = scored[y[test] == 1], scored[y[test] == 0]
    return {
        "shift": shift(old, new).p_value,
        "Kolmogorov-Smirnov": of_axes.min() * len(of_axes),
        "classifier": mannwhitneyu(*parts, alternative="greater").pvalue,
    }
