"""Names of devices."""

import multiprocessing

import numpy as np
import pytest
import torch

from skcalib._machine.devices import check_precision, resolve_device


@pytest.fixture
def driver(monkeypatch):
    """Return a function that sets what torch reports of CUDA."""

    def set_up(available, count, current=0, forked=False):
        def current_device():
            assert available, "asked for the current device where there is none"
            return current

        monkeypatch.setattr(torch.cuda, "is_available", lambda: available)
        monkeypatch.setattr(torch.cuda, "device_count", lambda: count)
        monkeypatch.setattr(torch.cuda, "current_device", current_device)
        monkeypatch.setattr(torch.cuda, "_is_in_bad_fork", lambda: forked)

    return set_up


def test_the_cpu_is_there():
    assert resolve_device("cpu") == torch.device("cpu")
    assert resolve_device("auto").type == ("cuda" if torch.cuda.is_available() else "cpu")


@pytest.mark.parametrize("unknown", ["gpu", "meta", "cuda:x", "cuda:-1", "cuda:1 ", ""])
def test_unknown_names_are_refused(unknown):
    with pytest.raises(ValueError, match=r"device='.*' is unknown; it takes 'auto', 'cpu'"):
        resolve_device(unknown)


def test_cuda_has_an_index(driver):
    driver(available=True, count=2, current=1)
    assert str(resolve_device("cuda")) == str(resolve_device("auto")) == "cuda:1"
    assert str(resolve_device("cuda:0")) == "cuda:0"


@pytest.mark.parametrize("device", ["cuda:2", "cuda:99", "cuda:256"])  # 256 wraps to 0 in torch
def test_devices_that_are_not_there_are_refused(driver, device):
    driver(available=True, count=2)
    with pytest.raises(ValueError, match=f"device='{device}' is not available.* sees 2 CUDA"):
        resolve_device(device)


def test_a_gpu_that_the_driver_cannot_run_is_not_there(driver):
    driver(available=False, count=1)
    assert resolve_device("auto").type == "cpu"
    with pytest.raises(ValueError, match="sees 0 CUDA devices"):
        resolve_device("cuda")


def test_a_forked_child_of_a_process_that_used_cuda_takes_the_cpu(driver):
    # Where the driver is asked through NVML, it still reports the GPU.
    driver(available=True, count=1, forked=True)
    assert resolve_device("auto").type == "cpu"
    with pytest.raises(ValueError, match=r"forked child.*Start processes by 'spawn'"):
        resolve_device("cuda")


def _child(queue):
    queue.put(resolve_device("auto").type)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
def test_a_real_fork_takes_the_cpu():
    torch.zeros(1, device="cuda")
    context = multiprocessing.get_context("fork")
    queue = context.Queue()
    child = context.Process(target=_child, args=(queue,))
    child.start()
    assert queue.get(timeout=600) == "cpu"
    child.join()


def test_metal(monkeypatch):
    with monkeypatch.context() as patch:
        patch.setattr(torch.backends.mps, "is_available", lambda: False)
        with pytest.raises(ValueError, match="sees no Metal device"):
            resolve_device("mps")
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: True)
    device = resolve_device("mps")
    check_precision(device, np.dtype(np.float32))
    with pytest.raises(ValueError, match="float32 only, but X is float64"):
        check_precision(device, np.dtype(np.float64))
