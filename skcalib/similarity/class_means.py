"""Means of classes, from their names, a few labeled texts and many without labels."""

import numpy as np
from scipy.sparse import csr_array
from sklearn.metrics import cohen_kappa_score

from skcalib.cosines import nearness

ROUNDS = 3
WEIGHT = 10.0  # texts that a name or a labeled text counts as
LEAST = 1e-3  # weight of a name, so that no class is without any
# Skills before any text is judged: names may mislead, and labels do not. So few labels let
# names count less.
PRIOR, UNKNOWN, KNOWN = 2, 0.0, 0.5
EXAMPLES = 10  # of each class, at most, that classify the others
# Texts of a class whose mean counts as much as its examples do: the rounds may find other
# groups than those that are named.
FOUND = 100.0


def class_means(
    texts: np.ndarray,
    names: np.ndarray | None,
    rows: np.ndarray,
    codes: np.ndarray,
    share: float = 1.0,
) -> np.ndarray:
    """Return the means of classes, (n_classes, d), see `ZeroShotClassifier`.

    ``codes`` are the classes of texts ``rows``. Each class has a text if ``names`` is None. Of
    the texts without label, only the ``share`` that is nearest to the examples counts: the
    others may belong to no class.

    Texts pull classes that are no topics, such as feelings, toward topics, and then many texts
    change their class. So the result lies between the first means and the last. The odds of
    the last are those that a text keeps its class rather than changes it, beyond chance, once
    for each round; `evidence` reduces them where texts are few.
    """
    free = np.delete(texts, rows, axis=0)
    examples, weights = texts[rows], np.full(len(rows), WEIGHT)
    if names is not None:
        of_names = np.full(len(names), WEIGHT * _weight_of_names(names, examples, codes))
        examples, weights = np.concatenate([names, examples]), np.r_[of_names, weights]
        codes = np.r_[: len(names), codes]
    n_classes, weight = codes.max() + 1, np.bincount(codes, weights)
    sums = sums_of(examples, codes, weights, n_classes)
    means = first = sums / weight[:, None]
    free = free[nearest_share(free, means, share)]
    nearest = before = nearest_class(free, means)
    for _ in range(ROUNDS):
        counts = np.bincount(nearest, minlength=n_classes)
        of_free = sums_of(free, nearest, np.ones(len(free)), n_classes)
        means = (sums + of_free) / (weight + counts)[:, None]
        nearest = nearest_class(free, means)
    is_same = np.array_equal(before, nearest)  # kappa is not defined where all are of one class
    kappa = 1.0 if is_same else max(0.0, cohen_kappa_score(before, nearest))
    odds = kappa**ROUNDS, (1 - kappa) ** ROUNDS
    trust = odds[0] / sum(odds) * evidence(len(free), n_classes, FOUND)
    return (1 - trust) * first + trust * means


def nearest_share(texts: np.ndarray, means: np.ndarray, share: float) -> np.ndarray:
    """Return which texts are the ``share`` that is nearest to the means."""
    best = nearness(texts, means).max(axis=1)
    return best >= (np.quantile(best, 1 - share) if len(best) else 0)


def evidence(n: int, n_classes: int, of_class: float = WEIGHT) -> float:
    """Weight of what n texts say about classes, each of which counts as so many texts before.

    The neighbors of a text among few are of any class, and means of few texts are random.
    """
    return n / (n + of_class * n_classes)


def sums_of(
    texts: np.ndarray, codes: np.ndarray, weights: np.ndarray, n_classes: int
) -> np.ndarray:
    """Return the sum of the texts of each class; ``np.add.at`` takes twenty times as long."""
    n = len(texts)
    classes = csr_array((weights, codes, np.arange(n + 1)), shape=(n, n_classes))
    return np.asarray(classes.T @ texts)


def nearest_class(texts: np.ndarray, means: np.ndarray) -> np.ndarray:
    """Return the number of the class whose mean is nearest to each text."""
    return nearness(texts, means).argmax(axis=1)


def _weight_of_names(names: np.ndarray, labeled: np.ndarray, codes: np.ndarray) -> float:
    """Return how many labeled texts a name counts as.

    These are the odds that a labeled text is nearest to the name of its class, over the odds
    that it is nearest to one other text of its class, among one of each class. So names that
    contradict the labels do not count, and good ones count more where classes have no topic.
    """
    classes, codes = np.unique(codes, return_inverse=True)
    if len(classes) < 2:
        return 1.0
    members = [np.flatnonzero(codes == c) for c in range(len(classes))]
    right, times = np.zeros(len(codes)), np.zeros(len(codes))
    for i in range(min(EXAMPLES, max(map(len, members)))):
        examples = np.array([rows[i % len(rows)] for rows in members])
        rest = np.delete(np.arange(len(codes)), examples)
        right[rest] += nearest_class(labeled[rest], labeled[examples]) == codes[rest]
        times[rest] += 1
    judged = times > 0
    by_one = _odds(right[judged] / times[judged], codes[judged], len(classes), KNOWN)
    by_names = nearest_class(labeled, names[classes]) == codes
    return max(_odds(by_names, codes, len(classes), UNKNOWN) / by_one, LEAST)


def _odds(right: np.ndarray, codes: np.ndarray, n_classes: int, before: float) -> float:
    """Return the odds of being right beyond chance, where PRIOR more texts are so ``before``.

    Classes count alike: the skill is 0 by chance, and 1 if all is right.
    """
    n, skill = len(codes), 0.0
    if n:
        share = np.average(right, weights=1 / np.bincount(codes)[codes])
        skill = max(0.0, float(share * n_classes - 1) / (n_classes - 1))
    return (n * skill + PRIOR * before) / (n * (1 - skill) + PRIOR * (1 - before))
