"""A fitted whitening as the linear map of other libraries.

Those map ``x W + b`` in float32, the mean inside the bias. What that costs is known beforehand,
and a map that would lose the vectors' digits is refused.
"""

from __future__ import annotations

from importlib import import_module

import numpy as np

from skcalib._spectrum import WhiteningMap

__all__ = ["affine_float32", "to_faiss", "to_sentence_transformers"]

# Estimated error beside the typical entry of the output.
MAX_ERROR = 1e-5


def affine_float32(linear: WhiteningMap, caller: str) -> tuple[np.ndarray, np.ndarray]:
    """``W`` of shape (d, k) and ``b = -mean W``, in float32.

    Raises
    ------
    ValueError
        If ``x W + b`` in float32 would miss ``(x - mean) W`` by more than 1e-5.
    """
    error = np.finfo(np.float32).eps / 2 * linear.uncentred_growth
    if error > MAX_ERROR:
        raise ValueError(
            f"{caller} gives a map in float32 with the mean in its bias, and this whitening "
            f"would lose its digits there: an estimated error of {error:.1g} of a typical "
            f"entry, where {MAX_ERROR:g} is accepted. Its weakest directions are amplified "
            "too much: keep fewer components, or set shrinkage above 0."
        )
    W = linear.projection
    return W.astype(np.float32), (-linear.mean @ W).astype(np.float32)


def to_sentence_transformers(linear: WhiteningMap):
    """Return a ``Dense`` module with bias and no activation."""
    caller = "to_sentence_transformers"
    W, b = affine_float32(linear, caller)
    modules = _import(
        caller,
        "sentence-transformers",
        "sentence_transformers.sentence_transformer.modules",
        "sentence_transformers.models",  # its place before sentence-transformers 6
    )
    import torch

    return modules.Dense(
        *W.shape,
        bias=True,
        activation_function=torch.nn.Identity(),
        init_weight=torch.from_numpy(np.ascontiguousarray(W.T)),
        init_bias=torch.from_numpy(b),
    )


def to_faiss(linear: WhiteningMap):
    """Return a trained ``LinearTransform`` with bias."""
    W, b = affine_float32(linear, "to_faiss")
    faiss = _import("to_faiss", "faiss-cpu", "faiss")
    transform = faiss.LinearTransform(*W.shape, True)
    faiss.copy_array_to_vector(np.ascontiguousarray(W.T).ravel(), transform.A)
    faiss.copy_array_to_vector(b, transform.b)
    transform.is_trained = True
    return transform


def _import(caller: str, package: str, *names: str):
    """Import the first module there is of a package that may be missing."""
    for name in names:
        try:
            return import_module(name)
        except ImportError as error:
            reason = error
    raise ImportError(
        f"{caller} needs the package {package}, which cannot be imported ({reason}). Install "
        f"it with: pip install {package}"
    ) from reason
