"""Means of classes, from their names, a few labeled texts and many without labels."""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from scipy.sparse import csr_array
from scipy.sparse.csgraph import connected_components
from sklearn.model_selection import KFold

from skcalib.cosines import above, nearness
from skcalib.inputs.vectors import unit_rows

ROUNDS = 3
WEIGHT = 10.0  # texts that a name or a labeled text counts as
FOLDS = 10
LEAST = 1e-3  # weight of a name, so that no class is without any
NEAR = 0.9  # cosine of near-copies, beside the mean of all texts


def evidence(n: int, n_classes: int) -> float:
    """Weight of what n texts say about classes, each of which begins with ten texts' weight.

    The neighbors of a text among few are of any class, and means of few texts are random.
    """
    return n / (n + WEIGHT * n_classes)


def class_means(
    texts: np.ndarray,
    names: np.ndarray | None,
    rows: np.ndarray,
    codes: np.ndarray,
    share: float = 1.0,
) -> np.ndarray:
    """Return the means of classes, (n_classes, d).

    A class begins as the mean of its examples: its name and its labeled texts. Then, three
    times, it becomes the mean of these, each counted as ten texts (a name as fewer, see
    `_weight_of_names`), and of the texts without label that are nearer to it than to any other
    class. Of these, only the ``share`` that is nearest to the examples counts: the others may
    belong to no class. Returned is a mean of both ends, see `_trust` and `evidence`. ``codes``
    are the classes of texts ``rows``: each class has a text if there are no ``names``.
    """
    free = np.delete(texts, rows, axis=0)
    vectors, weights = texts[rows], np.full(len(rows), WEIGHT)
    if names is not None:
        of_names = np.full(len(names), WEIGHT * _weight_of_names(names, vectors, codes))
        vectors, weights = np.concatenate([names, vectors]), np.r_[of_names, weights]
        codes = np.r_[: len(names), codes]
    examples = Examples(vectors, codes, weights)
    if share < 1 and len(free):
        best = nearness(free, examples.means()).max(axis=1)
        free = free[best >= np.quantile(best, 1 - share)]
    (first, before), (last, after) = _ends(examples, free)
    trust = _trust(_kappa(before, after)) * evidence(len(free), len(first))
    return (1 - trust) * first + trust * last


class Examples(NamedTuple):
    """Names and labeled texts, with the class and the weight of each."""

    vectors: np.ndarray
    codes: np.ndarray
    weights: np.ndarray

    def means(self) -> np.ndarray:
        """Return the weighted mean of each class."""
        weight = np.bincount(self.codes, self.weights)
        return _sums(*self, len(weight)) / weight[:, None]


def _weight_of_names(names: np.ndarray, labeled: np.ndarray, codes: np.ndarray) -> float:
    """Weight of a name compared with a labeled text, in (0, 1].

    A name such as "positive" may be far from the texts of its class. So each labeled text is
    left out, and classified by the others with and without the names. The weight is the share
    of the texts that only the names bring into their class, of those for which the names make a
    difference, and of one more: without any difference, a name counts as a text. It counts
    less, too, where names alone classify these texts worse than labels alone do: labels that
    contradict the names outvote them, text by text.
    """
    counts = np.bincount(codes, minlength=len(names))
    if counts.min() == 0 or counts.max() == 1 or len(names) == 1:
        return 1.0
    sums, judged = _sums(labeled, codes, np.ones(len(codes)), len(names)), counts[codes] > 1
    right = []
    for weight in (1.0, 0.0):
        totals = weight + counts
        means = (weight * names + sums) / totals[:, None]
        scores = nearness(labeled, means)
        own = totals[codes] - 1
        left_out = ((means * totals[:, None])[codes] - labeled) / np.maximum(own, 1e-9)[:, None]
        place = np.arange(len(codes)), codes
        scores[place] = (labeled * left_out).sum(axis=1) - (left_out**2).sum(axis=1) / 2
        right.append((scores.argmax(axis=1) == codes)[judged])
    both, alone = right
    won, lost = np.sum(both & ~alone), np.sum(~both & alone)
    by_names = _beyond_chance((_nearest(labeled, names) == codes)[judged], len(names))
    contradicted = min(1.0, by_names / max(_beyond_chance(alone, len(names)), LEAST))
    return max(contradicted * float((1 + won) / (1 + won + lost)), LEAST)


def _beyond_chance(right: np.ndarray, n_classes: int) -> float:
    """Share of texts in their class beyond that of chance, with one more that is."""
    share = (1 + right.sum()) / (1 + len(right))
    return max(0.0, (share * n_classes - 1) / (n_classes - 1))


def _ends(
    examples: Examples, free: np.ndarray
) -> tuple[tuple[np.ndarray, np.ndarray], tuple[np.ndarray, np.ndarray]]:
    """Return the means of classes, and the class of each text, before and after the rounds."""
    n_classes = examples.codes.max() + 1
    sums, weight = _sums(*examples, n_classes), np.bincount(examples.codes, examples.weights)
    means = sums / weight[:, None]
    nearest = _nearest(free, means)
    first = means, nearest
    for _ in range(ROUNDS):
        counts = np.bincount(nearest, minlength=n_classes)
        of_free = _sums(free, nearest, np.ones(len(free)), n_classes)
        means = (sums + of_free) / (weight + counts)[:, None]
        nearest = _nearest(free, means)
    return first, (means, nearest)


def _trust(kappa: float) -> float:
    """Weight of the means after the rounds, in [0, 1].

    Classes that are no topics, such as feelings, are pulled toward topics. Then many texts
    change their class. The odds are those that a text keeps it rather than changes it, beyond
    what chance would keep (Cohen's ``kappa``), once for each round.
    """
    kept, changed = max(0.0, kappa) ** ROUNDS, min(1.0, 1 - kappa) ** ROUNDS
    return kept / (kept + changed)


def _sums(
    texts: np.ndarray, codes: np.ndarray, weights: np.ndarray, n_classes: int
) -> np.ndarray:
    """Return the sum of the texts of each class; ``np.add.at`` takes twenty times as long."""
    n = len(texts)
    classes = csr_array((weights, codes, np.arange(n + 1)), shape=(n, n_classes))
    return np.asarray(classes.T @ texts)


def _nearest(texts: np.ndarray, means: np.ndarray) -> np.ndarray:
    return nearness(texts, means).argmax(axis=1)


def _kappa(some: np.ndarray, others: np.ndarray) -> float:
    """Agreement of two assignments of texts to classes, beyond that of chance; 1 if equal."""
    if (some == others).all():
        return 1.0
    n = max(some.max(), others.max()) + 1
    shares = [np.bincount(codes, minlength=n) / len(codes) for codes in (some, others)]
    by_chance = shares[0] @ shares[1]
    return float((np.mean(some == others) - by_chance) / (1 - by_chance))


def near_copies(vectors: np.ndarray) -> np.ndarray:
    """Group of each vector, from 0 in their order: near-copies, also by way of others.

    If all are near-copies of one text, each is a group, since nothing else distinguishes them.
    """
    unit = unit_rows(vectors - vectors.mean(axis=0))[0].astype(np.float32)
    groups, n = np.arange(len(unit)), len(unit)
    for i, j, _ in above(unit, NEAR):  # one block after the other, as copies make many pairs
        pairs = csr_array((np.ones(len(i)), (groups[i], groups[j])), shape=(n, n))
        groups = connected_components(pairs, directed=False)[1][groups]
    return np.unique(groups, return_inverse=True)[1] if groups.any() else np.arange(n)


def cosines_of_others(
    groups: np.ndarray,
    without: Callable[[np.ndarray], tuple[np.ndarray, np.ndarray | None]],
    raw: np.ndarray,
    rows: np.ndarray,
    codes: np.ndarray,
    share: float,
) -> np.ndarray:
    """Each text's `best_cosines` with classes that were made without its group.

    A text pulls its class toward itself, so with itself it would seem nearer than a new one.
    ``without`` returns the vectors of texts and names after a fit on some of the rows only.
    """
    n, n_groups = len(groups), groups.max() + 1
    best = np.full((n, 2), -np.inf)
    folds = KFold(min(FOLDS, n_groups), shuffle=True, random_state=0)
    for _, groups_out in folds.split(np.arange(n_groups)):
        is_out = np.isin(groups, groups_out)
        kept, left_out = np.flatnonzero(~is_out), np.flatnonzero(is_out)
        texts, names = without(kept)
        place = np.full(n, -1)
        place[kept] = np.arange(len(kept))
        stays = place[rows] >= 0
        of_fold = codes[stays]
        if names is None:  # a class all of whose labels are left out is left out, too
            of_fold = np.unique(of_fold, return_inverse=True)[1]
        if names is not None or stays.any():
            means = class_means(texts[kept], names, place[rows[stays]], of_fold, share)
            of_raw = raw_means(raw[kept], texts[kept], means)
            best[left_out] = best_cosines(texts[left_out], raw[left_out], means, of_raw)
    return best


def raw_means(raw: np.ndarray, texts: np.ndarray, means: np.ndarray) -> np.ndarray:
    """Means of the raw vectors of the texts of each class, of classes that have any."""
    nearest = _nearest(texts, means)
    sums = _sums(unit_rows(raw)[0], nearest, np.ones(len(raw)), len(means))
    return sums[np.unique(nearest)]


def best_cosines(
    texts: np.ndarray, raw: np.ndarray, means: np.ndarray, of_raw: np.ndarray
) -> np.ndarray:
    """Largest cosines of each text to a class mean, calibrated and raw, (n, 2).

    Unlike a score, they are small for a text like none of the classes, also if a mean is short.
    A calibration subtracts what all fitted texts have in common, by which raw vectors of
    another domain differ from them. Of ``texts`` and ``means`` the first half counts.
    """
    width = texts.shape[1] // 2
    pairs = (texts[:, :width], means[:, :width]), (raw, of_raw)
    cosines = [(unit_rows(x)[0] @ unit_rows(y)[0].T).max(axis=1) for x, y in pairs]
    return np.column_stack(cosines)


class Standard(NamedTuple):
    """Mean of two cosines, each in standard deviations from its mean over the fitted texts."""

    center: np.ndarray
    scale: np.ndarray

    @classmethod
    def of(cls, cosines: np.ndarray) -> "Standard":
        """Learn means and deviations; texts without a class to compare with do not count."""
        known = cosines[np.isfinite(cosines[:, 0])]
        if not len(known):
            return cls(np.zeros(2), np.ones(2))
        deviation = known.std(axis=0)
        return cls(known.mean(axis=0), np.where(deviation > 0, deviation, 1.0))

    def __call__(self, cosines: np.ndarray) -> np.ndarray:
        return ((cosines - self.center) / self.scale).mean(axis=1)
