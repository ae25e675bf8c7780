"""The hand-written gradient is autograd's."""

import itertools
import math

import numpy as np
import pytest
import torch

from skcalib._flow.glow import Glow
from skcalib._flow.gradient import AdditiveGradient, has_written_gradient
from skcalib._flow.training import AutogradGradient, Trainer

ARCHITECTURES = list(itertools.product(("reverse", "shuffle"), (1, 3), (1, 2, 3)))
TOLERANCES = {torch.float32: 1e-5, torch.float64: 1e-10}


def _flow(d, permutation, n_levels, depth, dtype=torch.float64, spread=1.0):
    """A flow in general position: nothing is zero that training would move."""
    rng = np.random.RandomState(0)
    flow = Glow(d, n_levels, depth, 8, "additive", permutation).to(dtype)
    flow.initialize(rng.normal(size=d), spread * rng.uniform(0.5, 2.0, size=d), rng)
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
@pytest.mark.parametrize(("permutation", "n_levels", "depth"), ARCHITECTURES)
def test_gradient_is_that_of_autograd(permutation, n_levels, depth, d, dtype):
    flow = _flow(d, permutation, n_levels, depth, dtype)
    written = AdditiveGradient(flow)
    expected = AutogradGradient(flow)
    # A second batch of the same size reuses the buffers, one of another makes new ones.
    for n_rows, seed in ((6, 1), (6, 2), (4, 3), (6, 4)):
        batch = _rows(n_rows, d, dtype, seed)
        loss, expected_loss = written(batch), expected(batch)
        assert float(loss) == pytest.approx(float(expected_loss), rel=TOLERANCES[dtype])
        gradient = expected.gradient[written.order]
        assert _relative_error(written.gradient, gradient) < TOLERANCES[dtype]


def test_gradient_leaves_the_batch_and_the_parameters_alone():
    written = AdditiveGradient(_flow(6, "shuffle", 2, 2))
    batch = _rows(5, 6, torch.float64)
    batch_before, vector_before = batch.clone(), written.vector.clone()
    written(batch)
    assert torch.equal(batch, batch_before)
    assert torch.equal(written.vector, vector_before)


@pytest.mark.parametrize("permutation", ["reverse", "shuffle"])
def test_order_is_a_permutation_of_the_parameters(permutation):
    flow = _flow(7, permutation, 2, 3)
    order = AdditiveGradient(flow).order
    n_parameters = sum(p.numel() for p in flow.parameters())
    assert torch.equal(order.sort().values, torch.arange(n_parameters))


@pytest.mark.parametrize(
    ("coupling", "permutation", "expected"),
    [
        ("additive", "reverse", True),
        ("additive", "shuffle", True),
        ("additive", "lu", False),
        ("affine", "reverse", False),
    ],
)
def test_which_flows_have_a_written_gradient(coupling, permutation, expected):
    assert has_written_gradient(Glow(4, 1, 1, 4, coupling, permutation)) is expected


@pytest.mark.parametrize("permutation", ["reverse", "shuffle"])
def test_training_takes_the_steps_that_autograd_takes(permutation, monkeypatch):
    X = np.random.RandomState(0).normal(size=(200, 12)) ** 3
    flows, trainers = [], []
    for has_written in (has_written_gradient, lambda flow: False):
        monkeypatch.setattr("skcalib._flow.training.has_written_gradient", has_written)
        flow = _flow(12, permutation, 2, 3)
        trainer = Trainer(flow, learning_rate=0.01, weight_decay=0.1)
        losses = [
            trainer.epoch(X, np.arange(200), 16, np.random.RandomState(1)) for _ in range(3)
        ]
        trainer.write_back()
        flows.append(flow)
        trainers.append((losses, trainer.moments()))
    for name, parameter in flows[0].state_dict().items():
        torch.testing.assert_close(parameter, flows[1].state_dict()[name])
    (losses, moments), (expected_losses, expected_moments) = trainers
    np.testing.assert_allclose(losses, expected_losses)
    for moment, expected in zip(moments, expected_moments, strict=True):
        np.testing.assert_allclose(moment, expected, rtol=1e-6, atol=1e-12)


def test_moments_go_from_one_gradient_to_the_other(monkeypatch):
    X = np.random.RandomState(0).normal(size=(64, 6))
    flow = _flow(6, "reverse", 2, 2)
    trainer = Trainer(flow, 0.01, 0.0)
    trainer.epoch(X, np.arange(64), 8, np.random.RandomState(0))
    moments = trainer.moments()
    monkeypatch.setattr("skcalib._flow.training.has_written_gradient", lambda flow: False)
    other = Trainer(flow, 0.01, 0.0)
    other.load_moments(moments)
    for moment, expected in zip(other.moments(), moments, strict=True):
        np.testing.assert_array_equal(moment, expected)


@torch.no_grad()
def test_float32_keeps_its_digits_below_a_large_mean():
    flow = _flow(8, "reverse", 2, 3, torch.float32, spread=1e-3)
    exact = _flow(8, "reverse", 2, 3, torch.float64)
    exact.load_state_dict(flow.state_dict())
    x = flow.standardize.loc + 1e-3 * _rows(50, 8, torch.float32)
    assert _relative_error(flow(x)[0].double(), exact(x.double())[0]) < 1e-5
