"""Details, which distinguish a text from others on its topic, lie in weak directions."""

import numpy as np
from sklearn.utils import gen_batches

from skcalib.calibration.whitening import Whitening
from skcalib.cosines import EQUAL

ROWS = 8192  # whose moments are added at a time


def mild_whitening(power: float, *sides: tuple[np.ndarray, np.ndarray]) -> np.ndarray:
    """Return the projection, (d, d), that whitens the unit vectors of all sides.

    With the vectors of each side comes their mean. The shrinkage is that of Ledoit and Wolf, so
    few vectors do no harm. It would be 0 for two, whose products are equal.
    """
    spread = max(1 - float(mean @ mean) for _, mean in sides)
    n = sum(len(vectors) for vectors, _ in sides)
    if power == 0 or n < 3 or spread <= 1 - EQUAL:
        return np.eye(len(sides[0][1]))
    whitening = Whitening(power=power, shrinkage="auto")
    for vectors, mean in sides:
        for rows in gen_batches(len(vectors), ROWS):
            whitening.partial_fit(vectors[rows] - mean)
    return whitening.linear_map().projection
