"""Linear layers with weights packed for oneDNN, where this build of torch can.

On a CPU nearly all of an encoder's time goes into its linear layers. A weight laid out in
oneDNN's own blocks, once at loading, makes them two to three times as fast as
`torch.nn.functional.linear`, which finds the weight in rows at every call. torch packs
weights so when it compiles a frozen model, but has no public call for it alone: the two
private operators stand here, tried out before use, and where they are missing or wrong the
layers stay as they are.
"""

from __future__ import annotations

from functools import cache

import torch
from torch import nn

__all__ = ["PackedLinear", "can_pack", "pack_linears"]


class PackedLinear(nn.Module):
    """A frozen linear layer with a packed weight, which multiplies in float32 or bfloat16.

    What comes out has the dtype of the input.
    """

    def __init__(self, linear: nn.Linear, dtype: torch.dtype):
        super().__init__()
        self.in_features, self.out_features = linear.in_features, linear.out_features
        self.dtype = dtype
        weight = linear.weight.detach().to(dtype)
        n_tokens = 1024  # of a batch: a hint for the layout, not a limit
        self.weight = torch.ops.mkldnn._reorder_linear_weight(weight, n_tokens)
        self.bias = None if linear.bias is None else linear.bias.detach().to(dtype)
        self._multiply = torch.ops.mkldnn._linear_pointwise.default

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Multiply as `nn.Linear` does."""
        y = self._multiply(x.to(self.dtype), self.weight, self.bias, "none", [], "")
        return y.to(x.dtype)


@cache
def can_pack(dtype: torch.dtype) -> bool:
    """Whether the operators are there and multiply right."""
    if dtype not in (torch.float32, torch.bfloat16):
        return False
    generator = torch.Generator().manual_seed(0)
    linear = nn.utils.skip_init(nn.Linear, 24, 40)
    with torch.no_grad():
        for parameter in linear.parameters():
            parameter.normal_(generator=generator)
        x = torch.randn(3, 5, 24, generator=generator)
        try:
            y = PackedLinear(linear, dtype)(x)
        except (AttributeError, RuntimeError, NotImplementedError):
            return False
        # bfloat16 keeps 8 bits of each factor, and sums 24 products of size 1.
        atol = 1e-5 if dtype == torch.float32 else 0.2
        return torch.allclose(y, linear(x), rtol=0, atol=atol)


def pack_linears(module: nn.Module, dtype: torch.dtype) -> bool:
    """Replace every linear layer of a frozen module on the CPU by a packed one.

    Return False, with the module as it was, where torch cannot.
    """
    if not can_pack(dtype):
        return False
    for parent in list(module.modules()):
        for name, child in list(parent.named_children()):
            if type(child) is nn.Linear:
                setattr(parent, name, PackedLinear(child, dtype))
    return True
