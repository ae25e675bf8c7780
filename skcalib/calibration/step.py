"""The steps after an encoder, and the linear map of each, or the reason why it has none."""

from collections.abc import Iterator
from functools import singledispatch
from typing import Any

import numpy as np
from sklearn.decomposition import PCA, IncrementalPCA, TruncatedSVD
from sklearn.frozen import FrozenEstimator
from sklearn.pipeline import Pipeline
from sklearn.preprocessing import Normalizer, StandardScaler

from skcalib.base import calibrator_tags
from skcalib.calibration.map import AffineMap

KNOWN = (
    "Exports accept steps with a method linear_map, such as Whitening and GroupErasure; "
    "NormalizingFlow and NeighborSmoothing; and scikit-learn's PCA, "
    "TruncatedSVD, StandardScaler and Normalizer('l2'). Leave other steps out, as in "
    "pipeline[:-1] for a classifier, and pipeline[1:] where vectors are mapped, not texts."
)


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


def linear_map(step: Any) -> AffineMap | str:
    """Linear map of a fitted step; or why it has none, and what to do.

    A step says in its `CalibratorTags` why it has none, or has a method of this name.
    """
    if reason := calibrator_tags(step).not_linear:
        return reason
    return step.linear_map() if hasattr(step, "linear_map") else of_sklearn(step)


@singledispatch
def of_sklearn(step: Any) -> AffineMap | str:
    """Return the same of a step of scikit-learn, by its class."""
    shown = repr(step).partition("  #")[0]  # without the comment of a fitted encoder
    raise TypeError(f"{shown:.80} cannot be exported. {KNOWN}")


@of_sklearn.register
def _(step: PCA | IncrementalPCA) -> AffineMap | str:
    V, variance = _float64(step.components_, step.explained_variance_)
    # The least scale is scikit-learn's.
    least = np.finfo(step.explained_variance_.dtype).eps
    scale = np.maximum(np.sqrt(variance), least) if step.whiten else 1.0
    covariance = _along(V, variance, step)
    return AffineMap.of_sample(step.mean_, V.T / scale, covariance=covariance)


@of_sklearn.register
def _(step: TruncatedSVD) -> AffineMap | str:
    V, s, variance = _float64(step.components_, step.singular_values_, step.explained_variance_)
    # s² sums the squares of a column of the output: n (variance + mean²). The number n of
    # samples is not kept. It is least where the mean of a column is nearest to zero.
    n = np.min(s**2 / np.maximum(variance, np.finfo(np.float64).tiny))
    moments = _along(V, s**2 / n, step)
    return AffineMap.of_sample(np.zeros(V.shape[1]), V.T, covariance=moments)


@of_sklearn.register
def _(step: StandardScaler) -> AffineMap | str:
    d = step.n_features_in_
    mean = step.mean_ if step.with_mean else np.zeros(d)
    scale = np.ones(d) if step.scale_ is None else step.scale_
    squares = None if step.var_ is None else step.var_ + (step.mean_ - mean) ** 2
    return AffineMap.of_sample(mean, np.diag(1 / scale), covariance=squares)


@of_sklearn.register
def _(step: Normalizer) -> AffineMap | str:
    if step.norm != "l2":
        raise TypeError(f"{step!r} cannot be exported. {KNOWN}")
    return "a Normalizer. Leave that step out, and scale the vectors afterwards"


def _along(V: np.ndarray, values: np.ndarray, step: Any) -> np.ndarray:
    """Matrix with these values along the rows of V; the other axes share the other variance."""
    k, d = V.shape
    variance, share = _float64(step.explained_variance_, step.explained_variance_ratio_)
    left = variance.sum() * (1 / share.sum() - 1) / max(d - k, 1)
    return (V.T * (values - left)) @ V + left * np.eye(d)


def _float64(*arrays: Any) -> Iterator[np.ndarray]:
    # LAPACK may return rows in reverse, by negative strides, which torch refuses.
    return (np.ascontiguousarray(array, np.float64) for array in arrays)
