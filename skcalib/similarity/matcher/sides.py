"""Scores of the records of one list with those of the other, as products of vectors.

With unit vectors a and b, and the hubness r of each among the other list, the score is
``a . b - w (r(a) + r(b))``. Records are searched as the documents of a `SearchEncoder`, and ask
as its queries, so that every index by cosine or Euclidean distance finds the best scores.
"""

from typing import Any

import numpy as np

from skcalib.cosines import nearest_in_order
from skcalib.similarity.hubs import n_neighbors_of
from skcalib.similarity.search.steps import HALF, HubColumns

HUB_SHARE, HUB_WEIGHT = 0.1, 0.5


def searched(vectors: np.ndarray, bank: np.ndarray) -> np.ndarray:
    """Append to unit vectors their hubness among a sample of the other list, (n, d + 2)."""
    k = n_neighbors_of(HUB_SHARE, len(bank))
    return HubColumns(bank, k, HUB_WEIGHT).transform(vectors)


def best_scores(
    asking: np.ndarray, among: np.ndarray, k: int, index: Any = None
) -> tuple[np.ndarray, np.ndarray]:
    """Return the ``k`` largest scores of each record with those of the other list, and which.

    Both lists are as `searched` returns them, and scores fall. Where an index finds fewer, the
    row is -1.
    """
    asked = asking.copy()
    asked[:, -2:] = HALF, 0
    cosines, rows = nearest_in_order(asked, among, k, index)
    penalty = -asking[:, -2:-1].astype(np.float64) / HALF
    return 2 * cosines - penalty, rows
