"""Devices: their names, and torch on them without the settings of the caller."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from typing import TYPE_CHECKING, Any

from skcalib.compat import forked_from_cuda

if TYPE_CHECKING:
    import torch

_process = os.getpid()  # in which torch may use several threads


def resolve_device(device: str) -> torch.device:
    """Turn "cpu", "cuda", "cuda:1", "mps" or "auto" into an available device.

    "auto" is the current CUDA device if CUDA works, otherwise the CPU. Metal is used only on
    request, because it has no float64. A CUDA device always has an index, so that "cuda" and
    "cuda:0" are the same. A device that is not available raises a ValueError.
    """
    import torch

    # `device_count` also counts GPUs that the installed driver cannot run.
    usable = torch.cuda.is_available() and not forked_from_cuda()
    n_gpus = torch.cuda.device_count() if usable else 0
    if device == "auto":
        device = "cuda" if n_gpus else "cpu"
    match = re.fullmatch(r"(cpu|cuda|mps)(?::(\d+))?", device)
    if match is None:
        raise ValueError(
            f"device={device!r} is unknown. Use 'auto', 'cpu', 'cuda', 'cuda:1' or 'mps'."
        )
    kind, index = match.groups()
    if kind == "mps" and not torch.backends.mps.is_available():
        reason = "torch sees no Metal device here"
    elif kind == "cuda" and forked_from_cuda():
        reason = "a forked child cannot use CUDA after its parent has; start it with 'spawn'"
    elif kind == "cuda" and int(index or 0) >= n_gpus:  # torch would read "cuda:256" as 0
        reason = f"torch sees {n_gpus} CUDA devices here"
    elif kind == "cuda":
        return torch.device(kind, int(index or torch.cuda.current_device()))
    else:
        return torch.device(kind)
    raise ValueError(
        f"device={device!r} is not available: {reason}. Use 'auto' to use a GPU only if there "
        "is one."
    )


def check_precision(device: torch.device, dtype: Any) -> None:
    """Raise a ValueError for float64 vectors on Metal, which has no float64."""
    if device.type == "mps" and dtype.name == "float64":
        raise ValueError(
            "device='mps' computes in float32 only, but X is float64: pass X as float32, or "
            "use device='cpu'."
        )


@contextmanager
def plain_torch(device: torch.device) -> Iterator[None]:
    """Context without the caller's settings of torch, in which torch may compute after a fork.

    ``no_grad`` would leave no gradient, ``inference_mode`` tensors that never have one, and
    ``autocast`` would compute in bfloat16. New tensors are on the CPU; where they are anyway,
    nothing is set, since any default device but the built-in one makes torch pass each
    operation through Python: a third of a training.
    """
    global _process
    import torch

    if _process != os.getpid():
        # OpenMP would wait for threads that are not there. In a pool of processes, one thread
        # per process is also the best choice.
        torch.set_num_threads(1)
        _process = os.getpid()
    on_cpu = torch.get_default_device().type == "cpu"
    with (
        torch.inference_mode(False),
        torch.enable_grad(),
        torch.autocast(device.type, enabled=False),
        nullcontext() if on_cpu else torch.device("cpu"),
    ):
        yield
