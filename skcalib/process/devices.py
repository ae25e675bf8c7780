"""Devices: their names, and torch on them without the settings of the caller."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from typing import TYPE_CHECKING

from skcalib.base import warn
from skcalib.compat import forked_from_cuda

if TYPE_CHECKING:
    import torch

_process = os.getpid()  # in which torch may use several threads


def resolve_device(device: str) -> torch.device:
    """Turn "cpu", "cuda", "cuda:1", "mps" or "auto" into an available device.

    "auto" is the current CUDA device if CUDA works, otherwise the CPU: Metal has no float64. A
    CUDA device always has an index, so that "cuda" and "cuda:0" are the same.
    """
    import torch

    # `device_count` also counts GPUs that the installed driver cannot run.
    usable = torch.cuda.is_available() and not forked_from_cuda()
    n_gpus = torch.cuda.device_count() if usable else 0
    name = ("cuda" if n_gpus else "cpu") if device == "auto" else device
    kind, _, index = name.partition(":")
    if kind not in ("cpu", "cuda", "mps") or not (index or "0").isdecimal():
        raise ValueError(
            f"device={device!r} is unknown. Use 'auto', 'cpu', 'cuda', 'cuda:1' or 'mps'."
        )
    if kind == "cuda" and int(index or 0) < n_gpus:  # torch would read "cuda:256" as 0
        return torch.device(kind, int(index or torch.cuda.current_device()))
    if kind == "cpu" or (kind == "mps" and torch.backends.mps.is_available()):
        return torch.device(kind)
    fork = "; a forked child cannot use CUDA after its parent has, so start it with 'spawn'"
    raise ValueError(
        f"device={device!r} is not available: torch sees {n_gpus} CUDA devices here"
        f"{fork if forked_from_cuda() else ''}. Use 'auto' to use a GPU only if there is one."
    )


def device_of_fitted(device: str) -> torch.device:
    """Return the device of a fitted estimator, or the CPU, with a warning, where it is missing.

    So a pickle of a fit on a GPU works on a machine without one.
    """
    import torch

    try:
        return resolve_device(device)
    except ValueError as error:
        warn(f"{error} The CPU is used now.")
        return torch.device("cpu")


@contextmanager
def plain_torch(device: torch.device) -> Iterator[None]:
    """Context without the caller's settings of torch, in which torch may compute after a fork.

    New tensors are on the CPU. Where they are anyway, nothing is set, since a default device
    makes torch pass each operation through Python: a third of a training.
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
