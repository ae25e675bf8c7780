"""The flow on CUDA: on a GPU where there is one, else on a pretended device."""

import gc
import itertools
import pickle

import numpy as np
import pytest
import torch

from skcalib import NormalizingFlow


@pytest.fixture(scope="module")
def X():
    rng = np.random.RandomState(0)
    X = rng.normal(size=(150, 6))
    X[:, 3:] += X[:, :3] ** 2
    X[:, 5] = 3.0  # constant: trained on noise in its place
    return X.astype(np.float32)


@pytest.fixture
def cuda(request):
    """Give a CUDA device, a pretended one where there is no GPU."""
    if not torch.cuda.is_available():
        request.getfixturevalue("pretended_cuda")
    return "cuda"


def _flow(device, **changes):
    settings = {"depth": 1, "batch_size": 50, "max_epochs": 2}
    settings |= {"learning_rate": 3e-3, "random_state": 0}
    return NormalizingFlow(**settings | changes, device=device)


@pytest.mark.parametrize("noise", [0.0, "auto"])
def test_results_are_the_cpus(cuda, X, noise):
    settings = {"noise": noise, "validation_fraction": 0.1}
    X = X.astype(np.float64)
    expected, flow = _flow("cpu", **settings).fit(X), _flow(cuda, **settings).fit(X)
    np.testing.assert_allclose(flow.loss_curve_, expected.loss_curve_, rtol=1e-9)
    np.testing.assert_allclose(flow.validation_curve_, expected.validation_curve_, rtol=1e-9)
    for method in ("transform", "inverse_transform", "score_samples"):
        result = getattr(flow, method)(X)
        np.testing.assert_allclose(result, getattr(expected, method)(X), atol=1e-6)
    flow.partial_fit(X)
    dumped = pickle.dumps(flow)
    assert b"torch" not in dumped
    loaded = pickle.loads(dumped).set_params(device="cpu")
    np.testing.assert_allclose(loaded.transform(X), flow.transform(X), atol=1e-9)


def test_a_device_without_float64_trains_in_float32(pretended_cuda, X):
    expected = _flow("cpu", validation_fraction=0.1).fit(X)
    pretended_cuda.has_float64 = False
    flow = _flow("cuda", validation_fraction=0.1).fit(X)
    assert flow.validation_curve_ == expected.validation_curve_
    np.testing.assert_array_equal(flow.transform(X), expected.transform(X))


def test_metal_has_to_be_there_and_refuses_float64(monkeypatch, X):
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: False)
    with pytest.raises(ValueError, match="sees no Metal device"):
        _flow("mps").fit(X)
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: True)
    fitted = _flow("cpu").fit(X).set_params(device="mps")
    for use in (_flow("mps").fit, fitted.transform):
        with pytest.raises(ValueError, match="float32 only, but X is float64"):
            use(X.astype(np.float64))


def test_every_device_has_one_module(two_pretended_cudas, X):
    expected = _flow("cpu").fit(X).transform(X)
    flow = _flow("cuda:1").fit(X)
    np.testing.assert_array_equal(flow.transform(X), expected)
    used = []
    for device in ("cuda", "cuda:0"):
        np.testing.assert_array_equal(flow.set_params(device=device).transform(X), expected)
        gc.collect()
        used.append(two_pretended_cudas.used())
    assert used[0] == used[1] > 0  # two names of one device
    assert two_pretended_cudas.used(1) == used[0]


def test_where_memory_ends_nothing_is_held(pretended_cuda, X):
    fitted = _flow("cpu").fit(X).set_params(device="cuda")
    network = sum(tensor.nbytes for tensor in fitted.to_torch().state_dict().values())
    gc.collect()
    assert pretended_cuda.used() == 0
    uses = (_flow("cuda", batch_size=77).fit, 0), (fitted.transform, network)
    # Memory ends while the flow is built, and in a step or a block.
    for (use, kept), memory in itertools.product(uses, (100, 20_000)):
        pretended_cuda.memory = memory
        with pytest.raises(MemoryError, match=r"memory of cuda:0.*lower batch_size") as caught:
            use(X)
        assert caught.value.__context__ is None
        gc.collect()
        assert pretended_cuda.used() <= kept  # though the error is still at hand
