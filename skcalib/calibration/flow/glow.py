"""Glow on vectors: the invertible network of :class:`NormalizingFlow`.

Glow (arXiv:1807.03039, table 1) is built from *steps* of three transforms, ActNorm, a
permutation and a coupling, grouped into *levels*. After each level but the last, half of the
dimensions leave the flow for the latent vector and the other half go on.
"""

import math
from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from skcalib.calibration.flow.transforms import ActNorm, Coupling, LULinear, Permutation


class Standardize(nn.Module):
    """y = (x - loc) * scale, fixed once from the mean and the deviation of the data.

    With ``rotates``, y = ((x - loc) axes) * scale, the columns of axes being principal axes.

    This is ActNorm's data-dependent initialization, kept separate from what is trained: an
    ActNorm learns its shifts in standard deviations. In the data's own units they would diverge
    on the last layer of MiniLM (deviations down to 1e-32).
    """

    loc: Tensor
    scale: Tensor
    jitter: Tensor
    axes: Tensor | None

    def __init__(self, n_features: int, rotates: bool = False):
        super().__init__()
        self.register_buffer("loc", torch.zeros(n_features))
        self.register_buffer("axes", torch.eye(n_features) if rotates else None)
        self.register_buffer("scale", torch.ones(n_features))
        self.register_buffer("jitter", torch.zeros(n_features))

    def initialize(
        self, mean: np.ndarray, deviation: np.ndarray, axes: np.ndarray | None = None
    ) -> None:
        """Fix loc and scale. With axes, deviations and columns are along the axes.

        A column that varies by no more than the rounding of its values is degenerate: its
        likelihood has no bound, and training would scale it towards infinity. It is scaled
        like a column of typical deviation instead, and in training random numbers replace it.
        ``jitter`` is their deviation, 0 for every other column. It is at least ten roundings of
        the column's values, so that it is not lost when it is added to them.
        """
        typical = math.sqrt(np.mean(np.square(deviation))) or 1.0
        limits = torch.finfo(self.loc.dtype)
        if axes is None:  # columns may have different units
            magnitude = np.abs(mean)
        else:  # along an axis the roundings of all columns add up, each by its share
            magnitude = np.hypot(typical, np.sqrt(np.square(mean) @ np.square(axes)))
        rounding = np.maximum(10.0 * limits.eps * magnitude, limits.tiny**0.75)
        degenerate = deviation <= rounding
        jitter = np.maximum(typical, rounding)
        units = np.where(degenerate, jitter, deviation)
        # A quarter of the range is left for later sums and products.
        if not limits.tiny**0.75 < units.min() <= units.max() < limits.max**0.75:
            raise ValueError(
                f"Columns of X have standard deviations of {np.min(deviation):.3g} to "
                f"{np.max(deviation):.3g}, out of the range of {str(self.loc.dtype)[6:]}. "
                "Scale X to about 1."
            )
        self.loc.copy_(torch.as_tensor(mean))
        self.scale.copy_(torch.as_tensor(1.0 / units))
        self.jitter.copy_(torch.as_tensor(degenerate * jitter))
        if self.axes is not None:
            self.axes.copy_(torch.as_tensor(axes))

    def columns(self, x: Tensor) -> Tensor:
        """Map x (n, d) to y (n, d)."""
        x = x - self.loc
        return (x if self.axes is None else x @ self.axes).mul_(self.scale)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        return self.columns(x), self.scale.log().sum()

    def inverse(self, y: Tensor) -> Tensor:
        x = y / self.scale
        return (x if self.axes is None else x @ self.axes.T) + self.loc


class Glow(nn.Module):
    """The whole flow, from u to z.

    z holds the halves in the order in which they leave; at the end, what is left after the last
    level. Parameters are those of :class:`NormalizingFlow`; with ``noise`` the flow begins with
    a rotation to principal axes.

    ``gain``, of shape (d,), filters what the flow maps: :meth:`forward` multiplies the
    standardized columns by it, :meth:`inverse` divides by it. Density and samples ignore it.
    """

    gain: Tensor

    def __init__(
        self,
        n_features: int,
        n_levels: int,
        depth: int,
        coupling_width: int,
        coupling: str,
        permutation: str,
        noise: float | str = 0.0,
    ):
        super().__init__()
        self.n_features = n_features
        self.coupling, self.permutation = coupling, permutation
        self.standardize = Standardize(n_features, rotates=noise != 0)
        self.register_buffer("gain", torch.ones(n_features))
        mixing = LULinear if permutation == "lu" else Permutation
        # A coupling needs 2 dimensions: small d have fewer levels.
        n_levels = min(n_levels, n_features.bit_length() - 1)
        self.widths = [n_features >> level for level in range(n_levels)]
        self.levels: Any = nn.ModuleList()
        for width in self.widths:
            level = nn.ModuleList()
            for _ in range(depth):
                halves = Coupling(width, coupling_width, coupling == "affine")
                level.extend((ActNorm(width), mixing(width), halves))
            self.levels.append(level)

    def arrays(self) -> dict[str, np.ndarray]:
        """Copy parameters and buffers into NumPy arrays."""
        return {name: t.cpu().numpy().copy() for name, t in self.state_dict().items()}

    def steps(self) -> Iterator[tuple[Any, Any, Any, bool]]:
        """Yield ActNorm, permutation and coupling of each step, and whether a level ends."""
        for level in self.levels:
            for start in range(0, len(level), 3):
                yield *level[start : start + 3], start + 3 == len(level)

    def initialize(
        self,
        rng: np.random.RandomState,
        mean: np.ndarray,
        deviation: np.ndarray,
        axes: np.ndarray | None = None,
        whitening: np.ndarray | None = None,
    ) -> None:
        """Set the starting point: a standardization, then identities and permutations.

        A flow with ``noise`` needs principal axes in columns, the deviations along them, and
        ``whitening``, the factors that the map has in place of 1 / deviation. ``rng`` draws on
        the CPU, so that a seed gives the same start on every device.
        """
        with torch.no_grad():
            self.standardize.initialize(mean, deviation, axes)
            if whitening is not None:
                scale = self.standardize.scale.double().numpy()
                # The inverse divides by the gain. With this lower limit, a rounding error of
                # float32 stays below 1e-4 of a column's deviation.
                self.gain.copy_(torch.as_tensor(whitening / scale).clamp(min=1e-3))
            for module in self.modules():
                if isinstance(module, Permutation) and self.permutation == "shuffle":
                    module.index.copy_(torch.as_tensor(rng.permutation(len(module.index))))
                elif isinstance(module, Coupling):
                    module.initialize(rng)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Map u (n, d) to z (n, d); also return log |det dz/du|, shape (n,), in nats."""
        x, logabsdet = self.standardize(x)
        z, term = self.through_levels(x * self.gain)
        # Not len(z): in a graph that would fix the number of rows.
        return z, (logabsdet + self.gain.log().sum() + term).expand(z.shape[0])

    def inverse(self, z: Tensor) -> tuple[Tensor, Tensor]:
        """Map z (n, d) to u (n, d); also return log |det du/dz|, shape (n,), in nats."""
        u = self.back(z)
        return u, -self.forward(u)[1]

    def encode(self, x: Tensor) -> Tensor:
        """Map u (n, d) to z (n, d)."""
        return self.forward(x)[0]

    def back(self, z: Tensor) -> Tensor:
        """Map z (n, d) to u (n, d)."""
        return self.standardize.inverse(self.back_through_levels(z) / self.gain)

    def log_prob(self, x: Tensor) -> Tensor:
        """Log-density of each row of x (n, d), shape (n,), in nats."""
        x, logabsdet = self.standardize(x)
        z, term = self.through_levels(x)
        base = -0.5 * (z.square().sum(dim=1) + self.n_features * math.log(2.0 * math.pi))
        return base + logabsdet + term

    def decode(self, z: Tensor) -> Tensor:
        """Map z (n, d) to the u (n, d) whose density follows from that of z."""
        return self.standardize.inverse(self.back_through_levels(z))

    def through_levels(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Map standardized columns to z; also return the log-determinant, in nats."""
        logabsdet, leaving = x.new_zeros(()), []
        for level in self.levels:
            for transform in level:
                x, term = transform(x)
                logabsdet = logabsdet + term
            if level is not self.levels[-1]:
                kept = x.shape[1] // 2
                leaving.append(x[:, kept:])
                x = x[:, :kept]
        return torch.cat((*leaving, x), dim=1), logabsdet

    def back_through_levels(self, z: Tensor) -> Tensor:
        """Map z to standardized columns."""
        sizes = [width - width // 2 for width in self.widths[:-1]]
        *leaving, x = z.split((*sizes, self.widths[-1]), dim=1)
        for level in reversed(self.levels):
            if level is not self.levels[-1]:
                x = torch.cat((x, leaving.pop()), dim=1)
            for transform in reversed(level):
                x = transform.inverse(x)
        return x


class Latent(nn.Module):
    """z of a flow, of the last axis, without the log-determinant."""

    def __init__(self, flow: Any):
        super().__init__()
        self.flow = flow

    def forward(self, x: Tensor) -> Tensor:
        rows = x.reshape(-1, x.shape[-1])
        return self.flow.encode(rows).reshape(x.shape)
