"""Erase groups, such as languages: all of them get the same mean."""

from __future__ import annotations

from dataclasses import dataclass, replace
from operator import attrgetter
from typing import Any, Self

import numpy as np
from scipy.sparse import csr_array
from sklearn.base import BaseEstimator, OneToOneFeatureMixin
from sklearn.utils import gen_batches
from sklearn.utils.validation import check_consistent_length, check_is_fitted

from skcalib.base import FloatTransformer, VersionedState, from_scratch, warn
from skcalib.calibration.map import LinearMap
from skcalib.calibration.merging import MergingFit
from skcalib.calibration.moments import chunk_rows
from skcalib.inputs.labels import labels_of
from skcalib.inputs.vectors import checked_rows, refuse_not_finite, warn_of_lengths
from skcalib.process.forks import cached_property

KINDS = {
    "U": "str",
    "b": "bool",
    "i": "integers",
    "f": "floats",
}
# Samples of a group below which its mean is mostly chance.
FEW_SAMPLES = 20
# If less of the variance is left, more than groups was erased: languages leave far more.
LITTLE = 0.25


class GroupErasure(
    MergingFit,
    OneToOneFeatureMixin,
    FloatTransformer,
    VersionedState,
    BaseEstimator,
):
    """Project out the directions in which group means differ, such as those of languages.

    With group means m_g, the overall mean m, and rows Q that are an orthonormal basis of the
    span of ``m_g - m``, vectors become ``x' = x - Qᵀ Q (x - m)``: all groups have the mean m,
    and no linear classifier distinguishes them better than by their sizes ([1]_, theorem 3.1).
    Mapping a vector does not need its group. Put the step before ``Whitening(noise="auto")``;
    20 samples per group give most of the gain.

    A single group, as without `groups`, has nothing to project out: its mean is subtracted.
    With several groups m stays, since a whitening recognizes inner layers by it.

    Attributes
    ----------
    groups_ : ndarray of shape (n_groups,)
        Names of the groups, sorted.
    group_count_ : ndarray of shape (n_groups,)
        Number of samples of each.
    means_ : ndarray of shape (n_groups, n_features)
        Mean of each.
    mean_ : ndarray of shape (n_features,)
        Mean of all samples.
    components_ : ndarray of shape (rank, n_features)
        Q: n_groups - 1 rows, or fewer if the means of groups depend on each other.
    variance_kept_ : float
        Share of the variance of the fitted samples that is left, estimated as if columns were
        uncorrelated within groups. Below 0.25, `fit` warns; after `partial_fit` or `merge`, the
        first `transform` warns.
    n_features_in_, feature_names_in_
        Number of features seen during fit, and their names when all are strings.

    References
    ----------
    .. [1] Belrose et al. (2023), "LEACE: Perfect linear concept erasure in closed form",
           arXiv:2306.03819. Their projection is orthogonal after whitening.

    Examples
    --------
    In a pipeline, pass groups by metadata routing, or as ``grouperasure__groups``; `BiEncoder`
    and `CalibrationSearch` pass them on.

    >>> import numpy as np
    >>> from sklearn import config_context
    >>> from sklearn.pipeline import make_pipeline
    >>> from skcalib import GroupErasure, Whitening
    >>> languages = np.repeat(["de", "en", "fr"], 100)
    >>> X = np.random.default_rng(0).normal(size=(300, 8))
    >>> X[:100] += 3
    >>> with config_context(enable_metadata_routing=True):
    ...     pipeline = make_pipeline(GroupErasure(), Whitening(noise="auto"))
    ...     Z = pipeline.fit_transform(X, groups=languages)
    >>> np.allclose(Z[:100].mean(axis=0), Z[100:].mean(axis=0))
    True
    """

    _state_version = 5
    __metadata_request__fit = {"groups": True}
    __metadata_request__partial_fit = {"groups": True}
    moments_: GroupMeans
    groups_ = property(attrgetter("moments_.names"), doc="Names of the groups, sorted.")
    group_count_ = property(attrgetter("moments_.n"), doc="Number of samples of each.")
    means_ = property(attrgetter("moments_.mean"), doc="Mean of each group.")
    mean_ = property(attrgetter("moments_.overall"), doc="Mean of all samples.")
    components_ = property(attrgetter("moments_.differences"), doc="Q, orthonormal rows.")
    variance_kept_ = property(attrgetter("moments_.kept"), doc="Share of the variance left.")

    @from_scratch
    def fit(self, X: Any, y: Any = None, groups: Any = None) -> Self:
        """Learn group means; warn of small groups, or if little variance is left.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
        y : None
            Ignored. Without `groups`, it gives a warning.
        groups : array-like of shape (n_samples,), default=None
            Group of each sample, such as its language: str or numbers. None for one group of
            all. A pipeline passes them on if scikit-learn's metadata routing is enabled.

        Returns
        -------
        self : GroupErasure
        """
        _warn_of_labels(y, groups)
        means = self._means_of(X, groups, reset=True)
        _check(means)
        self.moments_, self._is_checked = means, True
        return self

    def partial_fit(self, X: Any, y: Any = None, groups: Any = None) -> Self:
        """Add samples to those seen; any split equals one `fit`.

        Parameters
        ----------
        X, y, groups
            As for `fit`.

        Returns
        -------
        self : GroupErasure
        """
        _warn_of_labels(y, groups)
        first = not self.__sklearn_is_fitted__()
        means = self._means_of(X, groups, reset=first)
        return self._learn(means if first else self.moments_.merge(means))

    def transform(self, X: Any) -> Any:
        """Project out what distinguishes the groups; subtract the mean of a single one.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Vectors, of any group.

        Returns
        -------
        X_new : ndarray of shape (n_samples, n_features)
            float32 for float32 input and float64 otherwise.
        """
        means = self._checked_means()
        X = self._rows(X, reset=False)
        return _erased(means.overall, means.differences, means.target, X)

    def linear_map(self) -> LinearMap:
        """Return the map that `transform` applies.

        Returns
        -------
        linear : LinearMap
            With ``mean``, ``projection`` and ``bias``.
        """
        means = self._checked_means()
        Q = means.differences
        P = np.eye(len(means.overall)) - Q.T @ Q
        return LinearMap(means.overall, P, means.target)

    def _learn(self, moments: GroupMeans) -> Self:
        self.moments_, self._is_checked = moments, False
        return self

    def _checked_means(self) -> GroupMeans:
        """Return the means; check those of `partial_fit` at their first use."""
        check_is_fitted(self)
        if not self._is_checked:
            _check(self.moments_)
            self._is_checked = True
        return self.moments_

    def _rows(self, X: Any, *, reset: bool) -> Any:
        X = checked_rows(self, X, reset=reset)
        if not reset:
            warn_of_lengths(X, self.moments_.mean_square)
        return X

    def _means_of(self, X: Any, groups: Any, *, reset: bool) -> GroupMeans:
        X = self._rows(X, reset=reset)
        if groups is None:
            return GroupMeans.from_array(X, np.zeros(len(X), int))
        check_consistent_length(X, groups)
        return GroupMeans.from_array(X, _labels(groups))


def _labels(groups: Any) -> np.ndarray:
    """Return the groups as an array of str, of bool, of integers or of floats."""
    listed = labels_of(groups, "groups")
    labels = np.array(listed)
    is_rounded = labels.dtype.kind == "f" and any(isinstance(label, int) for label in listed)
    if is_rounded or labels.dtype.kind not in "Ubif" or labels.tolist() != listed:
        raise ValueError(
            "groups has entries that are neither str nor numbers, have several types, or are "
            "too large for int64. Convert all of them to str."
        )
    return labels


def _warn_of_labels(y: Any, groups: Any) -> None:
    """Warn of groups that come as ``y``; an error would stop pipelines, which pass labels."""
    if y is not None and groups is None:
        warn(
            "GroupErasure got y, which it ignores, and no groups: it subtracts one mean of all "
            "samples. Pass the group of each sample as fit(X, groups=...), in a pipeline by "
            "metadata routing."
        )


def _check(means: GroupMeans) -> None:
    """Refuse groups if nothing would be left; warn of small groups, or too many."""
    n_groups, n_features = means.mean.shape
    if n_groups == 1:
        return
    if len(means.differences) == n_features:
        raise ValueError(
            f"The means of {n_groups} groups differ in every direction of n_features="
            f"{n_features}: nothing would be left. Give fewer groups."
        )
    if (few := means.n < FEW_SAMPLES).any():
        name, n = means.names.tolist()[few.argmax()], means.n[few.argmax()]
        warn(
            f"{few.sum()} of {len(few)} groups have fewer than {FEW_SAMPLES} samples, such as "
            f"{name!r} with {n:g}: their means are mostly chance. Fit on more samples, or "
            "leave these groups out."
        )
    if means.kept < LITTLE:
        warn(
            f"GroupErasure leaves {100 * means.kept:.2g} % of the variance: the groups explain "
            "most differences of the vectors, as clusters or topics do, or there are too many "
            f"for {n_features} features. Give fewer or other groups."
        )


def _erased(mean: np.ndarray, Q: np.ndarray, target: np.ndarray, X: np.ndarray) -> np.ndarray:
    """``(x - mean) - Qᵀ Q (x - mean) + target`` of each row, computed in float64."""
    out, rest = np.empty_like(X), mean - target  # 0 where the mean stays
    for rows in gen_batches(len(X), chunk_rows(X.shape[1])):
        out[rows] = X[rows] - rest - ((X[rows] - mean) @ Q.T) @ Q
    return out


@dataclass(frozen=True)
class GroupMeans:
    """Numbers and means of the samples of each group, and their spread, in float64."""

    names: np.ndarray  # (G,), distinct and sorted
    n: np.ndarray  # (G,), numbers of samples
    mean: np.ndarray  # (G, d)
    scatter: np.ndarray  # (d,), sum of squares about the mean of the sample's group

    @classmethod
    def from_array(
        cls, X: np.ndarray, groups: np.ndarray, weight: np.ndarray | None = None
    ) -> GroupMeans:
        """Means of the rows of ``X``, each of which counts ``weight`` times."""
        names, codes = np.unique(groups, return_inverse=True)
        n = np.bincount(codes, weight, len(names))
        weight = np.ones(len(X)) if weight is None else weight
        # Sums of differences from a row keep the digits below a large common mean.
        origin = X[:1].sum(axis=0, dtype=np.float64)
        sums, squares = np.zeros((len(names), X.shape[1])), 0.0
        for rows in gen_batches(len(X) or 1, chunk_rows(X.shape[1])):
            members = weight[rows], (codes[rows], np.arange(len(codes[rows])))
            differences = X[rows] - origin
            sums += csr_array(members, (len(names), len(codes[rows]))) @ differences
            with np.errstate(over="ignore"):
                squares += weight[rows] @ differences**2
        if not np.isfinite(squares).all():
            refuse_not_finite(X, "The squares of X overflow float64")
        scatter = np.maximum(squares - (sums**2 / n[:, None]).sum(axis=0), 0.0)
        return cls(names, n, origin + sums / n[:, None], scatter)

    def merge(self, other: GroupMeans) -> GroupMeans:
        """Means of both samples together, whose groups are all str, all bool or all numbers."""
        pairs = ((self.names, other.names), (self.n, other.n), (self.mean, other.mean))
        names, n, mean = map(np.concatenate, pairs)
        kind, other_kind = (KINDS[part.names.dtype.kind] for part in (self, other))
        are_numbers = {kind, other_kind} == {"integers", "floats"}
        if kind != other_kind and not (are_numbers and np.abs(names).max() < 2**53):
            first, second = self.names[-1:].tolist() + other.names[-1:].tolist()
            raise ValueError(
                f"groups are {kind} in one part and {other_kind} in another, such as {first!r} "
                f"and {second!r}. Give the groups of all parts the same type, such as str."
            )
        merged = GroupMeans.from_array(mean, names, n)  # a mean counts as often as its samples
        scatter = self.scatter + other.scatter + merged.scatter
        return replace(merged, n=merged.n.astype(n.dtype), scatter=scatter)

    @cached_property
    def overall(self) -> np.ndarray:
        """Mean of all samples, of shape (d,)."""
        return self.n @ self.mean / (self.n.sum() or 1)

    @property
    def target(self) -> np.ndarray:
        """Mean of each group afterwards, of shape (d,): that of all samples, or 0 of one."""
        return self.overall if len(self.names) > 1 else np.zeros_like(self.overall)

    @cached_property
    def differences(self) -> np.ndarray:
        """Orthonormal rows that span the differences of the means, of shape (rank, d)."""
        # Differences from one of the means span the same as those from the overall mean.
        _, s, vt = np.linalg.svd(self.mean[1:] - self.mean[:1], full_matrices=False)
        # Rounding errors of means grow with their magnitude.
        scale = max(s.max(initial=0), np.abs(self.mean).max(initial=0))
        return vt[s > max(self.mean.shape) * np.finfo(np.float64).eps * scale]

    @cached_property
    def variances(self) -> tuple[np.ndarray, np.ndarray]:
        """Variance of each column between and within groups, each of shape (d,)."""
        total = self.n.sum() or 1
        return self.n @ (self.mean - self.overall) ** 2 / total, self.scatter / total

    @cached_property
    def mean_square(self) -> float:
        """Mean of ``|x|²``."""
        return float(np.sum(self.variances) + self.overall @ self.overall)

    @cached_property
    def kept(self) -> float:
        """Share of the variance that is left if columns are uncorrelated within groups."""
        between, within = self.variances
        left = within @ (1 - (self.differences**2).sum(axis=0))
        return float(left / ((between + within).sum() or 1))
