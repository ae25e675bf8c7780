"""The pretended CUDA device has the rules that the tests on it rely on."""

import threading

import numpy as np
import pytest
import torch


def test_arithmetic_is_the_cpus(pretended_cuda):
    a = np.random.RandomState(0).normal(size=(5, 4)).astype(np.float32)
    # Of torch, in memory of its own: products of NumPy, and of memory that begins elsewhere,
    # may have another last bit.
    host = torch.from_numpy(a).clone()
    x = host.to("cuda")
    assert x.device == torch.device("cuda", 0)
    assert torch.equal(host @ host.T, (x @ x.T).cpu())
    with torch.inference_mode():
        y = torch.as_tensor(a, device="cuda").mul_(2.0)
        y += 1.0
    np.testing.assert_array_equal(y[:, [0, 2]].cpu().numpy(), (a * 2 + 1)[:, [0, 2]])
    with torch.autocast("cuda", torch.bfloat16):
        assert (x @ x.T).dtype == torch.bfloat16


def test_autograd_goes_through_a_module_on_the_device(pretended_cuda):
    layer = torch.nn.Linear(3, 2)
    expected = torch.autograd.grad(layer(torch.ones(4, 3)).square().sum(), layer.weight)[0]
    on_device = layer.to("cuda")
    on_device(torch.ones(4, 3, device="cuda")).square().sum().backward()
    assert torch.equal(on_device.weight.grad.cpu(), expected)


def test_devices_do_not_meet(two_pretended_cudas):
    here, there = torch.ones(2, device="cuda:0"), torch.ones(2, device="cuda:1")
    for other in (there, torch.ones(2)):
        with pytest.raises(RuntimeError, match="same device"):
            here + other
    assert torch.equal((here + there.to("cuda:0")).cpu(), torch.full((2,), 2.0))
    torch.cuda.set_device(1)
    assert torch.zeros(1, device="cuda").device.index == 1


def test_memory_ends_and_comes_back(pretended_cuda):
    pretended_cuda.memory = 4000
    held = torch.zeros(600, device="cuda")
    assert torch.cuda.memory_allocated() == 2400
    with pytest.raises(torch.cuda.OutOfMemoryError, match="2400 of 4000"):
        torch.zeros(600, device="cuda")
    held = held[:1].clone()
    torch.zeros(600, device="cuda")


def test_a_stream_must_wait_for_what_another_writes(pretended_cuda):
    x, side = torch.ones(3, device="cuda"), torch.cuda.Stream()
    with torch.cuda.stream(side), pytest.raises(RuntimeError, match="still be writing"):
        x.add_(1.0)
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        x.add_(1.0)
    with pytest.raises(RuntimeError, match="still be writing"):
        x.sum()
    torch.cuda.current_stream().wait_stream(side)
    assert float(x.sum()) == 6.0


def _record(function, **options):
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, **options):
        function()
    return graph


def test_a_capture_runs_nothing_and_a_replay_all(pretended_cuda):
    x = torch.ones(3, device="cuda")
    graph = _record(lambda: x.mul_(2.0).add_(1.0))
    assert torch.equal(x.cpu(), torch.ones(3))
    graph.replay()
    graph.replay()
    assert torch.equal(x.cpu(), torch.full((3,), 7.0))
    x = None
    with pytest.raises(RuntimeError, match="freed"):
        graph.replay()


def test_the_host_cannot_wait_inside_a_capture(pretended_cuda):
    x = torch.ones(3, device="cuda")
    with pytest.raises(RuntimeError, match="not permitted when stream is capturing"):
        _record(lambda: float(x.sum()))
    # torch leaves the thread on the stream of a capture that failed.
    assert torch.cuda.current_stream() is not torch.cuda.default_stream()


def test_without_a_stream_a_graph_belongs_to_the_first_device(two_pretended_cudas):
    _record(lambda: torch.ones(1, device="cuda:0"))
    x = torch.ones(1, device="cuda:1")
    torch.cuda.set_device(1)
    assert not _record(lambda: x.add_(1.0)).operations
    assert _record(lambda: x.add_(1.0), stream=torch.cuda.Stream()).operations


def test_one_capture_at_a_time_over_all_threads(pretended_cuda):
    errors = []

    def capture_too():
        with pretended_cuda.in_this_thread():
            try:
                torch.cuda.CUDAGraph().capture_begin()
            except RuntimeError as error:
                errors.append(str(error))

    def capture():
        thread = threading.Thread(target=capture_too)
        thread.start()
        thread.join()

    _record(capture)
    assert errors == ["Another capture is underway in this process."]


def test_a_forked_child_has_no_cuda(pretended_cuda):
    pretended_cuda.is_forked = True
    assert not torch.cuda.is_available()
    with pytest.raises(RuntimeError, match="re-initialize CUDA in forked"):
        torch.cuda.current_device()


def test_nothing_stays_behind(cuda_guard):
    assert not torch.cuda.is_available() or torch.version.cuda
    with pytest.raises((AssertionError, RuntimeError, NotImplementedError)):
        torch.zeros(1, device="cuda:63")
