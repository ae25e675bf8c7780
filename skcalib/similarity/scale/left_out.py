"""Vectors after a calibration that was not fitted on them, as those of new texts are.

A calibration moves the vectors that it is fitted on apart: their mean becomes zero, and a
whitening shortens the directions that they share by chance. So pairs of new vectors are more
similar than pairs of fitted ones, several times as often at a given threshold.
"""

from collections.abc import Iterator
from typing import Any

import numpy as np
from sklearn import config_context
from sklearn.base import clone
from sklearn.frozen import FrozenEstimator
from sklearn.pipeline import Pipeline
from sklearn.utils import get_tags

# Each text is left out once, and the calibration fitted on four fifths of them. With fewer
# texts than all it is a little noisier, so that thresholds are on the strict side.
FOLDS = 5


def learns(calibration: Any) -> bool:
    """Whether a fit on other vectors would lead to another map."""
    if isinstance(calibration, Pipeline):
        return any(learns(s) for _, s in calibration.steps if not isinstance(s, str | None))
    return not isinstance(calibration, FrozenEstimator) and get_tags(calibration).requires_fit


def mapped(calibration: Any, X: np.ndarray) -> np.ndarray:
    """Return calibrated rows as an array, whatever output is configured."""
    with config_context(transform_output="default"):
        return np.asarray(calibration.transform(X))


def left_out(calibration: Any, X: np.ndarray) -> Iterator[tuple[np.ndarray, Any]]:
    """Yield the places of the rows of each fold, and the calibration fitted on all others.

    The rows come in random order, four or more.
    """
    n_folds = min(FOLDS, len(X) // 2)
    for k in range(n_folds):
        fold = np.arange(len(X)) % n_folds == k
        yield np.flatnonzero(fold), clone(calibration).fit(X[~fold], None)
