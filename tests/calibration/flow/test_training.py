"""Training takes the steps of Adam along the gradient of the density, over all rows.

Neither the units of columns nor the state of torch changes them.
"""

import math
import pickle

import numpy as np
import pytest
import torch
from sklearn.exceptions import ConvergenceWarning

from skcalib import NormalizingFlow

X = np.random.default_rng(0).normal(size=(200, 4))


def _flow(**settings):
    return NormalizingFlow(**{"device": "cpu", "random_state": 0} | settings)


def _start(X, **settings):
    """The module that training starts from."""
    flow = _flow(learning_rate=1e-300, **settings).fit(X).to_torch()
    with torch.no_grad():
        for parameter in flow.parameters():
            parameter[parameter.abs() < 1e-200] = 0.0
    return flow


def _adam(flow, X, n_steps, learning_rate):
    """Take steps of Adam without bias correction over all rows; return the losses."""
    parameters, losses = list(flow.parameters()), []
    moments = [(torch.zeros_like(p), torch.zeros_like(p)) for p in parameters]
    for _ in range(n_steps):
        loss = -flow.log_prob(torch.from_numpy(X)).mean()
        gradients = torch.autograd.grad(loss / (X.shape[1] * math.log(2.0)), parameters)
        norm = math.sqrt(sum(float(g.square().sum()) for g in gradients))
        with torch.no_grad():
            for p, g, (m, v) in zip(parameters, gradients, moments, strict=True):
                g = g / max(1.0, norm)
                m.mul_(0.9).add_(0.1 * g)
                v.mul_(0.999).add_(0.001 * g**2)
                decay = 0.01 if p.ndim == 2 else 0.0
                p -= learning_rate * (m / (v.sqrt() + 1e-6) + decay * p)
        losses.append(float(loss.detach()))
    return losses


@pytest.mark.parametrize(
    ("n_levels", "depth", "d"), [(1, 1, 7), (3, 2, 7), (3, 3, 3), (3, 2, 2), (3, 3, 64)]
)
def test_training_takes_the_steps_of_adam(n_levels, depth, d):
    X = np.random.RandomState(0).gamma(0.5, size=(80, d))
    settings = {"n_levels": n_levels, "depth": depth, "batch_size": 80}
    expected = _start(X, **settings)
    losses = _adam(expected, X, 6, learning_rate=0.02)
    flow = _flow(**settings, learning_rate=0.02, max_epochs=6).fit(X)
    np.testing.assert_allclose(flow.loss_curve_, losses, rtol=1e-8)
    for name, tensor in flow.to_torch().state_dict().items():
        torch.testing.assert_close(tensor, expected.state_dict()[name], rtol=1e-6, atol=1e-9)
    single = _flow(**settings, learning_rate=0.02, max_epochs=2).fit(X.astype(np.float32))
    np.testing.assert_allclose(single.loss_curve_, losses[:2], rtol=1e-3)


@pytest.mark.filterwarnings("ignore:The flow was fitted on fewer")
@pytest.mark.parametrize(("n", "batch_size", "filled"), [(11, 4, 1), (12, 4, 0), (5, 32, 5)])
def test_an_epoch_visits_every_row_and_no_batch_is_small(n, batch_size, filled):
    X = np.random.RandomState(0).normal(size=(n, 3))
    flow = _flow(batch_size=batch_size, learning_rate=1e-300).fit(X)
    losses = -flow.score_samples(X)
    again = losses * (filled == n)
    # Of all rows, and of one more or all again.
    possible = (losses.sum() + (losses if filled == 1 else again.sum())) / (n + filled)
    assert np.isclose(possible, flow.loss_curve_[0], rtol=1e-12).any()


@pytest.mark.filterwarnings("ignore:The flow was fitted on fewer")
def test_a_first_step_to_infinity_is_taken_back():
    X = np.random.RandomState(0).normal(size=(8, 4))
    flow = _flow(learning_rate=1e308)
    with pytest.warns(ConvergenceWarning, match="NaN or"):
        flow.fit(X)
    assert flow.n_iter_ == 0
    start = _flow(learning_rate=1e-300).fit(X)
    np.testing.assert_allclose(flow.transform(X), start.transform(X))


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_columns_of_all_units_and_means_count(dtype):
    units = np.array([1e-10, 1e-3, 1, 1e6])
    plain, rows = (X + 3).astype(dtype), ((X + 3) * units).astype(dtype)
    expected, flow = _flow(max_epochs=2).fit(plain), _flow(max_epochs=2).fit(rows)
    Z = flow.transform(rows)
    np.testing.assert_allclose(Z, expected.transform(plain), rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(flow.inverse_transform(Z) / units, plain, atol=1e-4)
    score = expected.score(plain) - np.log(units).sum()
    assert flow.score(rows) == pytest.approx(score, abs=0.01)


@pytest.mark.parametrize(("mean", "dtype"), [(1e3, np.float32), (1e6, np.float64)])
def test_float32_rows_lose_no_more_than_their_own_digits(mean, dtype):
    rows = (X + mean).astype(np.float32)
    flow = _flow().fit(rows.astype(dtype) + dtype(0.01))
    found, expected = flow.transform(rows), flow.transform(rows.astype(np.float64))
    assert found.dtype == np.float32
    np.testing.assert_allclose(found, expected, atol=1e-5)


@pytest.mark.filterwarnings("ignore:The flow was fitted on fewer")
def test_a_held_out_row_without_density_warns():
    rows = X.copy()
    rows[:] = np.where(np.arange(200)[:, None] % 4 == 3, [1e-3], rows)
    rows[150] = 1e200
    flow = _flow(validation_fraction=0.9)
    with pytest.warns(ConvergenceWarning, match="NaN or infinite.*held-out rows, drop rows"):
        flow.fit(rows)


@pytest.mark.parametrize(
    "context",
    [
        torch.no_grad,
        torch.inference_mode,
        lambda: torch.autocast("cpu", torch.bfloat16),
        lambda: torch.device("meta"),
    ],
)
def test_the_state_of_torch_has_no_influence(context):
    flow, expected = _flow(), _flow().fit(X)
    with context():
        flow.fit(X)
        flow = pickle.loads(pickle.dumps(flow))
        found, module = flow.transform(X), flow.to_torch()
    np.testing.assert_array_equal(found, expected.transform(X))
    with torch.no_grad():
        np.testing.assert_allclose(module(torch.tensor(X))[0].numpy(), found, atol=1e-5)
