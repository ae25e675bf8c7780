"""Linear maps, such as a whitening, as a torch module."""

import torch
from torch import nn

from skcalib.calibration.whitening.linear_map import AffineMap


class WhiteningModule(nn.Module):
    """``x -> (x - mean) W + bias``, the mean subtracted before the product.

    The product is computed in float64 for float64 input, and if float32 is not ``safe`` for the
    digits of float32 input.
    """

    mean: torch.Tensor
    weight: torch.Tensor
    bias: torch.Tensor

    def __init__(self, linear: AffineMap):
        super().__init__()
        self.safe = linear.float32_is_safe
        buffers = {"mean": linear.mean, "weight": linear.projection, "bias": linear.bias}
        for name, array in buffers.items():
            self.register_buffer(name, torch.as_tensor(array, dtype=torch.float64).clone())

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Map the last axis of ``x``, in its own dtype."""
        centred = x - self.mean  # float64, by the mean's
        work = torch.float32 if self.safe and x.dtype != torch.float64 else self.weight.dtype
        return (centred.to(work) @ self.weight.to(work) + self.bias.to(work)).to(x.dtype)
