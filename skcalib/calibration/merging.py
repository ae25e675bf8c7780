"""Fits on parts of a corpus, merged into one fit on the whole."""

from copy import copy
from itertools import zip_longest
from typing import Any, Self

from sklearn.utils.validation import check_is_fitted


class MergingFit:
    """Mixin of an estimator that learns from moments that merge exactly."""

    moments_: Any  # of the samples seen, with a method `merge`
    get_params: Any
    _learn: Any  # method that replaces the moments, and returns the estimator
    n_features_in_: int

    def merge(self, *others: Self) -> Self:
        """Return an estimator fitted on the samples of this one and of others.

        It equals one `fit` on all samples together. This one and the others do not change, so
        the same parts may be merged again.

        Parameters
        ----------
        *others : estimators of the same class
            Fitted with the same parameters, on the same features in the same order.

        Returns
        -------
        merged : estimator of the same class
            A new one.

        Raises
        ------
        TypeError
            If one of them is of another class.
        ValueError
            If one of them has other parameters, or was fitted on other features, or in another
            order.

        Examples
        --------
        >>> import numpy as np
        >>> from skcalib import Whitening
        >>> X = np.random.default_rng(0).normal(size=(100, 4))
        >>> parts = Whitening().fit(X[:30]).merge(Whitening().fit(X[30:]))
        >>> np.allclose(parts.transform(X), Whitening().fit_transform(X))
        True
        """
        check_is_fitted(self)
        moments, name = self.moments_, type(self).__name__
        for other in others:
            if not isinstance(other, type(self)):
                raise TypeError(
                    f"merge got a {type(other).__name__}; expected fitted {name} objects."
                )
            check_is_fitted(other)
            if other.get_params() != self.get_params():
                raise ValueError(
                    f"merge got {other!r}; this one is {self!r}. Give both the same "
                    "parameters: other.set_params(**this.get_params()) needs no second fit."
                )
            mine, its = _features(self), _features(other)
            if mine != its:
                i = next(i for i, (a, b) in enumerate(zip_longest(mine, its)) if a != b)
                raise ValueError(
                    f"merge got a {name} of {len(its)} features; this one has {len(mine)}, and "
                    f"they differ from feature {i} on. Fit both on the same columns in the "
                    "same order."
                )
            moments = moments.merge(other.moments_)
        return copy(self)._learn(moments)

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "moments_")


def _features(estimator: Any) -> list:
    """Return the names of the features of a fit, or their numbers."""
    return list(getattr(estimator, "feature_names_in_", range(estimator.n_features_in_)))
