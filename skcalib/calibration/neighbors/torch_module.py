"""Smoothing over neighbors as a torch module."""

import numpy as np
import torch
from torch import nn
from torch.nn.functional import normalize

from skcalib.calibration.neighbors.search import EQUAL


class SmoothingModule(nn.Module):
    """``unit(x + weight Σ w_j x_j / Σ w_j)`` over the nearest vectors, ``w = cos^alpha``.

    They are searched in float32 and weighed in float64, also where ``half()`` keeps them in
    half the memory.
    """

    vectors: torch.Tensor

    def __init__(self, vectors: np.ndarray, n_neighbors: int, weight: float, alpha: float):
        super().__init__()
        self.register_buffer("vectors", torch.from_numpy(vectors).clone())
        self.n_neighbors, self.weight, self.alpha = n_neighbors, weight, alpha

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Smooth vectors of shape (..., n_features), in their own dtype."""
        unit = _unit(x.double())
        k = min(self.n_neighbors + 1, len(self.vectors))  # since a text finds itself
        rows = (unit.float() @ self.vectors.float().T).topk(k).indices
        near = _unit(self.vectors[rows].double())  # (..., k, n_features)
        cosines = (near @ unit[..., None])[..., 0]
        # One that is equal to x is left out, or else the farthest if there is one too many.
        is_equal = cosines.amax(-1, keepdim=True) >= EQUAL
        farthest = cosines.argmin(-1, keepdim=True) if k > self.n_neighbors else -1
        left_out = torch.where(is_equal, cosines.argmax(-1, keepdim=True), farthest)
        counts = (cosines > 0) & (torch.arange(k, device=x.device) != left_out)
        weights = torch.where(counts, cosines.abs() ** self.alpha, 0.0)
        total = weights.sum(-1, keepdim=True)
        weights = self.weight * weights / torch.where(total > 0, total, 1.0)
        return _unit(unit + (weights[..., None, :] @ near)[..., 0, :]).to(x.dtype)


def _unit(x: torch.Tensor) -> torch.Tensor:
    """Scale rows of any magnitude to unit length; zeros stay zeros."""
    largest = x.abs().amax(-1, keepdim=True)
    return normalize(x / torch.where(largest > 0, largest, 1.0), dim=-1)
