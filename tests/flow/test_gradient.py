"""The hand-written gradient is autograd's."""

import math

import numpy as np
import pytest
import torch

from skcalib._flow.glow import Glow
from skcalib._flow.gradient import AdditiveGradient, has_written_gradient
from skcalib._flow.training import AutogradGradient, Trainer

TOLERANCES = {torch.float32: 1e-5, torch.float64: 1e-10}


def _flow(d, n_levels, depth, dtype=torch.float64, spread=1.0, noise=0.0):
    """A flow in general position: nothing is zero that training would move."""
    rng = np.random.RandomState(0)
    flow = Glow(d, n_levels, depth, 8, "additive", "reverse", noise).to(dtype)
    axes = np.linalg.qr(rng.normal(size=(d, d)))[0] if noise else None
    flow.initialize(rng.normal(size=d), spread * rng.uniform(0.5, 2.0, size=d), rng, axes)
    with torch.no_grad():
        for parameter in flow.parameters():
            noise = 0.2 * rng.normal(size=parameter.shape) / math.sqrt(parameter.shape[-1])
            parameter += torch.from_numpy(noise)
    return flow.eval()


def _rows(n, d, dtype, seed=1):
    return torch.from_numpy(np.random.RandomState(seed).normal(size=(n, d))).to(dtype)


def _relative_error(actual, expected):
    return float((actual - expected).abs().max() / expected.abs().max())


@pytest.mark.parametrize("dtype", TOLERANCES, ids=str)
@pytest.mark.parametrize("d", [2, 3, 7, 64, 384])
@pytest.mark.parametrize("n_levels", [1, 3])
@pytest.mark.parametrize("depth", [1, 2, 3])
@pytest.mark.parametrize("noise", [0.0, 1.0])
def test_gradient_is_that_of_autograd(n_levels, depth, d, dtype, noise):
    flow = _flow(d, n_levels, depth, dtype, noise=noise)
    written, expected = AdditiveGradient(flow), AutogradGradient(flow)
    vector = written.vector.clone()
    # A second batch of the same size reuses the buffers, one of another makes new ones.
    for n_rows, seed in ((6, 1), (6, 2), (4, 3), (6, 4)):
        batch = _rows(n_rows, d, dtype, seed)
        loss, expected_loss = written(batch), expected(batch)
        assert float(loss) == pytest.approx(float(expected_loss), rel=TOLERANCES[dtype])
        gradient = expected.gradient[written.order]
        assert _relative_error(written.gradient, gradient) < TOLERANCES[dtype]
        assert torch.equal(batch, _rows(n_rows, d, dtype, seed))  # as it was
    assert torch.equal(written.vector, vector)


def test_order_is_a_permutation_of_the_parameters():
    flow = _flow(7, 2, 3)
    n_parameters = sum(p.numel() for p in flow.parameters())
    order = AdditiveGradient(flow).order
    assert torch.equal(order.sort().values, torch.arange(n_parameters))


@pytest.mark.parametrize("coupling", ["additive", "affine"])
@pytest.mark.parametrize("permutation", ["reverse", "shuffle", "lu"])
def test_only_the_default_has_a_written_gradient(coupling, permutation):
    is_default = (coupling, permutation) == ("additive", "reverse")
    assert has_written_gradient(Glow(4, 1, 1, 4, coupling, permutation)) is is_default


def test_training_takes_the_steps_that_autograd_takes(monkeypatch):
    X = np.random.RandomState(0).normal(size=(200, 12)) ** 3
    written, expected = _flow(12, 2, 3), _flow(12, 2, 3)
    trainer = Trainer(written, learning_rate=0.01, weight_decay=0.1)
    monkeypatch.setattr("skcalib._flow.training.has_written_gradient", lambda flow: False)
    reference = Trainer(expected, learning_rate=0.01, weight_decay=0.1)
    for seed in range(3):
        losses = [
            t.epoch(X, np.arange(200), 16, np.random.RandomState(seed))
            for t in (trainer, reference)
        ]
        assert losses[0] == pytest.approx(losses[1])
    trainer.write_back()
    reference.write_back()
    for name, array in written.arrays().items():
        np.testing.assert_allclose(array, expected.arrays()[name], rtol=1e-6, atol=1e-9)
    moments, expected_moments = trainer.adam_state(), reference.adam_state()
    np.testing.assert_allclose(moments, expected_moments, rtol=1e-6, atol=1e-12)
    # Adam's moments go from one gradient to the other, whose orders of entries differ.
    other = Trainer(written, 0.01, 0.1, moments)
    np.testing.assert_array_equal(other.adam_state(), moments)


@torch.no_grad()
def test_float32_keeps_its_digits_below_a_large_mean():
    flow = _flow(8, 2, 3, torch.float32, spread=1e-3)
    exact = _flow(8, 2, 3, torch.float64)
    exact.load_state_dict(flow.state_dict())
    x = flow.standardize.loc + 1e-3 * _rows(50, 8, torch.float32)
    assert _relative_error(flow(x)[0].double(), exact(x.double())[0]) < 1e-5
