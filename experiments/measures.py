"""Measures of vectors by text, pair or query, so that a bootstrap can draw these anew.

`skcalib.evaluation` has the means; ``tests/test_experiments.py`` compares them.
"""

import numpy as np
from scipy.stats import rankdata
from sklearn.preprocessing import normalize

RESAMPLES = 200
DRAWS, FEW = 20, 3  # of labels, and labels of each class


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


def r_precision(vectors, labels):
    """Mean R-precision, times 100."""
    units, codes = unit(vectors), codes_of(labels)
    return 100 * precisions(units @ units.T, codes[:, None] == codes).mean()


class Pairs:
    """Pairs of texts by falling cosine, counted as often as their texts are drawn."""

    def __init__(self, similarity, same):
        i, j = np.triu_indices(len(same), k=1)
        order = np.argsort(-similarity[i, j], kind="stable")
        self.first, self.second = i[order], j[order]
        self.alike = np.flatnonzero(same[i, j][order])
        self.n = len(same)

        # Each run of pairs ends with a pair of the same kind; these are the starts.
        self.begins = np.r_[0, self.alike[:-1] + 1]

    def average_precision(self, rows=None):
        """Of the pairs that are alike. A text that is drawn twice makes no pair with itself."""
        rows = np.arange(self.n) if rows is None else rows
        # A product of two counts fits into a byte, since no text is drawn sixteen times.
        counts = np.bincount(rows, minlength=self.n).astype(np.uint8)
        weights = counts.take(self.first) * counts.take(self.second)
        above = np.add.reduceat(weights, self.begins, dtype=np.int32).cumsum()
        weights = weights[self.alike].astype(float)
        found = weights.cumsum()
        return weights @ (found / np.maximum(above, 1)) / found[-1]


def few_labels(units, codes, n=FEW, draws=DRAWS):
    """Whether the nearest mean of n labeled texts has a text's class, (draws, n_texts).

    NaN for the labeled texts.
    """
    rng = np.random.default_rng(0)
    hits = np.full((draws, len(codes)), np.nan)
    for hit in hits:
        order = rng.permutation(len(codes))
        known = [order[codes[order] == c][:n] for c in range(codes.max() + 1)]
        means = np.stack([units[rows].mean(axis=0) for rows in known])
        others = np.setdiff1d(order, np.concatenate(known))
        scores = units[others] @ means.T - (means**2).sum(axis=1) / 2
        hit[others] = scores.argmax(axis=1) == codes[others]
    return hits


def of_groups(vectors, labels):
    """R-precision, accuracy with three labels a class, average precision, times 100."""
    units, codes = unit(vectors), codes_of(labels)
    similarity, same = units @ units.T, codes[:, None] == codes
    pairs = Pairs(similarity, same).average_precision()
    means = precisions(similarity, same).mean(), np.nanmean(few_labels(units, codes)), pairs
    return 100 * np.array(means)


def by_class(values, codes):
    """Mean over classes of the means of values, so that a large class counts like others."""
    return np.mean([values[codes == code].mean() for code in np.unique(codes)])


def reciprocal_ranks(similarity, belong):
    """Of the first text that belongs to each, of both sides that have one, times 100."""
    ranks = []
    for cosines, right in ((similarity, belong), (similarity.T, belong.T)):
        rows = right.any(axis=1)
        best = np.where(right, cosines, -np.inf)[rows].max(axis=1, keepdims=True)
        ranks.append(1 / (1 + np.sum(cosines[rows] > best, axis=1)))
    return 100 * np.mean([*map(np.mean, ranks)])


def correlations(grades, cosines):
    """Spearman's rho of each row of cosines with the grades."""
    return np.corrcoef(rankdata(np.vstack([grades, *cosines]), axis=1))[0, 1:]


def of_pairs(A, B, grades):
    """Spearman's rho of the cosines of two sides, times 100."""
    return 100 * correlations(grades, [(unit(A) * unit(B)).sum(axis=1)])[0]


def ndcg(similarity, grades):
    """nDCG@10 of each query."""
    order = np.argsort(-similarity, axis=1, kind="stable")[:, :10]
    discount = 1 / np.log2(np.arange(2, 12))
    best = -np.sort(-grades, axis=1)[:, :10] @ discount
    return np.take_along_axis(grades, order, axis=1) @ discount / best


def resampled(n, times=RESAMPLES, seed=0):
    """Rows of each resample, the same for all contenders."""
    rng = np.random.default_rng(seed)
    return (rng.integers(n, size=n) for _ in range(times))


def intervals(samples):
    """Return the ends of the 95 % interval of each row's difference to the first row."""
    samples = np.asarray(samples)
    return np.quantile(samples - samples[0], (0.025, 0.975), axis=1).T
