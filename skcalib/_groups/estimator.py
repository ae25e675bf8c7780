"""Groups, such as languages, erased: their means become one."""

from __future__ import annotations

import warnings
from functools import partial
from typing import Any, Self

import numpy as np
from sklearn.base import BaseEstimator, OneToOneFeatureMixin, TransformerMixin
from sklearn.utils import gen_batches
from sklearn.utils.validation import (
    check_consistent_length,
    check_is_fitted,
    column_or_1d,
    validate_data,
)

from skcalib._base import VersionedState
from skcalib._covariance.moments import chunk_rows
from skcalib._dask import as_floats, check_dask, dask_apply, dask_reduce, is_dask
from skcalib._groups.means import GroupMeans
from skcalib._sklearn_compat import check_sample_weight

__all__ = ["GroupErasure"]

# Texts of a group below which its mean is mostly chance.
FEW_TEXTS = 20


class GroupErasure(OneToOneFeatureMixin, TransformerMixin, VersionedState, BaseEstimator):
    """Project out the directions in which the means of groups differ, such as languages.

    In a multilingual space the nearest neighbours of a text share its language. With group
    means m_g, the overall mean m, and rows Q that are an orthonormal basis of the span of
    ``m_g - m``, vectors become ``x' = x - Qᵀ Q (x - m)``. Then all groups have the mean m, and
    no linear classifier tells them apart better than by their sizes ([1]_, theorem 3.1). A
    vector is mapped without its group. Put the step in front of ``Whitening(noise="auto")``.

    Attributes
    ----------
    groups_ : ndarray of shape (n_groups,)
        Names of the groups, sorted.
    group_count_ : ndarray of shape (n_groups,)
        Number of samples of each group, or the sum of their weights.
    means_ : ndarray of shape (n_groups, n_features)
        Mean of each group.
    mean_ : ndarray of shape (n_features,)
        Mean of all samples.
    components_ : ndarray of shape (rank, n_features)
        Q, the directions projected out; rank is n_groups - 1, or less where the means of
        groups depend on each other.
    n_features_in_ : int
        Number of features seen during fit.
    feature_names_in_ : ndarray of shape (n_features,)
        Names of features seen during fit, when all are strings.

    Notes
    -----
    20 texts of a group help, 50 are nearly enough. Groups may differ in size. A group that was
    not fitted gains little.

    `groups` reaches `fit` in a pipeline by metadata routing, as in the example, or as
    ``pipeline.fit(texts, grouperasure__groups=languages)``. A dask array is fitted on block by
    block, and `transform` of one is a lazy dask array.

    References
    ----------
    .. [1] Belrose et al. (2023), "LEACE: Perfect linear concept erasure in closed form",
           arXiv:2306.03819; their projection is orthogonal in the metric of the covariance.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn import config_context
    >>> from sklearn.pipeline import make_pipeline
    >>> from skcalib import GroupErasure, Whitening
    >>> languages = np.repeat(["de", "en", "fr"], 100)
    >>> X = np.random.default_rng(0).normal(size=(300, 8))
    >>> X[:100] += 3
    >>> with config_context(enable_metadata_routing=True):
    ...     erasure = GroupErasure().set_fit_request(groups=True)
    ...     pipeline = make_pipeline(erasure, Whitening(noise="auto"))
    ...     Z = pipeline.fit_transform(X, groups=languages)
    >>> np.allclose(Z[:100].mean(axis=0), Z[100:].mean(axis=0))
    True
    """

    _means: GroupMeans

    def fit(self, X: Any, y: Any = None, groups: Any = None, sample_weight: Any = None) -> Self:
        """Learn the mean of each group.

        Parameters
        ----------
        X : array-like or dask array of shape (n_samples, n_features)
            Vectors, finite.
        y : None
            Ignored.
        groups : array-like of shape (n_samples,)
            Group of each sample, such as its language: str or numbers, two or more.
        sample_weight : array-like of shape (n_samples,), default=None
            How many times each sample counts.

        Returns
        -------
        self : GroupErasure
            The fitted estimator.

        Raises
        ------
        ValueError
            If there are no groups, a single one, or so many that nothing would be left.

        Warns
        -----
        UserWarning
            If a group has fewer than 20 samples.
        """
        if hasattr(self, "_means"):
            del self._means  # an error below leaves nothing half-fitted
        means = self._means_of(X, groups, sample_weight, reset=True)
        self._check(means)
        few = means.n < FEW_TEXTS
        if few.any():
            warnings.warn(
                f"{few.sum()} of {len(few)} groups have fewer than {FEW_TEXTS} samples, such "
                f"as {means.names.tolist()[few.argmax()]!r} with {means.n[few.argmax()]:g}: "
                "their means are mostly chance. Fit on more samples, or leave them out.",
                UserWarning,
                stacklevel=2,
            )
        self._means = means
        return self

    def partial_fit(
        self, X: Any, y: Any = None, groups: Any = None, sample_weight: Any = None
    ) -> Self:
        """Add samples to those seen; any split equals one `fit`.

        Parameters
        ----------
        X : array-like or dask array of shape (n_samples, n_features)
            Vectors, finite, of one group or more.
        y : None
            Ignored.
        groups : array-like of shape (n_samples,)
            Group of each sample.
        sample_weight : array-like of shape (n_samples,), default=None
            How many times each sample counts.

        Returns
        -------
        self : GroupErasure
            The estimator with the samples added.
        """
        first = not hasattr(self, "_means")
        means = self._means_of(X, groups, sample_weight, reset=first)
        self._means = means if first else self._means.merge(means)
        return self

    def merge(self, *others: GroupErasure) -> Self:
        """Add the samples that others were fitted on; the result is that of one `fit`.

        Parameters
        ----------
        *others : GroupErasure
            Fitted on vectors of the same width. They stay as they are.

        Returns
        -------
        self : GroupErasure
            The estimator with the samples added.

        Raises
        ------
        TypeError, ValueError
            If one of them is no GroupErasure, or was fitted on another number of features.
        """
        check_is_fitted(self)
        merged = self._means
        for other in others:
            if not isinstance(other, GroupErasure):
                raise TypeError(
                    f"merge got a {type(other).__name__}; it takes fitted GroupErasure objects."
                )
            check_is_fitted(other)
            if other.n_features_in_ != self.n_features_in_:
                raise ValueError(
                    f"merge got a GroupErasure fitted on {other.n_features_in_} features; this "
                    f"one has {self.n_features_in_}. Fit both on vectors of one width."
                )
            merged = merged.merge(other._means)
        self._means = merged
        return self

    def transform(self, X: Any) -> Any:
        """Project out what tells the groups apart.

        Parameters
        ----------
        X : array-like or dask array of shape (n_samples, n_features)
            Vectors, of any group.

        Returns
        -------
        X_new : ndarray of shape (n_samples, n_features)
            float32 for float32 input and float64 otherwise; a lazy dask array for a dask array.
        """
        check_is_fitted(self)
        self._check(self._means)
        if is_dask(X):
            check_dask(X, type(self).__name__)
            validate_data(self, X, reset=False, skip_check_array=True)
            erase = partial(_erased, self._means.overall, self._means.differences)
            return dask_apply(erase, X, X.shape[1])
        X = validate_data(self, X, dtype=[np.float64, np.float32], reset=False)
        return _erased(self._means.overall, self._means.differences, X)

    def _means_of(self, X: Any, groups: Any, sample_weight: Any, *, reset: bool) -> GroupMeans:
        if groups is None:
            raise ValueError(
                "GroupErasure got no groups; it takes the group of each sample, such as its "
                "language. Call fit(X, groups=languages); in a pipeline enable metadata "
                "routing by sklearn.set_config(enable_metadata_routing=True), and give the "
                "step as GroupErasure().set_fit_request(groups=True)."
            )
        if is_dask(X):
            check_dask(X, type(self).__name__)
            validate_data(self, X, reset=reset, skip_check_array=True)
            means = dask_reduce(_means_of_block, GroupMeans.merge, X, groups, sample_weight)
            if not np.isfinite(means.mean).all():
                raise ValueError("X contains NaN or infinity. Drop such rows.")
            return means
        X = validate_data(self, X, dtype=[np.float64, np.float32], reset=reset)
        check_consistent_length(X, groups)
        if sample_weight is not None:
            sample_weight = check_sample_weight(sample_weight, X)
        return GroupMeans.from_array(X, _labels(groups), sample_weight)

    @staticmethod
    def _check(means: GroupMeans) -> None:
        """Raise a ValueError where there is nothing to erase, or all would be erased."""
        n_groups, n_features = means.mean.shape
        if n_groups == 0:
            raise ValueError("All samples have a sample_weight of zero. Leave none out.")
        if n_groups == 1:
            raise ValueError(
                f"GroupErasure got a single group, {means.names.tolist()}, in n_samples="
                f"{means.n[0]:g}; groups say where each sample comes from, such as its "
                "language, and it takes two or more. Leave the step out where there is one."
            )
        if len(means.differences) == n_features:
            raise ValueError(
                f"The means of {n_groups} groups differ in every direction of "
                f"n_features={n_features}: nothing would be left. Give fewer groups."
            )

    @property
    def groups_(self) -> np.ndarray:
        check_is_fitted(self)
        return self._means.names

    @property
    def group_count_(self) -> np.ndarray:
        check_is_fitted(self)
        return self._means.n

    @property
    def means_(self) -> np.ndarray:
        check_is_fitted(self)
        return self._means.mean

    @property
    def mean_(self) -> np.ndarray:
        check_is_fitted(self)
        return self._means.overall

    @property
    def components_(self) -> np.ndarray:
        check_is_fitted(self)
        return self._means.differences

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "_means")

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.transformer_tags.preserves_dtype = ["float64", "float32"]
        return tags


def _labels(groups: Any) -> np.ndarray:
    """Labels of one dtype that sorts, none of them missing."""
    labels = column_or_1d(groups)
    if labels.dtype.kind == "O":
        labels = np.asarray(labels.tolist())
    missing = labels.dtype.kind not in "USbiuf" or (labels != labels).any()
    if missing:
        raise ValueError(
            "groups has entries that are neither str nor numbers, or are missing. Give every "
            "sample a group, such as 'unknown'."
        )
    return labels


def _means_of_block(block: Any, groups: Any, weight: Any) -> GroupMeans:
    weight = None if weight is None else np.asarray(weight, dtype=np.float64)
    return GroupMeans.from_array(as_floats(block), _labels(groups), weight)


def _erased(mean: np.ndarray, Q: np.ndarray, X: np.ndarray) -> np.ndarray:
    """``x - Qᵀ Q (x - mean)`` of each row, computed in float64."""
    out = np.empty_like(X)
    for rows in gen_batches(len(X), chunk_rows(X.shape[1])):
        out[rows] = X[rows] - ((X[rows] - mean) @ Q.T) @ Q
    return out
