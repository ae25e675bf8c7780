"""The steps after an encoder, and each run of linear ones as one map."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from sklearn.utils.validation import check_is_fitted

from skcalib.calibration import LinearMap
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
        if isinstance(part, LinearMap) and parts and isinstance(parts[-1], LinearMap):
            part = parts.pop().then(part)
        parts.append(part)
    return parts


def not_linear(steps: Sequence[Any]) -> str:
    """Reason of the first step that no linear map can hold, or ""."""
    return next((reason for step in steps if isinstance(reason := linear_map(step), str)), "")


def one_map(*steps: Any) -> LinearMap:
    """Fitted steps as one linear map, or a ValueError."""
    parts = combined(fitted_steps(*steps))
    if reason := not_linear([part for part in parts if not isinstance(part, LinearMap)]):
        raise ValueError(f"One linear map cannot hold {reason}.")
    [linear] = parts
    return linear


def affine_float32(linear: LinearMap) -> tuple[np.ndarray, np.ndarray]:
    """``W`` of shape (d, k) and ``b = bias - mean W``, in float32."""
    W = linear.projection
    return W.astype(np.float32), (linear.bias - linear.mean @ W).astype(np.float32)


def centered_float32(linear: LinearMap) -> tuple[np.ndarray, ...]:
    """``m``, ``W`` and ``b`` of ``(x - m) W + b``, in float32, with m near the mean."""
    m, W = linear.mean.astype(np.float32), linear.projection
    b = (m - linear.mean) @ W + linear.bias
    return m, W.astype(np.float32), b.astype(np.float32)


def dense(modules: Any, W: np.ndarray, b: np.ndarray) -> Any:
    """Return the module ``x W + b`` of sentence-transformers."""
    import torch

    return modules.Dense(
        *W.shape,
        activation_function=torch.nn.Identity(),
        init_weight=torch.from_numpy(np.ascontiguousarray(W.T)),
        init_bias=torch.from_numpy(b),
    )
