"""Scores of pairs of records, and pairs that are each other's best.

A similarity counts by how far it stands out among those of either record: a record with many
near ones, as a hub or the variants of a product have, needs a larger one. This is the symmetric
normalization of scores of speaker verification (Kenny, 2010, "Bayesian Speaker Verification
with Heavy-Tailed Priors").
"""

from dataclasses import dataclass, replace
from typing import Any, NamedTuple, Self

import numpy as np
from scipy.sparse import csr_array

from skcalib.cosines import EQUAL, blocks, nearest, nearest_in_order, of_pairs
from skcalib.similarity.matcher.spelling import nearest_spelled, spelled_alike

NEAREST = 10  # records that are compared with each
SAMPLE = 2000  # records at most, among whose cosines one stands out


class Records(NamedTuple):
    """A list: unit vectors (float32), rows of n-grams if it has texts, and keys of details."""

    vectors: np.ndarray
    n_grams: csr_array | None
    keys: np.ndarray

    def sample(self) -> "Records":
        """Return `SAMPLE` records at most, in random order."""
        rows = np.random.default_rng(0).permutation(len(self.vectors))[:SAMPLE]
        n_grams = None if self.n_grams is None else self.n_grams[rows]
        return Records(self.vectors[rows], n_grams, self.keys[rows])


class Usual(NamedTuple):
    """Mean and standard deviation of each record's cosines, without the largest."""

    mean: np.ndarray
    deviation: np.ndarray

    @classmethod
    def of(cls, vectors: np.ndarray, sample: np.ndarray, n_left_out: int) -> Self:
        """Leave out the cosine with a partner, and with itself."""
        mean, deviation = np.empty(len(vectors)), np.empty(len(vectors))
        for rows, _, cosines in blocks(vectors, sample, whole=True):
            kept = np.partition(cosines, -n_left_out, axis=1)[:, :-n_left_out]
            mean[rows] = kept.mean(axis=1, dtype=np.float64)
            deviation[rows] = kept.std(axis=1, dtype=np.float64)
        return cls(mean, np.maximum(deviation, 1 - EQUAL))


@dataclass(frozen=True)
class PairScores:
    """Scores of pairs of two lists, or of one list with itself."""

    usual: tuple[Usual, Usual]
    alike: float = 0.0  # mean product of n-grams
    spread: float = 1.0  # its standard deviation
    weight: float = 0.0  # of n-grams

    @classmethod
    def fitted(cls, first: Records, second: Records, like: Any = None) -> Self:
        """Learn what is usual; in one list, n-grams count as in two, ``like``."""
        samples, n_left_out = (first.sample(), second.sample()), 1 + (first is second)
        usual = (
            Usual.of(first.vectors, samples[1].vectors, n_left_out),
            Usual.of(second.vectors, samples[0].vectors, n_left_out),
        )
        one, other = (sample.n_grams for sample in samples)
        if one is None or other is None:
            return cls(usual)
        products = (one @ other.T).toarray()
        others = products[np.eye(*products.shape) == 0]  # not with itself
        alike = float(others.mean(dtype=np.float64))
        if like is not None:
            return cls(usual, alike, like.spread, like.weight)
        spread = max(float(others.std(dtype=np.float64)), 1 - EQUAL)
        sides = (samples[0], second), (samples[1], first)  # so that their order does not matter
        of_near = np.concatenate([_of_nearest(*side) for side in sides])
        distance = (of_near.mean() - alike) / np.sqrt((spread**2 + of_near.var()) / 2)
        weight = max(distance, 0.0) ** 4 / (1 + distance**4)
        return cls(usual, alike, spread, float(weight))

    def of_new(self, new: Records, second: Records) -> Self:
        """Return scores of new records with the second list of a fit."""
        usual = Usual.of(new.vectors, second.sample().vectors, 1), self.usual[1]
        return replace(self, usual=usual)

    def of_pairs(
        self, one: Records, i: np.ndarray, other: Records, j: np.ndarray
    ) -> np.ndarray:
        """Return the scores of the rows ``i`` of a list with ``j`` of another."""
        cosines = of_pairs(one.vectors, i, other.vectors, j)
        # Fisher's z, in which a cosine of .99 is as far from .9 as .9 is from 0.
        z = np.arctanh(np.clip(cosines, -EQUAL, EQUAL))
        scores = np.zeros(len(i))
        for usual, rows in zip(self.usual, (i, j), strict=True):
            scores += (z - usual.mean[rows]) / (2 * usual.deviation[rows])
        if self.weight > 0:
            alike = spelled_alike(one.n_grams, i, other.n_grams, j) - self.alike
            scores += self.weight * alike / self.spread
        return scores

    def best(
        self, one: Records, other: Records, i: np.ndarray, j: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return each pair with equal details once, and its score."""
        i, j = np.divmod(np.unique(i * len(other.keys) + j), len(other.keys))
        equal = one.keys[i] == other.keys[j]
        i, j = i[equal], j[equal]
        return i, j, self.of_pairs(one, i, other, j)


def _of_nearest(asking: Records, among: Records) -> np.ndarray:
    """Return the product of n-grams of each record with the nearest one by vectors."""
    near = nearest(asking.vectors, among.vectors, 1)[1][:, 0]
    return spelled_alike(asking.n_grams, np.arange(len(near)), among.n_grams, near)


def candidates(
    asking: Records, among: Records, index: Any = None, *, same: bool = False
) -> tuple[np.ndarray, np.ndarray]:
    """Return rows and columns of pairs to compare: the nearest by vectors and by n-grams.

    ``index`` replaces the search by vectors, and no n-grams are searched. With ``same``, both
    are one list, and no record is paired with itself.
    """
    k = min(NEAREST + same, len(among.vectors))
    found = [nearest_in_order(asking.vectors, among.vectors, k, index)[1]]
    if among.n_grams is not None and index is None:
        found.append(nearest_spelled(asking.n_grams, among.n_grams, k))
    columns = np.hstack(found).ravel()
    rows = np.repeat(np.arange(len(asking.vectors)), k * len(found))
    kept = columns >= 0
    if same:  # both ways, since each of two may be near to the other alone
        kept &= rows != columns
        rows, columns = np.hstack([[rows, columns], [columns, rows]])[:, np.tile(kept, 2)]
        return rows, columns
    return rows[kept], columns[kept]


def mutual_pairs(
    i: np.ndarray, j: np.ndarray, scores: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Return the places of mutual nearest pairs, and of those without the former, the next."""
    nearest = _mutual(i, j, scores)
    rest = np.delete(np.arange(len(scores)), nearest)
    return nearest, rest[_mutual(i[rest], j[rest], scores[rest])]


def _mutual(i: np.ndarray, j: np.ndarray, scores: np.ndarray) -> np.ndarray:
    """Return the places of the pairs that are the best of their row and of their column.

    Of ties the first pair counts.
    """
    order = np.lexsort((j, i, -scores))
    of_rows, of_columns = (np.unique(at[order], return_index=True)[1] for at in (i, j))
    return order[np.intersect1d(of_rows, of_columns)]
