"""How many of the nearest pairs are false, by pairs that are false for certain.

In a list that has each thing once, no two records are partners. So pairs of mutual nearest
records *within* a list show how similar two different things of this kind are: variants of one
product, or unrelated texts. These are the decoys (Elias & Gygi, 2007, "Target-Decoy Search
Strategy"). Records of one list may also share a style, or a series of products, and then their
decoys are more similar than false pairs of both lists. The *next* pairs show by how much: those
that are mutual nearest ones when the nearest pairs are left out, of both lists and within each.
"""

from typing import NamedTuple

import numpy as np

# Quantiles of the decoys below which pairs are taken as false: of many true pairs some are as
# similar as decoys, fewer below the smaller one; of few pairs the larger one is more exact.
BELOW = np.array([0.25, 0.5])
DEVIATIONS = 2  # by which the number of pairs, or the mean of few, may be off


class Decoys(NamedTuple):
    """Scores of pairs of one list of ``size`` records, which are false."""

    nearest: np.ndarray
    others: np.ndarray  # the next pairs
    size: int

    def as_of_both(self, others: np.ndarray, n_true: float) -> np.ndarray:
        """Return the scores that the nearest pairs would have as pairs of both lists.

        ``others`` are the next pairs of both. The next pair of a record with a partner is its
        nearest false one, as the nearest pair is within the list; that of another record is the
        next in either. So the next pairs of both are a mixture of both kinds, but for the style
        of the list, which a line undoes. It has their mean and standard deviation. Pairs of a
        list count as less similar only as far as is certain, by two standard errors.
        """
        share, n = min(n_true / self.size, 1.0), len(others)
        own = np.concatenate([self.nearest, self.others])
        weights = np.repeat([share, 1 - share], [len(self.nearest), len(self.others)])
        if n < 2 or not weights.any():
            return self.nearest
        mean = np.average(own, weights=weights)
        deviation = np.sqrt(np.average((own - mean) ** 2, weights=weights))
        slope = others.std() / deviation if deviation > 0 else 1.0
        scores = others.mean() + slope * (self.nearest - mean)
        lowered = self.nearest.mean() - scores.mean()
        error = DEVIATIONS * others.std() / np.sqrt(n)
        if 0 <= lowered <= error:
            return self.nearest
        return scores + error if lowered > error else scores


def q_values(nearest: np.ndarray, others: np.ndarray, lists: list[Decoys]) -> np.ndarray:
    """Least false discovery rate at which each pair is listed, in (0, 1].

    ``nearest`` are scores of mutual nearest pairs of both lists, and ``others`` of the next
    ones. As large a share of the false pairs as of the decoys is below a score (Storey, 2002).
    The decoys depend on the number of true pairs, and this on the decoys, so they are estimated
    in turn, from no true pair on, while the number grows. The rank among decoys is a conformal
    p-value, for which the rule of Benjamini & Hochberg holds (Bates et al., 2023).
    """
    most, n_true, more = most_false(len(nearest), lists), -1.0, 0.0
    while more > n_true:
        n_true, n_false = more, most
        decoys = np.sort(np.concatenate([own.as_of_both(others, n_true) for own in lists]))
        if len(decoys):
            n_below = np.searchsorted(np.sort(nearest), np.quantile(decoys, BELOW))
            n_false = min(most, *(1 + n_below) / BELOW)
        more = len(nearest) - n_false
    order = np.argsort(-nearest, kind="stable")
    n_reach = len(decoys) - np.searchsorted(decoys, nearest[order], side="left")
    expected = max(n_false, 1) * (1 + n_reach) / (1 + len(decoys))
    rates = np.minimum(expected / np.arange(1, len(nearest) + 1), 1.0)
    q = np.empty(len(nearest))
    q[order] = np.minimum.accumulate(rates[::-1])[::-1]
    return q


def most_false(n_pairs: int, lists: list[Decoys]) -> float:
    """Return the largest number of false ones among mutual nearest pairs of two lists.

    With p partners, records without one make ``share * 2 (a - p) (b - p) / (a + b)`` pairs,
    where a and b are the sizes: each is a mutual nearest one for as large a share of them as
    within the lists, and both are without partner. The fewest partners count with which the
    number of pairs is at most two standard deviations above the expected one.
    """
    sizes = [own.size for own in lists]
    share = sum(2 * len(own.nearest) / own.size for own in lists) / len(lists)
    partners = np.arange(min(n_pairs, *sizes) + 1)
    false = 2 * share * (sizes[0] - partners) * (sizes[1] - partners) / sum(sizes)
    may_be = partners + false + DEVIATIONS * np.sqrt(false) >= n_pairs
    return float(n_pairs - partners[may_be.argmax() if may_be.any() else -1])
