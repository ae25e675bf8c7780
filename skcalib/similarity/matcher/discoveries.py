"""Which of many nearest pairs are true: false discovery rates without labels.

A record without a partner also has a nearest record in the other list. How far that one leads
over the second nearest shows in the leads further down: if the largest of many similarities
have an exponential tail, the k-th leads the next by 1/k of what the first leads the second by
(Rényi, 1953, "On the theory of order statistics"). So ``second + k (kth - next)`` has the mean
of the best similarity of a record without a partner, and a slightly longer tail: a decoy.
"""

import numpy as np

# The k of the leads that make decoys. True partners and near misses are among the first few.
LEADS = 4, 5, 6, 7, 8
NEAREST = LEADS[-1] + 1  # similarities of each record, in falling order
MIDDLE = 0.5  # quantile of the decoys: below it, nearest pairs are taken as false


def decoys(nearest: np.ndarray) -> np.ndarray:
    """Return best similarities of records without a partner, from the nearest of each record.

    ``nearest`` has the shape (n_records, 3 or more), each row in falling order.
    """
    width = nearest.shape[1]
    leads = [k for k in LEADS if k < width] or [width - 1]
    drawn = [nearest[:, 1] + k * (nearest[:, k - 1] - nearest[:, k]) for k in leads]
    return np.concatenate(drawn)


def q_values(scores: np.ndarray, of_decoys: np.ndarray) -> np.ndarray:
    """Least false discovery rate at which each score is listed, in (0, inf).

    The share of false pairs is estimated from those below the middle of the decoys (Storey,
    2002), and the one false pair more is that of Barber & Candès (2015). ``of_decoys`` has
    several decoys a pair, which count as one.
    """
    if not len(scores):
        return np.empty(0)
    weight = len(scores) / len(of_decoys)
    middle = np.quantile(of_decoys, MIDDLE)
    n_below = weight * np.count_nonzero(of_decoys < middle)
    false = min(1.0, (1 + np.count_nonzero(scores < middle)) / max(n_below, 1.0))
    order = np.argsort(-scores, kind="stable")
    falling = scores[order]
    n_decoys = len(of_decoys) - np.searchsorted(np.sort(of_decoys), falling, side="left")
    rates = false * (1 + weight * n_decoys) / np.arange(1, len(scores) + 1)
    rates[falling <= middle] = np.inf  # of which nothing is known
    q = np.empty(len(scores))
    q[order] = np.minimum.accumulate(rates[::-1])[::-1]
    return q
