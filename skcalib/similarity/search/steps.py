"""The last steps of both sides of a search, from unit vectors to those whose cosine ranks."""

from typing import Any, Self

import numpy as np
from sklearn.base import BaseEstimator

from skcalib.base import FloatTransformer, estimator
from skcalib.calibration import LinearMap
from skcalib.similarity.search.hubs import hubness, n_nearest

HALF = float(np.sqrt(0.5))  # the length of both parts of a vector


@estimator
class Step(FloatTransformer, BaseEstimator):
    """A transformer that is made with all that it needs."""

    def fit(self, X: Any, y: Any = None) -> Self:
        """Learn nothing."""
        return self

    def __sklearn_is_fitted__(self) -> bool:
        return True


@estimator
class Affine(Step):
    """A map of rows, computed in float64."""

    linear: LinearMap

    def transform(self, X: np.ndarray) -> np.ndarray:
        """Map rows."""
        return self.linear.apply(X)

    def linear_map(self) -> LinearMap:
        """Return the map that exports use."""
        return self.linear


def two_columns(d: int, one: int) -> LinearMap:
    """Append two columns to d of unit length, 1 in the place ``one`` and 0, and scale again."""
    bias = HALF * np.eye(1, d + 2, d + one)[0]
    return LinearMap(np.zeros(d), HALF * np.eye(d, d + 2), bias)


@estimator
class HubColumns(Step):
    """Append the weighted hubness of unit vectors, and what makes their length 1.

    The last column makes the inner product a cosine (Bachrach et al., 2014).
    """

    bank: np.ndarray  # (n_bank, d), float32: unit vectors
    weight: float

    def transform(self, X: np.ndarray) -> np.ndarray:
        """Return ``(d', -w r, sqrt(1 - w² r²)) / sqrt(2)``."""
        penalty = np.zeros(len(X))
        if self.weight > 0:
            near = hubness(X.astype(np.float32, copy=False), self.bank)
            penalty = self.weight * near
        out = np.empty((len(X), X.shape[1] + 2), X.dtype)
        np.multiply(X, HALF, out=out[:, :-2])
        out[:, -2], out[:, -1] = -HALF * penalty, HALF * np.sqrt(np.maximum(1 - penalty**2, 0))
        return out

    def linear_map(self) -> LinearMap:
        """Return the map that exports use; only without a weight there is one."""
        return two_columns(self.bank.shape[1], 1)

    @property
    def n_neighbors(self) -> int:
        """Number of queries of the bank that are compared with a document."""
        return n_nearest(len(self.bank))

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        if self.weight > 0:
            tags.transformer_tags.not_linear = (
                "the hubs of a SearchEncoder, a search in its bank of queries. Set hub_weight=0"
            )
        return tags
