"""Measures of vectors by text, pair or query, so that a bootstrap can draw these anew.

`skcalib.evaluation` has the means; ``tests/test_experiments.py`` compares them.
"""

import numpy as np
from scipy.stats import rankdata
from sklearn.preprocessing import normalize

RESAMPLES = 200


def unit(vectors):
    """Vectors of unit length in float64."""
    return normalize(np.asarray(vectors, dtype=np.float64))


def codes_of(labels):
    return np.unique(labels, return_inverse=True)[1]


def precisions(similarity, same):
    """R-precision of each text with R others of its kind: their share of its R nearest."""
    similarity = similarity.copy()
    np.fill_diagonal(similarity, -np.inf)
    others = same.sum(axis=1) - 1
    order = np.argsort(-similarity, axis=1, kind="stable")[:, : others.max()]
    among = np.arange(others.max()) < others[:, None]
    return (np.take_along_axis(same, order, axis=1) & among).sum(axis=1) / others


def of_groups(vectors, codes):
    """R-precision of each text by the cosines of vectors."""
    units = unit(vectors)
    return precisions(units @ units.T, codes[:, None] == codes)


def of_places(units, places):
    """Cosines of pairs of vectors of unit length, by their rows on both sides."""
    first, second = (units[side] for side in places)
    return (first * second).sum(axis=1)


def correlations(grades, cosines):
    """Spearman's rho of each row of cosines with the grades."""
    return np.corrcoef(rankdata(np.vstack([grades, *cosines]), axis=1))[0, 1:]


def correlation(grades, cosines):
    """Spearman's rho, times 100."""
    return 100 * correlations(grades, [cosines])[0]


def with_resamples(grades, cosines):
    """Return rho of each row of cosines, (n_rows, 1 + resamples), times 100."""
    cosines, rng = np.asarray(cosines), np.random.default_rng(0)
    drawn = (rng.integers(len(grades), size=len(grades)) for _ in range(RESAMPLES))
    of_drawn = (correlations(grades[places], cosines[:, places]) for places in drawn)
    return 100 * np.transpose([correlations(grades, cosines), *of_drawn])


def ndcg(similarity, grades):
    """nDCG@10 of each query."""
    order = np.argsort(-similarity, axis=1, kind="stable")[:, :10]
    discount = 1 / np.log2(np.arange(2, 12))
    best = -np.sort(-grades, axis=1)[:, :10] @ discount
    return np.take_along_axis(grades, order, axis=1) @ discount / best


def intervals(samples):
    """Return the ends of the 95 % interval of each row's difference to the first row."""
    samples = np.asarray(samples)
    return np.quantile(samples - samples[0], (0.025, 0.975), axis=1).T
