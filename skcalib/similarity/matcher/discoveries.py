"""Which of many nearest pairs are true: false discovery rates without labels.

Two records that are nearest to each other without being partners: how far does their similarity
lead over the second best of both? If similarities have an exponential tail, the excess over any
level has one distribution, and the k-th largest leads the next by 1/k of it (Rényi, 1953, "On
the theory of order statistics"). Tails of cosines are those of a normal distribution, whose
first lead is shorter than k times the k-th: by the ratio of the expected leads of normal order
statistics (Blom, 1958, "Statistical Estimates and Transformed Beta-Variables"). So a later
lead, scaled by this ratio, is a draw of the first lead of a false pair: a decoy.
"""

import numpy as np
from scipy.stats import norm

# The k of the leads that make decoys. True partners and near misses are among the first few.
LEADS = 4, 5, 6, 7, 8
NEAREST = LEADS[-1] + 1  # similarities of each record, in falling order
LEAD_WEIGHT = 0.5  # of the lead of a pair, beside its similarity
MIDDLE = 0.5  # quantile of the decoys: below it, nearest pairs are taken as false


def scores_of(best: np.ndarray, second: np.ndarray) -> np.ndarray:
    """Return the scores of pairs with these similarities.

    A partner is near, and nearer than all others: ``second`` is the second largest similarity
    of either record.
    """
    return best + LEAD_WEIGHT * (best - second)


def leads(nearest: np.ndarray, n: int) -> np.ndarray:
    """Return draws of the first lead of false pairs, of shape (n_leads, n_pairs).

    ``nearest`` has the shape (n_pairs, 3 or more), each row the largest of n similarities in
    falling order.
    """
    width = nearest.shape[1]
    k = np.array([k for k in LEADS if k < width] or [width - 1])
    expected = norm.isf((np.arange(1, width + 1) - 0.375) / (n + 0.25))  # Blom
    scale = (expected[0] - expected[1]) / (expected[k - 1] - expected[k])
    return (scale * (nearest[:, k - 1] - nearest[:, k])).T


def mutual_pairs(
    of_rows: tuple[np.ndarray, np.ndarray], of_columns: tuple[np.ndarray, np.ndarray]
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Return rows, columns and scores of mutual nearest neighbors, and scores of decoys.

    Both arguments have the largest similarities of each record, in falling order, and whose
    they are; -1 where an index found fewer. Without two there is no lead, and no pair.
    """
    (similar, columns), (similar_rows, rows) = of_rows, of_columns
    i = np.flatnonzero((columns[:, :2] >= 0).all(axis=1))
    j = columns[i, 0]
    mutual = (rows[j, 0] == i) & (rows[j, 1] >= 0)
    i, j = i[mutual], j[mutual]
    best, second = similar[i, 0], np.maximum(similar[i, 1], similar_rows[j, 1])
    decoys = []
    for partners, nearest, n in (
        (columns[i], similar[i], len(rows)),
        (rows[j], similar_rows[j], len(columns)),
    ):
        complete = (partners >= 0).all(axis=1)
        over = second[complete]
        decoys.append(scores_of(over + leads(nearest[complete], n), over).ravel())
    return i, j, scores_of(best, second), np.concatenate(decoys)


def q_values(scores: np.ndarray, of_decoys: np.ndarray) -> np.ndarray:
    """Least false discovery rate at which each score is listed, in (0, inf).

    The share of false pairs is estimated from those below the middle of the decoys (Storey,
    2002), and the one false pair more is that of Barber & Candès (2015). ``of_decoys`` has
    several decoys a pair, which count as one.
    """
    if not len(of_decoys):
        return np.full(len(scores), np.inf)
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
