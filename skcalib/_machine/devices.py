"""Names of devices."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from skcalib._machine.private import forked_from_cuda

if TYPE_CHECKING:
    import torch

__all__ = ["check_precision", "resolve_device"]


def resolve_device(device: str) -> torch.device:
    """Turn "cpu", "cuda", "cuda:1", "mps" or "auto" into a device that is there.

    "auto" is the current CUDA device where CUDA works, else the CPU. Metal is used only on
    request: it has no float64. A CUDA device has an index, so that "cuda" and "cuda:0" are
    one. A ValueError tells of a device that is not there.
    """
    import torch

    forked = forked_from_cuda()
    # `device_count` also counts GPUs that the installed driver cannot run.
    n_gpus = torch.cuda.device_count() if torch.cuda.is_available() and not forked else 0
    if device == "auto":
        device = "cuda" if n_gpus else "cpu"
    match = re.fullmatch(r"(cpu|cuda|mps)(?::(\d+))?", device)
    if match is None:
        raise ValueError(
            f"device={device!r} is unknown; it takes 'auto', 'cpu', 'cuda', 'cuda:1' or 'mps'."
        )
    kind, index = match.groups()
    if kind == "mps" and not torch.backends.mps.is_available():
        reason = "torch sees no Metal device here"
    elif kind == "cuda" and forked:
        reason = "the forked child of a process that used CUDA has none; start it by 'spawn'"
    elif kind == "cuda" and int(index or 0) >= n_gpus:  # torch would take "cuda:256" for 0
        reason = f"torch sees {n_gpus} CUDA devices here"
    elif kind == "cuda":
        return torch.device(kind, int(index or torch.cuda.current_device()))
    else:
        return torch.device(kind)
    raise ValueError(
        f"device={device!r} is not available: {reason}. Use 'auto' to take a GPU only where "
        "there is one."
    )


def check_precision(device: torch.device, dtype: Any) -> None:
    """Raise a ValueError for vectors in float64 on Metal, which does not have it."""
    if device.type == "mps" and dtype.name == "float64":
        raise ValueError(
            "device='mps' computes in float32 only, but X is float64: pass X as float32, or "
            "use device='cpu'."
        )
