"""Vectors after a calibration that was not fitted on them, as those of new texts are.

A calibration moves the vectors that it is fitted on apart: their mean becomes zero, and a
whitening shortens the directions that they share by chance. So pairs of new vectors are more
similar than pairs of fitted ones, several times as often at a given threshold.
"""

from collections.abc import Iterator
from itertools import product
from typing import Any

import numpy as np
from sklearn import config_context
from sklearn.base import clone
from sklearn.frozen import FrozenEstimator
from sklearn.pipeline import Pipeline
from sklearn.utils import get_tags

from skcalib.base import warn

# An odd number. The calibration is fitted on three fifths of the texts, and so a little noisier
# than on all: thresholds are on the strict side.
FOLDS = 5


# Vectors for each direction that holds the variance. With fewer, a whitening in full lets 1.2
# times as many new pairs pass as 1 % of the fitted ones: h = 1 / 30 of a fitted vector's length
# is its own, cosines of new ones are 1 / (1 - h) times as large, and exp(2.33² h) is 1.2.
ENOUGH = 30
FEWEST = 10  # vectors whose mean is not zero by symmetry


def warn_if_fitted(X: np.ndarray) -> None:
    """Warn if the mean is zero, as only that of the vectors of a fit is, and they are few."""
    X = X / np.abs(X).max()  # so that nothing overflows
    mean, length = X.mean(axis=0, dtype=np.float64), np.linalg.norm(X, axis=1).mean()
    if np.linalg.norm(mean) > 1e-3 * length / len(X) ** 0.5:
        return
    scatter = (X / length).T @ (X / length)
    directions = np.trace(scatter) ** 2 / np.sum(scatter**2)
    if FEWEST <= len(X) < ENOUGH * directions:
        warn(
            f"The mean of these {len(X):,} vectors is zero, as if a calibration was fitted on "
            "them. Then more pairs of new vectors pass than of these. Give the calibration to "
            "the scale, SimilarityScale(calibration), and fit it on the vectors before it."
        )


def learns(calibration: Any) -> bool:
    """Whether a fit on other vectors would lead to another map."""
    if isinstance(calibration, Pipeline):
        return any(learns(s) for _, s in calibration.steps if not isinstance(s, str | None))
    return not isinstance(calibration, FrozenEstimator) and get_tags(calibration).requires_fit


def mapped(calibration: Any, X: np.ndarray) -> np.ndarray:
    """Return calibrated rows as an array, whatever output is configured."""
    with config_context(transform_output="default"):
        return np.asarray(calibration.transform(X))


def left_out(
    calibration: Any, X: np.ndarray
) -> Iterator[tuple[np.ndarray, np.ndarray, bool, Any]]:
    """Yield the places of two folds of rows, and the calibration fitted on the others.

    Each pair of folds comes once. The third is whether the first fold comes for the first time.
    There are at least as many rows as folds, in random order.
    """
    folds = [np.arange(k, len(X), FOLDS) for k in range(FOLDS)]
    for k, step in product(range(FOLDS), range(1, FOLDS // 2 + 1)):
        one, other = folds[k], folds[(k + step) % FOLDS]
        kept = np.delete(X, np.concatenate([one, other]), axis=0)
        yield one, other, step == 1, clone(calibration).fit(kept, None)
