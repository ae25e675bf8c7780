"""The linear map of rows that a step of a pipeline is, or the reason why it is none."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from sklearn.decomposition import PCA, IncrementalPCA, TruncatedSVD
from sklearn.frozen import FrozenEstimator
from sklearn.pipeline import Pipeline
from sklearn.preprocessing import Normalizer, StandardScaler

from skcalib.base import calibrator_tags
from skcalib.inputs.vectors import refuse_not_finite
from skcalib.process.forks import cached_property
from skcalib.process.threads import map_row_ranges, rows_within

# Largest condition number of W for a product in float32, by which a rounding error grows:
# mapped vectors differ from those of float64 by less than 1e-5 of the largest entry.
MOST_CONDITION = 50.0
# Centered rows in each thread: what a core's own cache holds.
CHUNK_BYTES = 2 * 2**20

KNOWN = (
    "Exports accept steps with a method linear_map, such as Whitening; "
    "NormalizingFlow and NeighborSmoothing; and scikit-learn's PCA, "
    "TruncatedSVD, StandardScaler and Normalizer('l2'). Leave other steps out, as in "
    "pipeline[:-1] for a classifier, and pipeline[1:] where vectors are mapped, not texts."
)


@dataclass(frozen=True, eq=False)
class LinearMap:
    """Linear map of a step, ``x -> (x - mean) W + bias``.

    A step of your own returns it from a method ``linear_map()``.

    Parameters
    ----------
    mean : ndarray of shape (n_features,), float64
        Subtracted from the input.
    projection : ndarray of shape (n_features, n_components), float64
        W.
    bias : ndarray of shape (n_components,), float64
        Added to the output.

    Examples
    --------
    >>> import numpy as np
    >>> from skcalib.calibration import LinearMap
    >>> X = np.random.default_rng(0).normal(size=(100, 3)) + 5
    >>> linear = LinearMap(X.mean(axis=0), np.diag([1.0, 2.0, 0.5]), np.zeros(3))
    >>> np.allclose(linear.apply(X), (X - X.mean(axis=0)) * [1.0, 2.0, 0.5])
    True
    """

    mean: np.ndarray
    projection: np.ndarray
    bias: np.ndarray

    def then(self, after: LinearMap) -> LinearMap:
        """Combine both maps into one."""
        if len(after.mean) != len(self.bias):
            raise ValueError(
                f"A step returns {len(self.bias)} features, but the next expects "
                f"{len(after.mean)}. Give the steps in the order in which they were fitted."
            )
        W = after.projection
        return LinearMap(
            self.mean, self.projection @ W, (self.bias - after.mean) @ W + after.bias
        )

    @cached_property
    def float32_is_safe(self) -> bool:
        """Whether a product with W in float32 keeps the digits of centered float32 rows."""
        squares = np.linalg.eigvalsh(self.projection.T @ self.projection)
        squares = squares[squares > len(squares) * np.finfo(np.float64).eps * squares[-1]]
        # A W of other lengths maps rows that are near the ends of float32's range, or to there.
        if not (len(squares) and 1e-30 < squares[0] and squares[-1] < 1e30):
            return False
        return bool(squares[-1] <= MOST_CONDITION**2 * squares[0])

    def apply(self, X: np.ndarray) -> np.ndarray:
        """Map checked rows, float32 or float64, in chunks and several threads."""
        is_single = X.dtype == np.float32
        work = np.float32 if is_single and self.float32_is_safe else np.float64
        # Without the rounded mean m, an entry is as small as the spread and exact to its last
        # digit. The rest of the mean, about eps of it, is too small to cancel digits in W.
        m, W = self.mean.astype(work), self.projection.astype(work, copy=False)
        b = (self.bias - (self.mean - m) @ self.projection).astype(work)
        n, d = X.shape
        out = np.empty((n, W.shape[1]), dtype=X.dtype)
        step = rows_within(CHUNK_BYTES, d, W.itemsize)

        def map_rows(chunks: Iterable[slice]) -> None:
            centered = np.empty((min(step, n), d), dtype=work)
            for rows in chunks:
                x, z = X[rows], out[rows]
                np.matmul(np.subtract(x, m, out=centered[: len(x)]), W, out=z)
                z += b

        with np.errstate(over="ignore", invalid="ignore"):
            map_row_ranges(map_rows, n, step, working_bytes=W.itemsize * step * d)
            # One sum is cheap. It may overflow although no entry does, so the maximum decides.
            if not np.isfinite(out.sum()) and not np.isfinite(np.abs(out).max()):
                refuse_not_finite(X, f"The mapped vectors overflow {out.dtype}")
        return out


def flat(*steps: Any) -> Iterator[Any]:
    """Yield the steps of pipelines, at any depth, but no "passthrough"."""
    for step in steps:
        if isinstance(step, FrozenEstimator):
            yield from flat(step.estimator)
        elif hasattr(step, "best_estimator_"):  # of a search
            yield from flat(step.best_estimator_)
        elif isinstance(step, Pipeline):
            yield from flat(*(inner for _, inner in step.steps))
        elif step is not None and not isinstance(step, str):
            yield step


def linear_map(step: Any) -> LinearMap | str:
    """Linear map of a fitted step; or why it has none, and what to do."""
    if reason := calibrator_tags(step).not_linear:
        return reason
    if hasattr(step, "linear_map"):
        return step.linear_map()
    if isinstance(step, PCA | IncrementalPCA):
        # The least scale is scikit-learn's.
        least = np.finfo(step.explained_variance_.dtype).eps
        scale = np.maximum(np.sqrt(step.explained_variance_), least) if step.whiten else 1.0
        return _centered(step.mean_, step.components_.T / scale)
    if isinstance(step, TruncatedSVD):
        return _centered(np.zeros(step.n_features_in_), step.components_.T)
    if isinstance(step, StandardScaler):
        d = step.n_features_in_
        scale = np.ones(d) if step.scale_ is None else step.scale_
        return _centered(step.mean_ if step.with_mean else np.zeros(d), np.diag(1 / scale))
    if isinstance(step, Normalizer) and step.norm == "l2":
        return "a Normalizer. Leave that step out, and scale the vectors afterwards"
    shown = repr(step).partition("  #")[0]  # without the comment of a fitted encoder
    raise TypeError(f"{shown:.80} cannot be exported. {KNOWN}")


def _centered(mean: np.ndarray, W: np.ndarray) -> LinearMap:
    # LAPACK may return rows in reverse, by negative strides, which torch refuses.
    mean, W = (np.ascontiguousarray(array, np.float64) for array in (mean, W))
    return LinearMap(mean, W, np.zeros(W.shape[1]))
