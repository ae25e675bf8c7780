"""The steps after an encoder, and each run of linear ones as one map."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from sklearn.utils.validation import check_is_fitted

from skcalib.calibration import AffineMap
from skcalib.calibration.step import flat, linear_map


def fitted_steps(*steps: Any) -> list[Any]:
    """Return steps, and those of pipelines, all fitted and of a kind that exports know."""
    if not (flattened := [*flat(*steps)]):
        raise ValueError("Got no step; expected fitted steps, such as a Whitening.")
    check_steps(flattened)
    return flattened


def check_steps(steps: Sequence[Any]) -> None:
    """Raise an error unless all steps are fitted and of a kind that exports know."""
    for step in steps:
        check_is_fitted(step)
        linear_map(step)


def combined(steps: Sequence[Any]) -> list[Any]:
    """Return steps, with each run of linear steps combined into one map."""
    parts: list[Any] = []
    for step in steps:
        part = step if isinstance(linear := linear_map(step), str) else linear
        if isinstance(part, AffineMap) and parts and isinstance(parts[-1], AffineMap):
            part = parts.pop().then(part)
        parts.append(part)
    return parts


def not_linear(steps: Sequence[Any]) -> str:
    """Reason of the first step that no linear map can hold, or ""."""
    return next((reason for step in steps if isinstance(reason := linear_map(step), str)), "")


def one_map(*steps: Any) -> AffineMap:
    """Fitted steps as one linear map, or a ValueError."""
    parts = combined(fitted_steps(*steps))
    if reason := not_linear([part for part in parts if not isinstance(part, AffineMap)]):
        raise ValueError(f"One linear map cannot hold {reason}.")
    [linear] = parts
    return linear


def affine_float32(linear: AffineMap) -> tuple[np.ndarray, np.ndarray]:
    """``W`` of shape (d, k) and ``b = bias - mean W``, in float32, or a ValueError."""
    if linear.column_variance is None or linear.mean_square is None:
        raise ValueError(
            "The map may lose its digits in float32: a step does not keep the variances of its "
            "input, such as StandardScaler(with_std=False). Use Whitening(power=0) in its "
            "place, or to_torch, which computes in float64."
        )
    _refuse_lost_digits(linear.uncentered_growth)
    W = linear.projection
    return W.astype(np.float32), (linear.bias - linear.mean @ W).astype(np.float32)


def centered_float32(linear: AffineMap) -> tuple[np.ndarray, ...]:
    """``m``, ``W`` and ``b`` of ``(x - m) W + b``, ``m`` near the mean, or a ValueError."""
    if np.isfinite(linear.growth):  # else unknown; the export is compared with the pipeline
        _refuse_lost_digits(linear.growth)
    m, W = linear.mean.astype(np.float32), linear.projection
    b = (m - linear.mean) @ W + linear.bias
    return m, W.astype(np.float32), b.astype(np.float32)


def _refuse_lost_digits(growth: float) -> None:
    error = np.finfo(np.float32).eps / 2 * growth
    if error > 1e-5:
        raise ValueError(
            "The map would lose its digits in float32: an estimated error of "
            f"{error:.3g} of a typical entry, where 1e-05 is accepted. Keep fewer components, "
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
