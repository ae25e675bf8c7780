"""The flow on a GPU, and on devices that are missing."""

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


def _flow(device, **changes):
    settings = {"depth": 1, "batch_size": 50, "max_epochs": 2}
    settings |= {"learning_rate": 3e-3, "random_state": 0}
    return NormalizingFlow(**settings | changes, device=device)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU")
@pytest.mark.parametrize("noise", [0.0, "auto"])
def test_results_are_the_cpus(X, noise):
    settings = {"noise": noise, "validation_fraction": 0.1}
    X = X.astype(np.float64)
    expected, flow = _flow("cpu", **settings).fit(X), _flow("cuda", **settings).fit(X)
    np.testing.assert_allclose(flow.loss_curve_, expected.loss_curve_, rtol=1e-9)
    np.testing.assert_allclose(flow.validation_curve_, expected.validation_curve_, rtol=1e-9)
    for method in ("transform", "inverse_transform", "score_samples"):
        result = getattr(flow, method)(X)
        np.testing.assert_allclose(result, getattr(expected, method)(X), atol=1e-6)
    loaded = pickle.loads(pickle.dumps(flow)).set_params(device="cpu")
    np.testing.assert_allclose(loaded.transform(X), flow.transform(X), atol=1e-9)


def test_metal_has_to_be_there_and_refuses_float64(monkeypatch, X):
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: False)
    with pytest.raises(ValueError, match="sees no Metal device"):
        _flow("mps").fit(X)
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: True)
    fitted = _flow("cpu").fit(X).set_params(device="mps")
    for use in (_flow("mps").fit, fitted.transform):
        with pytest.raises(ValueError, match="float32 only, but X is float64"):
            use(X.astype(np.float64))
