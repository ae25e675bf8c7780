"""What fits into the memory of this machine."""

import os


def rows_within(n_bytes: int, n_features: int, itemsize: int = 8) -> int:
    """Rows of a working buffer of about ``n_bytes``, at least 64."""
    return max(64, n_bytes // (itemsize * n_features))


def check_size(n_features: int, caller: str) -> None:
    """Raise a ValueError if square matrices of this size cannot fit into this machine.

    Without the check the system might grant the memory and kill the process later.
    """
    try:
        memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, ValueError, OSError):  # not known here
        return
    n_bytes = 8 * n_features**2
    if 4 * n_bytes > memory:
        raise ValueError(
            f"X has {n_features} features; {caller} needs four matrices of {n_features} x "
            f"{n_features}, of {n_bytes / 1e9:,.0f} GB each, and this machine has "
            f"{memory / 1e9:,.0f} GB. Reduce the features first, for instance by TruncatedSVD."
        )
