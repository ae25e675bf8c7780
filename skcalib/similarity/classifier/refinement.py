"""Means of classes, from their names, a few labeled texts and many without labels."""

from dataclasses import dataclass
from typing import Self

import numpy as np
from scipy.sparse import csr_array

from skcalib.calibration.neighbors import NeighborSmoothing, smoothed
from skcalib.cosines import nearness
from skcalib.inputs.vectors import unit_rows

ROUNDS = 3
WEIGHT = 10.0  # texts that a name or a labeled text counts as
LEAST = 1e-3  # weight of a name, so that no class is without any
LEAST_SKILL = 0.05  # of labels alone, so that a name counts as 200 texts at most
NEIGHBORS = 10  # whose mean smooths a text, at most
# Texts of a class whose mean counts as much as its examples do: the rounds may find other
# groups than those that are named. By names alone 100 instead of 10 gains 0.3 points on average
# over the sets of the page on classes, and 2.2 on three others.
FOUND = 100.0


def evidence(n: int, n_classes: int, of_class: float = WEIGHT) -> float:
    """Weight of what n texts say about classes, each of which counts as so many texts before.

    The neighbors of a text among few are of any class, and means of few texts are random.
    """
    return n / (n + of_class * n_classes)


@dataclass(frozen=True)
class Pool:
    """Texts and names of classes, side by side with the same smoothed: see `side_by_side`."""

    vectors: np.ndarray
    names: np.ndarray | None
    smoothing: NeighborSmoothing
    texts: np.ndarray  # (n, 2 d)
    of_names: np.ndarray | None  # (n_classes, 2 d)
    is_frozen: bool  # whether the vectors of a text do not depend on the others

    @classmethod
    def fitted(
        cls, vectors: np.ndarray, names: np.ndarray | None, n_classes: int, is_frozen: bool
    ) -> Self:
        """Fit the smoothing, and move the names to the mean of the texts."""
        weight, k = evidence(len(vectors), n_classes), min(NEIGHBORS, max(len(vectors) - 1, 1))
        smoothing = NeighborSmoothing(k, weight=weight).fit(vectors)
        if names is not None and len(names) > 1:  # another kind of text, with its own mean
            names = names + vectors.mean(axis=0) - names.mean(axis=0)
        of_names = None if names is None else side_by_side(names, smoothing)
        texts = side_by_side(vectors, smoothing)
        return cls(vectors, names, smoothing, texts, of_names, is_frozen)

    def without(self, kept: np.ndarray) -> tuple[np.ndarray, np.ndarray | None]:
        """Texts and names with the mean of the kept ones: a text that is judged pulls it."""
        shift = self.vectors[kept].mean(axis=0) - self.vectors.mean(axis=0)
        if not self.is_frozen:  # the mean is the origin of the vectors
            moved = unit_rows(self.vectors - shift)[0]
            return np.hstack([moved, self.texts[:, moved.shape[1] :]]), self.of_names
        if self.names is None or len(self.names) == 1:
            return self.texts, self.of_names
        return self.texts, side_by_side(self.names + shift, self.smoothing)


def side_by_side(vectors: np.ndarray, smoothing: NeighborSmoothing) -> np.ndarray:
    """Return vectors of unit length, and in further columns the same smoothed."""
    unit = unit_rows(vectors)[0]
    return np.hstack([unit, smoothed(smoothing, unit)])


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
    trust = _trust(_kappa(before, nearest)) * evidence(len(free), n_classes, FOUND)
    return (1 - trust) * first + trust * means


def _weight_of_names(names: np.ndarray, labeled: np.ndarray, codes: np.ndarray) -> float:
    """Weight of a name compared with a labeled text.

    A name such as "positive" may be far from the texts of its class. So each labeled text is
    left out, and classified by the others with and without the names. The weight is the share
    of the texts that only the names bring into their class, of those for which the names make a
    difference, and of one more: without any difference, a name counts as a text. This is
    multiplied by how well names alone classify these texts, beyond chance, over how well labels
    alone do: labels that contradict good names mislead, and good labels outvote the names.
    """
    counts = np.bincount(codes, minlength=len(names))
    if counts.min() == 0 or counts.max() == 1 or len(names) == 1:
        return 1.0
    sums, judged = sums_of(labeled, codes, np.ones(len(codes)), len(names)), counts[codes] > 1
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
    with_names, without = right
    won, lost = np.sum(with_names & ~without), np.sum(~with_names & without)
    by_names = _beyond_chance((nearest_class(labeled, names) == codes)[judged], len(names))
    by_labels = max(_beyond_chance(without, len(names)), LEAST_SKILL)
    return max(by_names / by_labels * float((1 + won) / (1 + won + lost)), LEAST)


def _beyond_chance(right: np.ndarray, n_classes: int) -> float:
    """Share of texts in their class beyond that of chance, with one more that is."""
    share = (1 + right.sum()) / (1 + len(right))
    return max(0.0, (share * n_classes - 1) / (n_classes - 1))


def _trust(kappa: float) -> float:
    """Weight of the means after the rounds, in [0, 1].

    Classes that are no topics, such as feelings, are pulled toward topics. Then many texts
    change their class. The odds are those that a text keeps it rather than changes it, beyond
    what chance would keep (Cohen's ``kappa``), once for each round.
    """
    kept, changed = max(0.0, kappa) ** ROUNDS, min(1.0, 1 - kappa) ** ROUNDS
    return kept / (kept + changed)


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


def _kappa(first: np.ndarray, second: np.ndarray) -> float:
    """Agreement of two assignments of texts to classes, beyond that of chance; 1 if equal."""
    if (first == second).all():
        return 1.0
    n = max(first.max(), second.max()) + 1
    shares = [np.bincount(codes, minlength=n) / len(codes) for codes in (first, second)]
    by_chance = shares[0] @ shares[1]
    return float((np.mean(first == second) - by_chance) / (1 - by_chance))
