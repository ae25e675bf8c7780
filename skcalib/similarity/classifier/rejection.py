"""None of these: how similar texts are to classes that were made without them."""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from scipy.sparse import csr_matrix
from scipy.sparse.csgraph import connected_components
from sklearn.model_selection import KFold

from skcalib.cosines import above
from skcalib.inputs.vectors import unit_rows
from skcalib.similarity.classifier.refinement import class_means, nearest_class, sums_of

FOLDS = 10
NEAR = 0.9  # cosine of near-copies, after the mean of all texts is subtracted


def near_copies(vectors: np.ndarray) -> np.ndarray:
    """Group of each vector, from 0 in their order: near-copies, also by way of others.

    If all are near-copies of one text, each is a group, since nothing else distinguishes them.
    """
    unit = unit_rows(vectors - vectors.mean(axis=0))[0].astype(np.float32)
    groups, n = np.arange(len(unit)), len(unit)
    for i, j, _ in above(unit, NEAR):  # one block after the other, as copies make many pairs
        pairs = csr_matrix((np.ones(len(i)), (groups[i], groups[j])), shape=(n, n))
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
    nearest = nearest_class(texts, means)
    sums = sums_of(unit_rows(raw)[0], nearest, np.ones(len(raw)), len(means))
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


def limit(cosines: np.ndarray, groups: np.ndarray, rank: int) -> tuple[Standard, float]:
    """Return the standard of cosines, and the threshold: a rank among groups of texts."""
    of_each = cosines[np.unique(groups, return_index=True)[1]]  # of a text of each group
    standard = Standard.of(of_each)
    return standard, float(np.partition(standard(of_each), rank - 1)[rank - 1])
