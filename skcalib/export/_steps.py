"""Fitted steps behind an encoder: what an export may ask of each.

An estimator of skcalib that can be exported says so itself. ``_not_linear`` is "" if it has a
``_linear_map``, or else why it has none, and what to do about it. ``to_torch()`` is its torch
module, and ``_in_graph(dtype)`` the one for a graph of ONNX, where that is another.
"""

import copy
from collections.abc import Sequence
from typing import Any

import numpy as np
from sklearn import config_context
from sklearn.preprocessing import Normalizer

from skcalib._groups.estimator import GroupErasure
from skcalib._neighbors.estimator import NeighborSmoothing
from skcalib._whitening.estimator import Whitening


def check_step(step: Any, caller: str) -> None:
    """Refuse a step that no export knows."""
    if not isinstance(step, Normalizer) and not hasattr(step, "_not_linear"):
        raise TypeError(
            f"{caller} cannot export a {type(step).__name__}: after the BertEncoder it accepts "
            "calibrators of skcalib with to_torch(), and the Normalizer of scikit-learn."
        )
    if isinstance(step, Normalizer) and step.norm != "l2":
        raise ValueError(
            f"{caller} needs Normalizer(norm='l2'), not norm={step.norm!r}: other "
            "libraries scale to unit length."
        )


def for_export(step: Any) -> Any:
    """Return a copy that searches exactly, and knows no names of columns."""
    step = copy.copy(step)
    vars(step).pop("feature_names_in_", None)  # of the frames that `set_output` asked for
    if isinstance(step, NeighborSmoothing):
        step.neighbors_ = None
    return step


def joined(steps: Sequence[Any]) -> tuple[Any, ...]:
    """Combine each erasure with the whitening after it."""
    found: list[Any] = []
    for step in steps:
        if found and isinstance(found[-1], GroupErasure) and isinstance(step, Whitening):
            step = found.pop().joined(step)
        found.append(step)
    return tuple(found)


def apply(steps: Sequence[Any], vectors: Any) -> np.ndarray:
    """Transform vectors by fitted steps, into arrays whatever `set_output` asks for."""
    with config_context(transform_output="default"):
        for step in steps:
            vectors = step.transform(np.asarray(vectors))
    return np.asarray(vectors)


def not_linear(steps: Sequence[Any]) -> str:
    """Name a step that no linear map can hold, and what to do about it."""
    return next(filter(None, (getattr(step, "_not_linear", "") for step in steps)), "")


def ends_at_unit_length(steps: Sequence[Any]) -> bool:
    """Whether the last step scales to unit length."""
    return bool(steps) and isinstance(steps[-1], Normalizer)


def differs(steps: Sequence[Any], vectors: np.ndarray, expected: np.ndarray) -> bool:
    """Whether vectors differ from those of the pipeline by more than rounding.

    Exact whitening amplifies the float32 differences between forward passes. They may also
    decide which of two equally near texts is a neighbor: after a smoothing most vectors must
    be equal, not all.
    """
    typical = np.sqrt(np.mean(np.square(expected, dtype=np.float64)))
    difference = np.abs(vectors - expected).max(axis=1)
    smooths = any(isinstance(step, NeighborSmoothing) for step in steps)
    return not (np.median if smooths else np.max)(difference) <= 1e-3 * typical
