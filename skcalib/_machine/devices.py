"""Names of devices."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

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

    # Whether this process was forked from one that had used CUDA.
    lost = torch.cuda._is_in_bad_fork()
    if device == "auto":
        # `device_count` also counts GPUs that the installed driver cannot run.
        device = "cuda" if torch.cuda.is_available() and not lost else "cpu"
    match = re.fullmatch(r"(cpu|cuda|mps)(?::(\d+))?", device)
    if match is None:
        raise ValueError(
            f"device={device!r} is unknown; it takes 'auto', 'cpu', 'cuda', 'cuda:1' or 'mps'."
        )
    kind, index = match.groups()
    if kind == "mps" and not torch.backends.mps.is_available():
        raise ValueError(
            "device='mps' is not available: torch sees no Metal device here. Use 'auto' "
            "to take a GPU only where there is one."
        )
    if kind != "cuda":
        return torch.device(kind)
    if lost:
        raise ValueError(
            f"device={device!r} is not available in a forked child of a process that has used "
            "CUDA. Start processes by 'spawn' or 'forkserver', or use device='cpu' or 'auto'."
        )
    n_gpus = torch.cuda.device_count() if torch.cuda.is_available() else 0
    # torch keeps an index in 8 bits: "cuda:256" would be the first GPU.
    if int(index or 0) >= n_gpus:
        raise ValueError(
            f"device={device!r} is not available: torch sees {n_gpus} CUDA devices here. Use "
            "'auto' to take a GPU only where there is one."
        )
    return torch.device("cuda", torch.cuda.current_device() if index is None else int(index))


def check_precision(device: torch.device, dtype: Any) -> None:
    """Raise a ValueError for vectors in float64 on Metal, which does not have it."""
    if device.type == "mps" and dtype.name == "float64":
        raise ValueError(
            "device='mps' computes in float32 only, but X is float64: pass X as float32, or "
            "use device='cpu'."
        )
