"""An encoder that looks up the vectors of texts."""

import numpy as np
from sklearn.base import BaseEstimator, TransformerMixin


class Lookup(TransformerMixin, BaseEstimator):
    """Vectors of texts by a dict, or of numbers of rows; remembers what it was fitted on."""

    def __init__(self, vectors, seen=None):
        self.vectors = vectors
        self.seen = seen

    def __sklearn_clone__(self):
        return type(self)(**self.get_params(deep=False))  # with the same list

    def fit(self, X, y=None):
        if self.seen is not None:
            self.seen.append(list(X))
        self.fitted_ = True
        return self

    def transform(self, X):
        rows = X if isinstance(self.vectors, dict) else map(int, X)
        return np.array([self.vectors[row] for row in rows], dtype=float)
