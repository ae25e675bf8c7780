"""How many of the nearest pairs are false, by pairs that are false for certain.

In a list that has each thing once, no two records are partners. So pairs of mutual nearest
records *within* a list show how similar two different things of this kind are: variants of one
product, or unrelated texts. These are the decoys (Elias & Gygi, 2007, "Target-Decoy Search
Strategy").
"""

import numpy as np

MIDDLE = 0.5  # quantile of the decoys, below which nearest pairs are taken as false


def q_values(scores: np.ndarray, decoys: list[np.ndarray], sizes: list[int]) -> np.ndarray:
    """Least false discovery rate at which each pair is listed, in (0, 1].

    ``scores`` are those of mutual nearest pairs of both lists, and ``decoys`` those within
    either list of these ``sizes``. The rank among decoys is a conformal
    p-value, for which the rule of Benjamini & Hochberg holds (Bates et al., 2023).
    """
    of_decoys = np.sort(np.concatenate(decoys))
    n_false = number_of_false(scores, of_decoys, [len(d) for d in decoys], sizes)
    order = np.argsort(-scores, kind="stable")
    n_reach = len(of_decoys) - np.searchsorted(of_decoys, scores[order], side="left")
    expected = n_false * (1 + n_reach) / (1 + len(of_decoys))
    rates = np.minimum(expected / np.arange(1, len(scores) + 1), 1.0)
    q = np.empty(len(scores))
    q[order] = np.minimum.accumulate(rates[::-1])[::-1]
    return q


def number_of_false(
    scores: np.ndarray, of_decoys: np.ndarray, n_decoys: list[int], sizes: list[int]
) -> float:
    """Estimate how many pairs are false, at least 1: the smaller number by two rules.

    Pairs below the middle of the decoys are false (Storey, 2002). And without any partner, a
    share of the records would have a mutual nearest one, as within the lists; if more have, the
    others have a partner, and the false pairs are those of records without, in both lists.
    """
    fewest, most = min(sizes), max(sizes)
    share = sum(2 * n / size for n, size in zip(n_decoys, sizes, strict=True)) / len(sizes)
    # A record of the shorter list is the nearest of more than one of its own kind.
    by_chance = min(2 * share * most / (most + fewest), 1 - 1 / fewest)
    n_false = fewest * by_chance * min((1 - len(scores) / fewest) / (1 - by_chance), 1.0)
    n_false *= 1 - max(len(scores) - n_false, 0.0) / most
    if not len(of_decoys):
        return max(float(n_false), 1.0)
    n_below = np.count_nonzero(scores < np.quantile(of_decoys, MIDDLE))
    return max(float(min(n_false, (1 + n_below) / MIDDLE)), 1.0)
