"""Means of classes, from their names, a few labelled texts and many without labels."""

from collections.abc import Callable

import numpy as np
from sklearn.model_selection import KFold

from skcalib.utils.vectors import unit_rows

ROUNDS = 3
WEIGHT = 10.0  # texts that a name or a labelled text counts as
FOLDS = 10


def nearness(texts: np.ndarray, means: np.ndarray) -> np.ndarray:
    """``x·μ - |μ|²/2``, which is greatest for the mean nearest to x.

    Unlike a cosine, it gives a short mean little influence. The mean of a class with most of
    the texts, or with unrelated texts, is near that of all texts, and its direction is random.
    """
    return texts @ means.T - (means**2).sum(axis=1) / 2


def class_means(
    texts: np.ndarray, names: np.ndarray | None, rows: np.ndarray, codes: np.ndarray
) -> np.ndarray:
    """Return the means of classes, (n_classes, d).

    A class begins as the mean of its name and its labelled texts. Then, three times, it becomes
    the mean of these, each counted as ten texts, and of the texts without label that are nearer
    to it than to any other class. Returned is a mean of both ends, see `_trust`. ``codes`` are
    the classes of texts ``rows``: each class has a text if there are no ``names``.
    """
    n_classes = codes.max() + 1 if names is None else len(names)
    given = np.zeros((n_classes, texts.shape[1])) if names is None else WEIGHT * names
    np.add.at(given, codes, WEIGHT * texts[rows])
    weight = WEIGHT * ((names is not None) + np.bincount(codes, minlength=n_classes))
    free = np.delete(texts, rows, axis=0)
    first = means = given / weight[:, None]
    before = after = nearness(free, first).argmax(axis=1)
    for _ in range(ROUNDS):
        total = given.copy()
        np.add.at(total, after, free)
        means = total / (weight + np.bincount(after, minlength=n_classes))[:, None]
        after = nearness(free, means).argmax(axis=1)
    trust = _trust(before, after, n_classes)
    return (1 - trust) * first + trust * means


def _trust(before: np.ndarray, after: np.ndarray, n_classes: int) -> float:
    """Weight of the means after the rounds, in [0, 1], by texts' classes before and after.

    Classes that are no topics, such as feelings, are pulled toward topics. Then many texts
    change their class. The odds are those that a text keeps it rather than changes it, beyond
    what chance would keep (Cohen's kappa), once for each round.
    """
    shares = [np.bincount(c, minlength=n_classes) / max(len(c), 1) for c in (before, after)]
    by_chance = shares[0] @ shares[1]
    if (before == after).all():
        return 1.0
    kappa = max(0.0, (np.mean(before == after) - by_chance) / (1 - by_chance))
    return float(kappa**ROUNDS / (kappa**ROUNDS + (1 - kappa) ** ROUNDS))


def best_of_others(
    n: int,
    without: Callable[[np.ndarray], tuple[np.ndarray, np.ndarray | None]],
    rows: np.ndarray,
    codes: np.ndarray,
) -> np.ndarray:
    """Each of n texts' `best_cosines` with classes that were made without it.

    A text pulls its class toward itself, so with itself it would seem nearer than a new one.
    ``without`` returns the vectors of texts and names after a fit on some of the rows only.
    """
    best = np.full(n, -np.inf)
    folds = KFold(min(FOLDS, n), shuffle=True, random_state=0)
    for kept, left_out in folds.split(best):
        texts, names = without(kept)
        place = np.full(n, -1)
        place[kept] = np.arange(len(kept))
        stays = place[rows] >= 0
        of_fold = codes[stays]
        if names is None:  # a class all of whose labels are left out is left out, too
            of_fold = np.unique(of_fold, return_inverse=True)[1]
        if names is not None or stays.any():
            means = class_means(texts[kept], names, place[rows[stays]], of_fold)
            best[left_out] = best_cosines(texts[left_out], means)
    return best


def best_cosines(texts: np.ndarray, means: np.ndarray) -> np.ndarray:
    """Largest cosine of each text to a class mean, by the first half of the vectors.

    Unlike a score, it is small for a text like none of the classes, also if a mean is short.
    """
    width = texts.shape[1] // 2
    units, of_classes = (unit_rows(v[:, :width])[0] for v in (texts, means))
    return (units @ of_classes.T).max(axis=1)
