"""Names of devices."""

import pytest
import torch

from skcalib._devices import resolve_device


def test_devices():
    assert resolve_device("cpu") == torch.device("cpu")
    assert resolve_device("auto").type == ("cuda" if torch.cuda.is_available() else "cpu")
    for unknown in ("gpu", "meta", "cuda:x", ""):
        with pytest.raises(ValueError, match=r"device='.*' is unknown; it takes 'auto', 'cpu'"):
            resolve_device(unknown)
    with pytest.raises(ValueError, match=r"device='cuda:99' is not available: torch sees \d+"):
        resolve_device("cuda:99")
