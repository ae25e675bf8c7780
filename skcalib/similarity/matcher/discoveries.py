"""How many of the nearest pairs are false, by pairs that are false for certain.

In a list that has each thing once, no two records are partners. So pairs of mutual nearest
records *within* a list show how similar two different things of this kind are: variants of one
product, or unrelated texts. These are the decoys (Elias & Gygi, 2007, "Target-Decoy Search
Strategy").
"""

import numpy as np

# Quantiles of the decoys below which pairs are taken as false: of few partners the larger one
# is more exact, and of many, some of which are as similar as decoys, the smaller one.
BELOW = np.array([0.5, 0.75])
DEVIATIONS = 2  # by which the number of pairs may be above the expected one


def q_values(scores: np.ndarray, decoys: list[np.ndarray], sizes: list[int]) -> np.ndarray:
    """Least false discovery rate at which each pair is listed, in (0, 1].

    ``scores`` are those of mutual nearest pairs of both lists, and ``decoys`` those within
    either list of these ``sizes``. The rank among decoys is a conformal p-value, for which the
    rule of Benjamini & Hochberg holds (Bates et al., 2023). The number of false pairs is the
    least of `most_false` and of those that the pairs below a quantile of the decoys, which are
    false, lead to (Storey, 2002).
    """
    of_decoys = np.sort(np.concatenate(decoys))
    n_false = most_false(len(scores), [len(d) for d in decoys], sizes)
    if len(of_decoys):
        n_below = np.searchsorted(np.sort(scores), np.quantile(of_decoys, BELOW))
        n_false = min(n_false, *(1 + n_below) / BELOW)
    order = np.argsort(-scores, kind="stable")
    n_reach = len(of_decoys) - np.searchsorted(of_decoys, scores[order], side="left")
    expected = max(n_false, 1) * (1 + n_reach) / (1 + len(of_decoys))
    rates = np.minimum(expected / np.arange(1, len(scores) + 1), 1.0)
    q = np.empty(len(scores))
    q[order] = np.minimum.accumulate(rates[::-1])[::-1]
    return q


def most_false(n_pairs: int, n_decoys: list[int], sizes: list[int]) -> int:
    """Return the largest number of false ones among mutual nearest pairs of two lists.

    With p partners, records without one make ``share * 2 (a - p) (b - p) / (a + b)`` pairs,
    where a and b are the sizes: each is a mutual nearest one for as large a share of them as
    within the lists, and both are without partner. The fewest partners count with which the
    number of pairs is at most two standard deviations above the expected one.
    """
    share = sum(2 * n / size for n, size in zip(n_decoys, sizes, strict=True)) / len(sizes)
    partners = np.arange(min(n_pairs, *sizes) + 1)
    false = 2 * share * (sizes[0] - partners) * (sizes[1] - partners) / sum(sizes)
    may_be = partners + false + DEVIATIONS * np.sqrt(false) >= n_pairs
    return int(n_pairs - partners[may_be.argmax() if may_be.any() else -1])


def likeness(across: np.ndarray, within: np.ndarray, ratio: float, partners: float) -> float:
    """How similar records are to those of the other list, over those of their own.

    ``across`` and ``within`` have the mean scores of the nearest record, the second nearest and
    so on. In a list that is ``ratio`` times as large as the other, a rank in the other is as
    far as so many ranks in the own. A share of records has ``partners``, which are nearest, so
    that the others are a rank later. It is below 1 where lists differ in style.
    """
    rank = np.arange(2, len(across) + 1)
    first, last = (rank - 1) * ratio, rank * ratio
    known = (first > 1 - 1e-9) & (last <= len(within))
    own = np.arange(1, len(within) + 1)
    later, same = (np.interp(at[known], own, within).sum() for at in (first, last))
    found, expected = across[1:][known].sum(), partners * later + (1 - partners) * same
    return float(found / expected) if min(found, expected) > 0 else 1.0
