"""Names of devices, and rows of a buffer."""

import pytest
import torch

from skcalib.process.devices import resolve_device
from skcalib.process.threads import rows_within


@pytest.fixture
def two_gpus(monkeypatch):
    for name, value in {"is_available": True, "device_count": 2, "current_device": 1}.items():
        monkeypatch.setattr(torch.cuda, name, lambda value=value: value)
    return monkeypatch


@pytest.mark.parametrize("unknown", ["gpu", "meta", "cuda:x", "cuda:-1", "cuda:1 ", ""])
def test_unknown_names_are_refused(unknown):
    with pytest.raises(ValueError, match=r"device='.*' is unknown. Use 'auto', 'cpu'"):
        resolve_device(unknown)


def test_cuda_has_an_index_and_has_to_be_there(two_gpus):
    assert str(resolve_device("cuda")) == str(resolve_device("auto")) == "cuda:1"
    assert str(resolve_device("cuda:0")) == "cuda:0"
    for device in ("cuda:2", "cuda:256"):  # 256 wraps to 0 in torch
        with pytest.raises(ValueError, match=f"device='{device}' is not available.* sees 2"):
            resolve_device(device)


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("is_available", False, "sees 0 CUDA"),
        ("_is_in_bad_fork", True, "sees 0 CUDA.*forked child .*'spawn'"),
    ],
)
def test_a_gpu_that_does_not_work_here_is_not_taken(two_gpus, name, value, message):
    two_gpus.setattr(torch.cuda, name, lambda: value)
    assert resolve_device("auto") == resolve_device("cpu") == torch.device("cpu")
    with pytest.raises(ValueError, match=message):
        resolve_device("cuda")


def test_few_rows_fill_a_buffer():
    assert (rows_within(8 * 2**20, 768), rows_within(1000, 768)) == (2**20 // 768, 64)
