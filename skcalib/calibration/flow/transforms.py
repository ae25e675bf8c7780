"""Invertible transforms that a Glow consists of.

Every transform has ``forward(x) -> (y, logabsdet)`` and ``inverse(y) -> x``. ``logabsdet`` is
the logarithm of the absolute Jacobian determinant, in nats: of shape (n,) or, where it is the
same for all rows, a scalar.
"""

import math
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn


class ActNorm(nn.Module):
    """y = x * exp(log_scale) + shift, one scale and one shift per dimension."""

    def __init__(self, n_features: int):
        super().__init__()
        self.log_scale = nn.Parameter(torch.zeros(n_features))
        self.shift = nn.Parameter(torch.zeros(n_features))

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        return torch.addcmul(self.shift, x, self.log_scale.exp()), self.log_scale.sum()

    def inverse(self, y: Tensor) -> Tensor:
        return (y - self.shift) * torch.exp(-self.log_scale)


class Permutation(nn.Module):
    """A fixed order of the dimensions: reversed, until another ``index`` is written in."""

    index: Tensor

    def __init__(self, n_features: int):
        super().__init__()
        self.register_buffer("index", torch.arange(n_features - 1, -1, -1))

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        # x[:, index] gives the same, but takes four times as long.
        return x.index_select(1, self.index), x.new_zeros(())

    def inverse(self, y: Tensor) -> Tensor:
        return y.index_select(1, self.index.argsort())


class LULinear(nn.Module):
    """A learned matrix in place of the permutation, y = P L U x.

    P reverses the dimensions, L is unit lower triangular and U upper triangular with the
    diagonal exp(log_diagonal), so that the determinant costs a sum (Glow, equations 10
    and 11). L = U = I at the start: the step begins as the plain reversal.
    """

    def __init__(self, n_features: int):
        super().__init__()
        self.lower = nn.Parameter(torch.zeros(n_features, n_features))
        self.upper = nn.Parameter(torch.zeros(n_features, n_features))
        self.log_diagonal = nn.Parameter(torch.zeros(n_features))

    def _triangles(self) -> tuple[Tensor, Tensor]:
        lower = self.lower.tril(-1) + torch.ones_like(self.log_diagonal).diag()
        return lower, self.upper.triu(1) + self.log_diagonal.exp().diag()

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        lower, upper = self._triangles()
        return (x @ upper.T @ lower.T).flip(1), self.log_diagonal.sum()

    def inverse(self, y: Tensor) -> Tensor:
        lower, upper = self._triangles()
        x = torch.linalg.solve_triangular(lower, y.flip(1).T, upper=False, unitriangular=True)
        return torch.linalg.solve_triangular(upper, x, upper=True).T


class _Linear(nn.Linear):
    def reset_parameters(self) -> None:
        """Start at zero: `Linear` would draw from torch's global generator."""
        nn.init.zeros_(self.weight)
        nn.init.zeros_(self.bias)


class Coupling(nn.Module):
    """The first half of x conditions a shift (and a scale) of the second half.

    Additive: y2 = x2 + t(x1). Affine: y2 = x2 * exp(s(x1)) + t(x1), with s at most 2 in
    magnitude: Glow's sigmoid reaches zero, and the inverse divides by it. The first half has
    d // 2 dimensions, so that the middle one of an odd d is always among the transformed ones.
    """

    def __init__(self, n_features: int, width: int, affine: bool):
        super().__init__()
        self.affine = affine
        self.n_conditioning = n_features // 2
        self.n_transformed = n_features - self.n_conditioning
        self.network: Any = nn.Sequential(
            _Linear(self.n_conditioning, width),
            nn.ReLU(),
            _Linear(width, width),
            nn.ReLU(),
            _Linear(width, self.n_transformed * (1 + affine)),
        )

    def initialize(self, rng: np.random.RandomState) -> None:
        """Draw the hidden layers' weights; the last stays zero, as in Glow, section 3.3."""
        for layer in self.network[:-1:2]:  # a ReLU follows each
            # Half of what keeps the variance through a ReLU (He et al., 2015): after one epoch
            # it fits better.
            std = math.sqrt(0.5 / layer.in_features)
            layer.weight.copy_(torch.as_tensor(rng.normal(0.0, std, layer.weight.shape)))

    def _condition(self, x1: Tensor) -> tuple[Tensor, Tensor | None]:
        out = self.network(x1)
        if not self.affine:
            return out, None
        shift, raw = out.split(self.n_transformed, dim=1)
        return shift, 2.0 * torch.tanh(raw / 2.0)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        x1, x2 = x.split((self.n_conditioning, self.n_transformed), dim=1)
        shift, log_scale = self._condition(x1)
        if log_scale is None:
            return torch.cat((x1, x2 + shift), dim=1), x.new_zeros(())
        y2 = torch.addcmul(shift, x2, log_scale.exp())
        return torch.cat((x1, y2), dim=1), log_scale.sum(dim=1)

    def inverse(self, y: Tensor) -> Tensor:
        y1, y2 = y.split((self.n_conditioning, self.n_transformed), dim=1)
        shift, log_scale = self._condition(y1)
        x2 = y2 - shift if log_scale is None else (y2 - shift) * torch.exp(-log_scale)
        return torch.cat((y1, x2), dim=1)
