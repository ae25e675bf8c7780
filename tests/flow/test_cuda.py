"""The flow on CUDA: on a pretended device, and on a real one where there is one."""

import gc
import itertools
import pickle
import threading
import weakref

import numpy as np
import pytest
import torch

import skcalib._flow.training
from skcalib import NormalizingFlow
from skcalib._flow.cuda_graph import RecordedStep
from skcalib._flow.training import Trainer

COMBINATIONS = list(itertools.product(("additive", "affine"), ("reverse", "shuffle", "lu")))


@pytest.fixture(scope="module")
def X():
    rng = np.random.RandomState(0)
    X = rng.normal(size=(960, 6))
    X[:, 3:] += X[:, :3] ** 2
    X[:, 5] = 3.0  # constant: trained on noise in its place
    return X.astype(np.float32)


def _flow(device, **changes):
    settings = {"depth": 1, "coupling_width": 8, "batch_size": 25, "max_epochs": 2}
    settings |= {"learning_rate": 3e-3, "random_state": 0}
    return NormalizingFlow(**settings | changes, device=device)


def _assert_same(flow, expected, X):
    """On a pretended device the arithmetic is the CPU's, and so are the results."""
    assert flow.loss_curve_ == expected.loss_curve_
    for name, weights in expected._weights.items():
        np.testing.assert_array_equal(flow._weights[name], weights)
    np.testing.assert_array_equal(flow.transform(X), expected.transform(X))


@pytest.fixture
def recordings(monkeypatch):
    """Shapes of the steps that are recorded."""
    shapes, original = [], RecordedStep.__init__

    def noted(self, trainer, shape):
        shapes.append(tuple(shape))
        original(self, trainer, shape)

    monkeypatch.setattr(RecordedStep, "__init__", noted)
    return shapes


@pytest.mark.parametrize("recorded", [False, True], ids=["eager", "recorded"])
@pytest.mark.parametrize(("coupling", "permutation"), COMBINATIONS)
def test_training_is_the_cpus(pretended_cuda, recordings, X, coupling, permutation, recorded):
    settings = {"coupling": coupling, "permutation": permutation, "max_epochs": 1}
    X = X if recorded else X[:300]  # few steps are not recorded
    expected = _flow("cpu", **settings).fit(X)
    flow = _flow("cuda", **settings).fit(X)
    assert recordings == [(25, 6)] * recorded
    _assert_same(flow, expected, X)
    np.testing.assert_array_equal(flow.score_samples(X), expected.score_samples(X))
    Z = expected.transform(X)
    np.testing.assert_array_equal(flow.inverse_transform(Z), expected.inverse_transform(Z))


def test_epochs_share_a_recording(pretended_cuda, recordings, X):
    expected = _flow("cpu", noise="auto", validation_fraction=0.1).fit(X)
    flow = _flow("cuda", noise="auto", validation_fraction=0.1).fit(X)
    assert recordings == [(25, 6)]
    _assert_same(flow, expected, X)
    flow.partial_fit(X[:100])  # few steps are not recorded
    assert recordings == [(25, 6)]


def test_cuda_and_cuda_0_are_one_device(two_pretended_cudas, X):
    flow = _flow("cuda").fit(X)
    for device in ("cuda", "cuda:0"):
        flow.set_params(device=device).transform(X)
    assert list(flow._modules) == [("cuda:0", "float32")]
    torch.cuda.set_device(1)
    flow.set_params(device="cuda").transform(X)
    assert list(flow._modules) == [("cuda:0", "float32"), ("cuda:1", "float32")]


def test_a_second_device_trains_too(two_pretended_cudas, X):
    expected = _flow("cpu").fit(X)
    for device in ("cuda:0", "cuda:1", "cuda:0"):
        _assert_same(_flow(device).fit(X), expected, X)


def test_threads_record_one_at_a_time(pretended_cuda, X):
    expected = _flow("cpu").fit(X)
    flows = [_flow("cuda") for _ in range(3)]

    def fit(flow):
        with pretended_cuda.in_this_thread():
            flow.fit(X)

    threads = [threading.Thread(target=fit, args=(flow,)) for flow in flows]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for flow in flows:
        _assert_same(flow, expected, X)


@pytest.mark.parametrize("at", [1, 3, 4], ids=["first warm-up", "last warm-up", "capture"])
def test_a_failed_recording_leaves_nothing_behind(pretended_cuda, monkeypatch, X, at):
    expected, original, steps = _flow("cpu").fit(X), Trainer.step, []

    def fails(self, batch):
        loss = original(self, batch)
        steps.append(1)
        if len(steps) == at:
            float(loss) if at == 4 else None  # which a capture does not permit
            raise RuntimeError("the recording fails")
        return loss

    monkeypatch.setattr(Trainer, "step", fails)
    with pytest.warns(UserWarning, match="could not be recorded as a CUDA graph") as caught:
        flow = _flow("cuda").fit(X)
    assert len(caught) == 1
    assert torch.cuda.current_stream() is torch.cuda.default_stream()
    _assert_same(flow, expected, X)


def test_memory_that_ends_in_a_fit_says_what_to_do_and_holds_nothing(pretended_cuda, X):
    flow = _flow("cuda", batch_size=77)
    pretended_cuda.memory = 10**9
    for size in (1000, 40_000):  # ends while the trainer is built, and in a step
        pretended_cuda.memory = size
        with pytest.raises(MemoryError, match=r"batch_size=77.* on cuda:0: lower") as caught:
            flow.fit(X)
        assert caught.value.__context__ is None
        gc.collect()
        assert pretended_cuda.used() == 0  # though the error is still at hand


def test_memory_that_ends_in_a_transform_says_what_to_do_and_holds_nothing(pretended_cuda, X):
    flow = _flow("cuda").fit(X)
    for size, built in ((100, []), (20_000, [("cuda:0", "float32")])):
        pretended_cuda.memory = size
        with pytest.raises(MemoryError, match=r"8192 rows, .* on cuda:0: free some") as caught:
            flow.transform(X)
        assert list(flow._modules) == built  # before memory ended
        assert caught.value.__context__ is None
        flow._modules.clear()
        gc.collect()
        assert pretended_cuda.used() == 0  # though the error is still at hand


def test_a_device_without_float64(pretended_cuda, X):
    expected = _flow("cpu", validation_fraction=0.1).fit(X)
    pretended_cuda.has_float64 = False
    flow = _flow("cuda", validation_fraction=0.1).fit(X)
    assert flow.validation_curve_ == expected.validation_curve_
    _assert_same(flow, expected, X)


def test_metal_refuses_float64(monkeypatch, X):
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: True)
    fitted = _flow("cpu").fit(X).set_params(device="mps")
    for use in (_flow("mps").fit, fitted.transform):
        with pytest.raises(ValueError, match="float32 only, but X is float64"):
            use(X.astype(np.float64))


def test_in_a_forked_child_auto_is_the_cpu(pretended_cuda, X):
    flow = _flow("auto").fit(X)
    expected = flow.transform(X)
    pretended_cuda.is_forked = True
    np.testing.assert_array_equal(flow.transform(X), expected)
    assert list(flow._modules) == [("cuda:0", "float32"), ("cpu", "float32")]
    with pytest.raises(ValueError, match="forked child"):
        flow.set_params(device="cuda").transform(X)


def test_pickles_hold_nothing_of_the_device(pretended_cuda, X):
    flow = _flow("cuda").fit(X)
    dumped, expected = pickle.dumps(flow), flow.transform(X)
    assert b"torch" not in dumped
    loaded = pickle.loads(dumped).set_params(device="cpu")
    np.testing.assert_array_equal(loaded.transform(X), expected)


def test_a_fit_leaves_nothing_on_the_device(pretended_cuda, X):
    flow = _flow("cuda").fit(X)
    gc.collect()
    assert pretended_cuda.used() == 0
    flow.transform(X)
    module = weakref.ref(flow._modules["cuda:0", "float32"])
    flow.fit(X)
    gc.collect()
    assert module() is None


# On a real device.

gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")


@gpu
@pytest.mark.parametrize(("coupling", "permutation"), COMBINATIONS)
def test_a_gpu_trains_maps_and_pickles_as_the_cpu_does(X, coupling, permutation):
    settings = {"coupling": coupling, "permutation": permutation}
    X = X.astype(np.float64)
    cpu = _flow("cpu", **settings).fit(X)
    gpu = _flow("cuda", **settings).fit(X)
    np.testing.assert_allclose(gpu.transform(X), cpu.transform(X), atol=1e-6)
    loaded = pickle.loads(pickle.dumps(gpu)).set_params(device="cpu")
    np.testing.assert_allclose(loaded.transform(X), gpu.transform(X), atol=1e-9)


@gpu
@pytest.mark.parametrize(("coupling", "permutation"), COMBINATIONS)
def test_a_step_recorded_on_a_gpu_is_the_step(X, monkeypatch, coupling, permutation):
    settings = {"coupling": coupling, "permutation": permutation}
    recorded = _flow("cuda", **settings).fit(X.astype(np.float64))
    monkeypatch.setattr(skcalib._flow.training, "RECORDED_FROM", 10**9)
    eager = _flow("cuda", **settings).fit(X.astype(np.float64))
    np.testing.assert_allclose(recorded.loss_curve_, eager.loss_curve_, rtol=1e-9)
    np.testing.assert_allclose(recorded.transform(X), eager.transform(X), atol=1e-6)
