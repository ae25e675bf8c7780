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
from skcalib.calibration.map import LinearMap

KNOWN = (
    "Exports accept steps with a method linear_map, such as Whitening; "
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


def linear_map(step: Any) -> LinearMap | str:
    """Linear map of a fitted step; or why it has none, and what to do.

    A step says in its `CalibratorTags` why it has none, or has a method of this name.
    """
    if reason := calibrator_tags(step).not_linear:
        return reason
    return step.linear_map() if hasattr(step, "linear_map") else of_sklearn(step)


@singledispatch
def of_sklearn(step: Any) -> LinearMap | str:
    """Return the same of a step of scikit-learn, by its class."""
    shown = repr(step).partition("  #")[0]  # without the comment of a fitted encoder
    raise TypeError(f"{shown:.80} cannot be exported. {KNOWN}")


@of_sklearn.register
def _(step: PCA | IncrementalPCA) -> LinearMap | str:
    # The least scale is scikit-learn's.
    least = np.finfo(step.explained_variance_.dtype).eps
    scale = np.maximum(np.sqrt(step.explained_variance_), least) if step.whiten else 1.0
    return _centered(step.mean_, step.components_.T / scale)


@of_sklearn.register
def _(step: TruncatedSVD) -> LinearMap | str:
    return _centered(np.zeros(step.n_features_in_), step.components_.T)


@of_sklearn.register
def _(step: StandardScaler) -> LinearMap | str:
    d = step.n_features_in_
    scale = np.ones(d) if step.scale_ is None else step.scale_
    return _centered(step.mean_ if step.with_mean else np.zeros(d), np.diag(1 / scale))


@of_sklearn.register
def _(step: Normalizer) -> LinearMap | str:
    if step.norm != "l2":
        raise TypeError(f"{step!r} cannot be exported. {KNOWN}")
    return "a Normalizer. Leave that step out, and scale the vectors afterwards"


def _centered(mean: np.ndarray, W: np.ndarray) -> LinearMap:
    # LAPACK may return rows in reverse, by negative strides, which torch refuses.
    mean, W = (np.ascontiguousarray(array, np.float64) for array in (mean, W))
    return LinearMap(mean, W, np.zeros(W.shape[1]))
