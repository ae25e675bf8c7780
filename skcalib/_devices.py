"""Names of devices."""

__all__ = ["resolve_device"]


def resolve_device(device):
    """Turn "auto", "cpu", "cuda", "cuda:1" or "mps" into a torch.device that is there.

    Raises
    ------
    ValueError
        If there is no such device, in general or on this machine.
    """
    import torch

    n_gpus = torch.cuda.device_count()
    if device == "auto":  # Metal only on request: it has no float64
        return (
            torch.device("cuda", torch.cuda.current_device()) if n_gpus else torch.device("cpu")
        )
    try:
        resolved = torch.device(device)
        known = resolved.type in ("cpu", "cuda", "mps")
    except RuntimeError:
        known = False
    if not known:
        raise ValueError(
            f"device={device!r} is unknown; it takes 'auto', 'cpu', 'cuda', 'cuda:1' or 'mps'."
        )
    if resolved.type == "cuda" and (resolved.index or 0) >= n_gpus:
        raise ValueError(
            f"device={device!r} is not available: torch sees {n_gpus} CUDA devices here. Use "
            "'auto' to take a GPU only where there is one."
        )
    if resolved.type == "mps" and not torch.backends.mps.is_available():
        raise ValueError(
            "device='mps' is not available: torch sees no Metal device here. Use 'auto' to "
            "take a GPU only where there is one."
        )
    return resolved
