"""Glow on vectors: the invertible network of :class:`NormalizingFlow`.

A *step* of Glow (arXiv:1807.03039, table 1) is an ActNorm, a permutation and a coupling. In
BERT-flow's code the order of the dimensions is reversed, and one half shifts the other. A
network can read and write a half in any order, so here the halves change places.

Steps are grouped into *levels*. At the end of each, the half that was shifted last leaves the
flow for the latent vector, and the other half is what the next level gets, in the order of the
columns: an odd number of reversals before is not continued.
"""

import math
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

WIDTH = 32  # of the two hidden layers of a coupling, as in BERT-flow's code


class Standardize(nn.Module):
    """y = (x - loc) * scale, fixed once from the mean and the deviation of the data.

    This is ActNorm's data-dependent initialization, kept separate from what is trained: in the
    data's own units shifts would diverge on MiniLM's last layer (deviations down to 1e-32).
    """

    loc: Tensor
    scale: Tensor
    jitter: Tensor

    def __init__(self, n_features: int):
        super().__init__()
        self.register_buffer("loc", torch.zeros(n_features))
        self.register_buffer("scale", torch.ones(n_features))
        self.register_buffer("jitter", torch.zeros(n_features))

    def initialize(self, mean: np.ndarray, deviation: np.ndarray) -> None:
        """Fix loc and scale.

        The likelihood of a column that varies by no more than the rounding of its values has
        no bound. It is scaled like a typical column, and in training it is replaced by random
        numbers of deviation ``jitter``, at least ten roundings; 0 for every other column.
        """
        typical = math.sqrt(np.mean(np.square(deviation))) or 1.0
        limits = torch.finfo(self.loc.dtype)
        rounding = np.maximum(10.0 * limits.eps * np.abs(mean), limits.tiny**0.75)
        degenerate = deviation <= rounding
        jitter = np.maximum(typical, rounding)
        scales = np.where(degenerate, jitter, deviation)
        # A quarter of the range is left for later sums and products.
        if not limits.tiny**0.75 < scales.min() <= scales.max() < limits.max**0.75:
            raise ValueError(
                f"Columns of X have standard deviations of {np.min(deviation):.3g} to "
                f"{np.max(deviation):.3g}, out of the range of {str(self.loc.dtype)[6:]}. "
                "Scale X to about 1."
            )
        self.loc.copy_(torch.as_tensor(mean))
        self.scale.copy_(torch.as_tensor(1.0 / scales))
        self.jitter.copy_(torch.as_tensor(degenerate * jitter))

    def forward(self, x: Tensor) -> Tensor:
        return (x - self.loc) * self.scale

    def inverse(self, y: Tensor) -> Tensor:
        return y / self.scale + self.loc


class _Linear(nn.Linear):
    def reset_parameters(self) -> None:
        """Start at zero: `Linear` would draw from torch's global generator."""
        nn.init.zeros_(self.weight)
        nn.init.zeros_(self.bias)


class Step(nn.Module):
    """ActNorm and additive coupling: y1 = x1 a1 + b1 and y2 = x2 a2 + b2 + t(y1).

    ``log_scale`` and ``shift`` hold the logarithm of a, and b, for x1 followed by x2. The
    logarithm of the Jacobian determinant is the sum of ``log_scale`` for every row.
    """

    def __init__(self, n_conditioning: int, n_shifted: int):
        super().__init__()
        self.sizes = n_conditioning, n_shifted
        self.log_scale = nn.Parameter(torch.zeros(sum(self.sizes)))
        self.shift = nn.Parameter(torch.zeros(sum(self.sizes)))
        self.network: Any = nn.Sequential(
            _Linear(n_conditioning, WIDTH),
            nn.ReLU(),
            _Linear(WIDTH, WIDTH),
            nn.ReLU(),
            _Linear(WIDTH, n_shifted),
        )

    def initialize(self, rng: np.random.RandomState) -> None:
        """Draw the hidden layers' weights; the last stays zero, as in Glow, section 3.3."""
        for layer in self.network[:-1:2]:  # a ReLU follows each
            # Half of what keeps the variance through a ReLU (He et al., 2015): after one epoch
            # it fits better.
            std = math.sqrt(0.5 / layer.in_features)
            layer.weight.copy_(torch.as_tensor(rng.normal(0.0, std, layer.weight.shape)))

    def forward(self, x1: Tensor, x2: Tensor) -> tuple[Tensor, Tensor]:
        a1, a2 = self.log_scale.exp().split(self.sizes)
        b1, b2 = self.shift.split(self.sizes)
        y1 = torch.addcmul(b1, x1, a1)
        return y1, torch.addcmul(b2, x2, a2) + self.network(y1)

    def inverse(self, y1: Tensor, y2: Tensor) -> tuple[Tensor, Tensor]:
        a1, a2 = self.log_scale.neg().exp().split(self.sizes)
        b1, b2 = self.shift.split(self.sizes)
        return (y1 - b1) * a1, (y2 - self.network(y1) - b2) * a2


class Glow(nn.Module):
    """The whole flow, from u to z: the halves as they leave, then the rest."""

    def __init__(self, n_features: int, n_levels: int, depth: int):
        super().__init__()
        self.n_features = n_features
        self.standardize = Standardize(n_features)
        self.levels: Any = nn.ModuleList()
        width = n_features
        # A step needs 2 dimensions: small d have fewer levels.
        for _ in range(min(n_levels, n_features.bit_length() - 1)):
            halves, level = (width - width // 2, width // 2), nn.ModuleList()
            for _ in range(depth):
                halves = halves[::-1]
                level.append(Step(*halves))
            self.levels.append(level)
            width = halves[0]

    @torch.no_grad()
    def initialize(
        self, rng: np.random.RandomState, mean: np.ndarray, deviation: np.ndarray
    ) -> None:
        """Set the starting point, at which all that is trained is the identity.

        ``rng`` draws on the CPU, so that a seed gives the same start on every device.
        """
        self.standardize.initialize(mean, deviation)
        for level in self.levels:
            for step in level:
                step.initialize(rng)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Map u (n, d) to z (n, d); also return log |det dz/du|, shape (n,), in nats."""
        return self.encode(x), self.log_determinant().expand(x.shape[0])

    def inverse(self, z: Tensor) -> tuple[Tensor, Tensor]:
        """Map z (n, d) to u (n, d); also return log |det du/dz|, shape (n,), in nats."""
        return self.decode(z), -self.log_determinant().expand(z.shape[0])

    def encode(self, x: Tensor) -> Tensor:
        """Map u (n, d) to z (n, d)."""
        return self.through_levels(self.standardize(x))

    def decode(self, z: Tensor) -> Tensor:
        """Map z (n, d) to u (n, d)."""
        return self.standardize.inverse(self.back_through_levels(z))

    def log_prob(self, x: Tensor) -> Tensor:
        """Log-density of each row of x (n, d), shape (n,), in nats."""
        squares = self.encode(x).square().sum(dim=1)
        constant = self.n_features * math.log(2.0 * math.pi)
        return self.log_determinant() - 0.5 * (squares + constant)

    def log_determinant(self) -> Tensor:
        """Logarithm of the Jacobian determinant, that of all rows."""
        scales = [step.log_scale for level in self.levels for step in level]
        return self.standardize.scale.log().sum() + torch.cat(scales).sum()

    def through_levels(self, x: Tensor) -> Tensor:
        """Map standardized columns to z."""
        leaving = []
        for level in self.levels:
            x1, x2 = x.split(level[0].sizes[::-1], dim=1)
            for step in level:
                x1, x2 = step(x2, x1)
            leaving.append(x2)
            x = x1
        return torch.cat((*leaving, x), dim=1)

    def back_through_levels(self, z: Tensor) -> Tensor:
        """Map z to standardized columns."""
        sizes = [level[-1].sizes[1] for level in self.levels]
        *leaving, x = z.split((*sizes, z.shape[1] - sum(sizes)), dim=1)
        for level in reversed(self.levels):
            x1, x2 = x, leaving.pop()
            for step in reversed(level):
                x2, x1 = step.inverse(x1, x2)
            x = torch.cat((x1, x2), dim=1)
        return x
