"""A fitted whitening as the linear map of other libraries.

Other libraries compute ``x W + b`` in float32, with the mean in the bias. The error of that can
be estimated from the fit, and a map that would lose the vectors' digits is refused.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

import numpy as np

from skcalib._whitening.linear_map import WhiteningMap

__all__ = [
    "affine_float32",
    "centred_float32",
    "dense",
    "import_package",
    "to_faiss",
    "to_sentence_transformers",
]

# Largest error, relative to a typical entry of the output.
MAX_ERROR = 1e-5


def affine_float32(linear: WhiteningMap, caller: str) -> tuple[np.ndarray, np.ndarray]:
    """``W`` of shape (d, k) and ``b = -mean W``, in float32, or a ValueError."""
    _check_digits(linear.uncentred_growth, f"{caller} gives a map with the mean in its bias")
    W = linear.projection
    return W.astype(np.float32), (-linear.mean @ W).astype(np.float32)


def centred_float32(
    linear: WhiteningMap, caller: str
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """``m``, ``W`` and ``b`` of ``(x - m) W + b``, ``m`` near the mean, or a ValueError."""
    _check_digits(linear.growth, f"{caller} gives a map")
    m, W = linear.mean.astype(np.float32), linear.projection
    return m, W.astype(np.float32), ((m - linear.mean) @ W).astype(np.float32)


def _check_digits(growth: float, what: str) -> None:
    error = np.finfo(np.float32).eps / 2 * growth
    if error > MAX_ERROR:
        raise ValueError(
            f"{what} in float32, and this whitening would lose its digits there: an estimated "
            f"error of {error:.1g} of a typical entry, where {MAX_ERROR:g} is accepted. Its "
            "weakest directions are amplified too much: keep fewer components, or set noise or "
            "shrinkage above 0."
        )


def to_sentence_transformers(linear: WhiteningMap) -> Any:
    """Return a ``Dense`` module with bias and no activation."""
    caller = "to_sentence_transformers"
    W, b = affine_float32(linear, caller)
    modules = import_package(
        caller,
        "sentence-transformers",
        "sentence_transformers.sentence_transformer.modules",
        "sentence_transformers.models",  # its place before sentence-transformers 6
    )
    return dense(modules, W, b)


def dense(modules: Any, W: np.ndarray, b: np.ndarray) -> Any:
    """Return the module ``x W + b`` of sentence-transformers."""
    import torch

    return modules.Dense(
        *W.shape,
        activation_function=torch.nn.Identity(),
        init_weight=torch.from_numpy(np.ascontiguousarray(W.T)),
        init_bias=torch.from_numpy(b),
    )


def to_faiss(linear: WhiteningMap, normalize: bool) -> Any:
    """Return a trained ``LinearTransform`` with bias, or an index of cosines behind it."""
    W, b = affine_float32(linear, "to_faiss")
    faiss = import_package("to_faiss", "faiss-cpu", "faiss")
    transform = faiss.LinearTransform(*W.shape, True)
    faiss.copy_array_to_vector(np.ascontiguousarray(W.T).ravel(), transform.A)
    faiss.copy_array_to_vector(b, transform.b)
    transform.is_trained = True
    if not normalize:
        return transform
    width = W.shape[1]
    unit = faiss.NormalizationTransform(width, 2.0)
    index = faiss.IndexPreTransform(unit, faiss.IndexFlatIP(width))
    index.prepend_transform(transform)
    return index


def import_package(caller: str, package: str, *names: str) -> Any:
    """Import the first of the named modules that there is."""
    for name in names:
        try:
            return import_module(name)
        except ImportError as error:
            reason = error
    raise ImportError(
        f"{caller} needs the package {package}, which cannot be imported ({reason}). Install "
        f"it with: pip install {package}"
    ) from reason
