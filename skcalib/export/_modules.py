"""Torch modules of fitted steps, from vectors to vectors."""

from functools import singledispatch
from typing import Any

import numpy as np
import torch
from sklearn.preprocessing import Normalizer
from torch import nn
from torch.nn.functional import normalize

from skcalib.calibration import LinearMap
from skcalib.calibration.flow import NormalizingFlow
from skcalib.calibration.glow import Latent
from skcalib.calibration.neighbors import ALPHA, ZERO, NeighborSmoothing
from skcalib.cosines import EQUAL


@singledispatch
def module_of(part: Any) -> nn.Module:
    """Torch module of a linear map, or of a fitted step that has none."""
    raise TypeError(f"{part!r:.80} cannot be exported: it is not linear, and no torch module.")


@module_of.register
def _(part: LinearMap) -> nn.Module:
    return LinearModule(part)


@module_of.register
def _(part: Normalizer) -> nn.Module:
    return UnitLength()


@module_of.register
def _(part: NormalizingFlow) -> nn.Module:
    return Latent(part.to_torch()).requires_grad_(False)


@module_of.register
def _(part: NeighborSmoothing) -> nn.Module:
    return SmoothingModule(part.vectors_, **part.parameters_)


class LinearModule(nn.Module):
    """``x -> (x - mean) W + bias``, the mean subtracted before the product.

    The product is computed in float64 for float64 input, and if float32 is not ``safe`` for the
    digits of float32 input.
    """

    mean: torch.Tensor
    weight: torch.Tensor
    bias: torch.Tensor

    def __init__(self, linear: LinearMap):
        super().__init__()
        self.safe = linear.float32_is_safe
        buffers = {"mean": linear.mean, "weight": linear.projection, "bias": linear.bias}
        for name, array in buffers.items():
            # A copy, since an array may be read-only or have negative strides.
            self.register_buffer(name, torch.from_numpy(np.array(array, np.float64, order="C")))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Map the last axis of ``x``, in its own dtype."""
        centered = x - self.mean  # float64, by the mean's
        work = torch.float32 if self.safe and x.dtype != torch.float64 else self.weight.dtype
        return (centered.to(work) @ self.weight.to(work) + self.bias.to(work)).to(x.dtype)


class UnitLength(nn.Module):
    """Scale vectors to unit length."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Scale the last axis of ``x``; zeros stay zeros."""
        return _unit(x)


class SmoothingModule(nn.Module):
    """``unit(x + weight Σ w_j x_j / Σ w_j)`` over the nearest vectors, ``w = cos^3``.

    Vectors are searched in float32 and weighed in float64, even if ``half()`` keeps them in
    float16.
    """

    vectors: torch.Tensor

    def __init__(self, vectors: np.ndarray, n_neighbors: int, weight: float):
        super().__init__()
        self.register_buffer("vectors", torch.from_numpy(vectors).clone())
        self.n_neighbors, self.weight = n_neighbors, weight

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Smooth vectors of shape (..., n_features), in their own dtype."""
        unit = _unit(x.double())
        k = min(self.n_neighbors + 1, len(self.vectors))  # since a text finds itself
        rows = (unit.float() @ self.vectors.float().T).topk(k).indices
        near = _unit(self.vectors[rows].double())  # (..., k, n_features)
        cosines = (near @ unit[..., None])[..., 0]
        # A vector equal to x is left out, or else the farthest if there is one too many.
        is_equal = cosines.amax(-1, keepdim=True) >= EQUAL
        farthest = cosines.argmin(-1, keepdim=True) if k > self.n_neighbors else -1
        left_out = torch.where(is_equal, cosines.argmax(-1, keepdim=True), farthest)
        counts = (cosines > ZERO) & (torch.arange(k, device=x.device) != left_out)
        weights = torch.where(counts, cosines.abs() ** ALPHA, 0.0)
        total = weights.sum(-1, keepdim=True)
        weights = self.weight * weights / torch.where(total > 0, total, 1.0)
        return _unit(unit + (weights[..., None, :] @ near)[..., 0, :]).to(x.dtype)


def _unit(x: torch.Tensor) -> torch.Tensor:
    """Scale rows of any magnitude to unit length; zeros stay zeros."""
    largest = x.abs().amax(-1, keepdim=True)
    return normalize(x / torch.where(largest > 0, largest, 1.0), dim=-1)
