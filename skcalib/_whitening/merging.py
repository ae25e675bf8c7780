"""Fits of parts of a corpus, merged to that of the whole."""

from typing import Any, Self

from sklearn.utils.validation import check_is_fitted

from skcalib._base import warn


class MergingFit:
    """Mixin of an estimator that learns from moments that merge exactly."""

    _moments: Any  # set by a fit; their method `merge` adds others
    n_features_in_: int

    def merge(self, *others: Self) -> Self:
        """Add the samples that others were fitted on.

        The result equals one `fit` on all samples together, so parts of a corpus can be
        fitted on different machines.

        Parameters
        ----------
        *others : estimators of the same class
            Fitted on the same features in the same order. They stay as they are, and their
            parameters have no influence: no parameter changes what is summed.

        Returns
        -------
        self
            The estimator with the samples added.

        Raises
        ------
        TypeError
            If one of them is of another class.
        ValueError
            If one of them was fitted on another number of features, or on features of other
            names, or in another order.

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
        moments, name = self._moments, type(self).__name__
        for other in others:
            if not isinstance(other, type(self)):
                raise TypeError(
                    f"merge got a {type(other).__name__}; it expects fitted {name} objects."
                )
            check_is_fitted(other)
            if other.n_features_in_ != self.n_features_in_:
                raise ValueError(
                    f"merge got a {name} fitted on {other.n_features_in_} features; this one "
                    f"has {self.n_features_in_}. Fit both on vectors of the same width."
                )
            mine, its = (getattr(e, "feature_names_in_", None) for e in (self, other))
            if mine is not None and its is not None and (mine != its).any():
                i = int((mine != its).argmax())
                raise ValueError(
                    f"merge got a {name} whose feature {i} is {its[i]!r}; that of this one is "
                    f"{mine[i]!r}. Fit both on the same columns in the same order."
                )
            if (mine is None) != (its is None):
                warn(
                    f"merge got one {name} fitted on features with names and one on features "
                    "without, so their order cannot be compared."
                )
            moments = moments.merge(other._moments)
        return self._learn(moments)

    def _learn(self, moments: Any) -> Self:
        """Replace the moments by these."""
        self._moments = moments
        return self

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "_moments")
