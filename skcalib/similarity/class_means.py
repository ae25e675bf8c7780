"""Means of classes, from their names, a few labeled texts and many without labels."""

import numpy as np
from scipy.sparse import csr_array
from sklearn.metrics import cohen_kappa_score

from skcalib.cosines import nearness

ROUNDS = 3
WEIGHT = 10.0  # texts that a name or a labeled text counts as
LEAST = 1e-3  # weight of a name, so that no class is without any
LEAST_SKILL = 0.05  # of labels alone, so that a name counts as 200 texts at most
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
    if share < 1 and len(free):
        best = nearness(free, means).max(axis=1)
        free = free[best >= np.quantile(best, 1 - share)]
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
    """Return the weight of a name compared with a labeled text.

    Each labeled text is left out, and classified by the others with and without the names. The
    weight is the share of the texts that only the names bring into their class, of those for
    which the names make a difference, and of one more. It is multiplied by how well names alone
    classify these texts, beyond chance, over how well labels alone do: labels that contradict
    good names mislead, and good labels outvote the names.
    """
    n_classes, counts = len(names), np.bincount(codes, minlength=len(names))
    if counts.min() == 0 or counts.max() == 1 or n_classes == 1:
        return 1.0
    of_labels = sums_of(labeled, codes, np.ones(len(codes)), n_classes)
    judged, right = counts[codes] > 1, []
    for weight in (1.0, 0.0):
        sums, totals = weight * names + of_labels, weight + counts
        scores = nearness(labeled, sums / totals[:, None])
        # A text is compared with the mean of the others of its class.
        n_others = np.maximum(totals[codes] - 1, 1e-9)
        others = (sums[codes] - labeled) / n_others[:, None]
        of_class = (labeled * others).sum(axis=1) - (others**2).sum(axis=1) / 2
        scores[np.arange(len(codes)), codes] = of_class
        right.append((scores.argmax(axis=1) == codes)[judged])
    with_names, without = right
    won, lost = np.sum(with_names & ~without), np.sum(~with_names & without)
    by_names = _beyond_chance((nearest_class(labeled, names) == codes)[judged], n_classes)
    by_labels = max(_beyond_chance(without, n_classes), LEAST_SKILL)
    return max(by_names / by_labels * float((1 + won) / (1 + won + lost)), LEAST)


def _beyond_chance(right: np.ndarray, n_classes: int) -> float:
    """Return the share of right classes beyond that of chance, with one more that is right."""
    share = (1 + right.sum()) / (1 + len(right))
    return max(0.0, (share * n_classes - 1) / (n_classes - 1))
