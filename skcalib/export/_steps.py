"""The steps after an encoder: each as a linear map, or the reason why it has none."""

from collections.abc import Iterator, Sequence
from functools import singledispatch
from typing import Any

import numpy as np
from sklearn.frozen import FrozenEstimator
from sklearn.pipeline import Pipeline
from sklearn.preprocessing import Normalizer
from sklearn.utils.validation import check_is_fitted

from skcalib.calibration.flow.estimator import NormalizingFlow
from skcalib.calibration.groups.estimator import GroupErasure
from skcalib.calibration.neighbors.estimator import NeighborSmoothing
from skcalib.calibration.whitening.estimator import Whitening
from skcalib.calibration.whitening.linear_map import AffineMap


@singledispatch
def linear_map(step: Any) -> AffineMap | str:
    """Linear map of a fitted step; or why its class has none, and what to do."""
    raise TypeError(
        f"{step!r:.80} cannot be exported. Exports accept Whitening, GroupErasure, "
        "NormalizingFlow, NeighborSmoothing, and scikit-learn's Normalizer('l2')."
    )


@linear_map.register
def _(step: Whitening) -> AffineMap | str:
    return step._checked_map().affine


@linear_map.register
def _(step: GroupErasure) -> AffineMap | str:
    means = step._checked_means()
    mean, (between, within) = means.overall, means.variances
    P = np.eye(len(mean)) - means.differences.T @ means.differences
    # What is left of a sample if its columns are uncorrelated.
    mean_square = np.mean(within @ P**2 + mean**2)
    return AffineMap(mean, P, mean, between + within, float(mean_square))


@linear_map.register
def _(step: NormalizingFlow) -> AffineMap | str:
    return "a normalizing flow. Calibrate with Whitening(noise='auto')"


@linear_map.register
def _(step: NeighborSmoothing) -> AffineMap | str:
    return "NeighborSmoothing, a search among fitted vectors. Leave that step out"


@linear_map.register
def _(step: Normalizer) -> AffineMap | str:
    if step.norm != "l2":
        return linear_map.dispatch(object)(step)
    return "a Normalizer. Leave that step out, and scale the vectors afterwards"


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


def fitted_steps(*steps: Any) -> list[Any]:
    """Return steps, and those of pipelines, all fitted and of a kind that exports know."""
    if not (found := [*flat(*steps)]):
        raise ValueError("Got no step; expected fitted steps, such as a Whitening.")
    check_steps(found)
    return found


def check_steps(steps: Sequence[Any]) -> None:
    """Raise an error unless all steps are fitted and of a kind that exports know."""
    for step in steps:
        check_is_fitted(step)
        linear_map(step)


def combined(steps: Sequence[Any]) -> list[Any]:
    """Return steps, with each run of linear steps combined into one map."""
    found: list[Any] = []
    for step in steps:
        part = step if isinstance(linear := linear_map(step), str) else linear
        if isinstance(part, AffineMap) and found and isinstance(found[-1], AffineMap):
            part = found.pop().then(part)
        found.append(part)
    return found


def not_linear(steps: Sequence[Any]) -> str:
    """Reason of the first step that no linear map can hold, or ""."""
    return next((found for step in steps if isinstance(found := linear_map(step), str)), "")


def one_map(*steps: Any) -> AffineMap:
    """Fitted steps as one linear map, or a ValueError."""
    parts = combined(fitted_steps(*steps))
    if reason := not_linear([part for part in parts if not isinstance(part, AffineMap)]):
        raise ValueError(f"One linear map cannot hold {reason}.")
    [linear] = parts
    return linear


def affine_float32(linear: AffineMap) -> tuple[np.ndarray, np.ndarray]:
    """``W`` of shape (d, k) and ``b = bias - mean W``, in float32, or a ValueError."""
    _refuse_lost_digits(linear.uncentered_growth)
    W = linear.projection
    return W.astype(np.float32), (linear.bias - linear.mean @ W).astype(np.float32)


def centered_float32(linear: AffineMap) -> tuple[np.ndarray, ...]:
    """``m``, ``W`` and ``b`` of ``(x - m) W + b``, ``m`` near the mean, or a ValueError."""
    _refuse_lost_digits(linear.growth)
    m, W = linear.mean.astype(np.float32), linear.projection
    b = (m - linear.mean) @ W + linear.bias
    return m, W.astype(np.float32), b.astype(np.float32)


def _refuse_lost_digits(growth: float) -> None:
    error = np.finfo(np.float32).eps / 2 * growth
    if error > 1e-5:
        raise ValueError(
            "The map would lose its digits in float32: an estimated error of "
            f"{error:.1g} of a typical entry, where 1e-5 is accepted. Keep fewer components, "
            "set noise or shrinkage above 0, or first subtract the means of groups that are "
            "far apart."
        )


def dense(modules: Any, W: np.ndarray, b: np.ndarray) -> Any:
    """Return the module ``x W + b`` of sentence-transformers."""
    import torch

    return modules.Dense(
        *W.shape,
        activation_function=torch.nn.Identity(),
        init_weight=torch.from_numpy(np.ascontiguousarray(W.T)),
        init_bias=torch.from_numpy(b),
    )
