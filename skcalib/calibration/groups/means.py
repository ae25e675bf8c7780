"""Means of groups, by parts that merge exactly, and the directions in which they differ."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from scipy.sparse import csr_array
from sklearn.utils import gen_batches

from skcalib.calibration.moments import chunk_rows
from skcalib.inputs.vectors import refuse_not_finite
from skcalib.process.forks import cached_property

KINDS = {"U": "str", "b": "bool", "i": "integers", "f": "floats"}


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
