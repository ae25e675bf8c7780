"""Linear layers with weights packed for oneDNN, if this build of torch supports it.

On a CPU an encoder spends nearly all its time in linear layers. They are two to three times as
fast as `torch.nn.functional.linear`, which gets the weight in rows at every call, if the weight
is packed into oneDNN's own block layout once, at loading. torch packs weights like this when it
compiles a frozen model, but has no public function for it. This module uses the two private
operators. It tests them before use; if they are missing or wrong, the layers stay unchanged.
"""

from __future__ import annotations

from functools import cache

import torch
from torch import nn


class PackedLinear(nn.Module):
    """A frozen linear layer with a packed weight, which multiplies in float32 or bfloat16.

    The output has the dtype of the input.
    """

    def __init__(self, linear: nn.Linear, dtype: torch.dtype):
        super().__init__()
        self.in_features, self.out_features = linear.in_features, linear.out_features
        self.dtype = dtype
        weight = linear.weight.detach().to(dtype)
        n_tokens = 1024  # of a batch: a hint for the layout, not a limit
        self._packed = torch.ops.mkldnn._reorder_linear_weight(weight, n_tokens)
        self.bias = None if linear.bias is None else linear.bias.detach().to(dtype)
        self._multiply = torch.ops.mkldnn._linear_pointwise.default

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Multiply as `nn.Linear` does."""
        y = self._multiply(x.to(self.dtype), self._packed, self.bias, "none", [], "")
        return y.to(x.dtype)

    @property
    def weight(self) -> torch.Tensor:
        """The weight in rows, for models that multiply by it themselves, such as Mamba."""
        return self._packed.to_dense().float()


@cache
def can_pack(dtype: torch.dtype) -> bool:
    """Whether the operators exist and multiply correctly."""
    if dtype not in (torch.float32, torch.bfloat16):
        return False
    generator = torch.Generator().manual_seed(0)
    linear = nn.utils.skip_init(nn.Linear, 24, 40, dtype=torch.float32)
    with torch.no_grad():
        for parameter in linear.parameters():
            parameter.normal_(generator=generator)
        x = torch.randn(3, 5, 24, generator=generator, dtype=torch.float32)
        try:
            y = PackedLinear(linear, dtype)(x)
        except (AttributeError, RuntimeError, NotImplementedError):
            return False
        # bfloat16 keeps 8 bits of each factor, and sums 24 products of size 1.
        atol = 1e-5 if dtype == torch.float32 else 0.2
        return torch.allclose(y, linear(x), rtol=0, atol=atol)


def pack_linears(module: nn.Module, dtype: torch.dtype) -> bool:
    """Replace every linear layer of a frozen module on the CPU by a packed one.

    If torch cannot pack, return False and leave the module unchanged.
    """
    if not can_pack(dtype):
        return False
    for parent in list(module.modules()):
        for name, child in list(parent.named_children()):
            if type(child) is nn.Linear:
                setattr(parent, name, PackedLinear(child, dtype))
    return True
