"""The pretended CUDA device has the rules that the tests on it rely on."""

import pickle

import numpy as np
import pytest
import torch


def test_arithmetic_is_the_cpus(pretended_cuda):
    host = torch.randn(5, 4, generator=torch.Generator().manual_seed(0))
    x = host.to("cuda")
    assert x.device == torch.device("cuda", 0)
    assert torch.equal((x @ x.T).cpu(), host @ host.T)
    with torch.inference_mode():
        y = torch.as_tensor(host.numpy(), device="cuda").mul_(2.0)
        y += 1.0
    assert torch.equal(y[:, [0, 2]].cpu(), (host * 2 + 1)[:, [0, 2]])
    with torch.autocast("cuda", torch.bfloat16):
        assert (x @ x.T).dtype == torch.bfloat16


def test_autograd_goes_through_a_module_on_the_device(pretended_cuda):
    layer, x = torch.nn.Linear(3, 2), torch.ones(4, 3)
    expected = torch.autograd.grad(layer(x).double().square().sum(), layer.weight)[0]
    layer = layer.to("cuda")
    layer(x.to("cuda")).double().square().sum().backward()
    assert layer.weight.grad.device == torch.device("cuda", 0)
    assert torch.equal(layer.weight.grad.cpu(), expected)


def test_devices_do_not_meet(two_pretended_cudas):
    here, there = torch.ones(2, device="cuda:0"), torch.ones(2, device="cuda:1")
    for other in (there, torch.ones(2)):
        with pytest.raises(RuntimeError, match="are on one device"):
            here + other
    assert torch.equal((here + there.to("cuda:0")).cpu(), torch.full((2,), 2.0))
    torch.cuda.set_device(1)
    assert torch.zeros(1, device="cuda").device.index == 1


@pytest.mark.parametrize("use", [pickle.dumps, np.asarray])
def test_only_a_copy_leaves_the_device(pretended_cuda, use):
    x = torch.ones(2, device="cuda")
    with pytest.raises((TypeError, RuntimeError), match=r"pickled|numpy"):
        use(x)
    use(x.cpu())


def test_memory_ends_and_comes_back(pretended_cuda):
    pretended_cuda.memory = 4000
    held = torch.zeros(600, device="cuda")
    assert pretended_cuda.used() == 2400
    with pytest.raises(torch.cuda.OutOfMemoryError, match="more than 4000 bytes"):
        torch.zeros(600, device="cuda")
    held = held[:1].clone()
    torch.zeros(600, device="cuda")
