"""The Glow is a bijection with the log-determinant of its Jacobian, from its start on."""

import itertools
import math

import numpy as np
import pytest
import torch

from skcalib import NormalizingFlow

# Levels and depth.
ARCHITECTURES = [(1, 1), (1, 3), (2, 1), (2, 2), (2, 3)]


def _random_flow(d, n_levels, depth):
    """A flow in general position, in float64: nothing is zero that training would move."""
    rng = np.random.RandomState(0)
    X = rng.normal(size=(40, d)) * rng.uniform(0.5, 2.0, size=d) + rng.normal(size=d)
    settings = {"n_levels": n_levels, "depth": depth, "random_state": 0}
    flow = NormalizingFlow(device="cpu", **settings).fit(X).to_torch()
    with torch.no_grad():
        for parameter in flow.parameters():
            noise = rng.normal(size=parameter.shape)
            parameter += torch.from_numpy(0.2 * noise / math.sqrt(parameter.shape[-1]))
    return flow


def _untrained(X, **settings):
    """A flow that training has not moved from its start."""
    settings |= {"learning_rate": 1e-300, "device": "cpu", "random_state": 0}
    return NormalizingFlow(**settings).fit(X)


@pytest.mark.parametrize(
    ("architecture", "d"),
    [
        *itertools.product(ARCHITECTURES, (2, 7)),
        *itertools.product(ARCHITECTURES[-2:], (3, 64, 384)),
    ],
)
def test_flow_is_a_bijection_with_its_log_determinant(architecture, d):
    flow = _random_flow(d, *architecture)
    x = torch.from_numpy(np.random.RandomState(1).normal(size=(5, d)))
    before = {name: tensor.clone() for name, tensor in flow.state_dict().items()}

    z, logabsdet = flow(x)
    assert (z.shape, z.dtype, logabsdet.shape) == (x.shape, torch.float64, (5,))
    back, inverse_logabsdet = flow.inverse(z)
    torch.testing.assert_close(back, x, rtol=1e-9, atol=1e-9)
    torch.testing.assert_close(inverse_logabsdet, -logabsdet)
    # And the other way round: every z has its u.
    other = torch.from_numpy(np.random.RandomState(2).normal(size=(5, d)))
    torch.testing.assert_close(flow(flow.inverse(other)[0])[0], other, rtol=1e-9, atol=1e-9)

    # A row's image does not depend on its neighbours.
    alone, logabsdet_alone = flow(x[:1])
    torch.testing.assert_close(alone, z[:1])
    torch.testing.assert_close(logabsdet_alone, logabsdet[:1])

    if d <= 7:
        jacobian = torch.autograd.functional.jacobian(lambda row: flow(row[None])[0][0], x[0])
        torch.testing.assert_close(torch.linalg.slogdet(jacobian)[1], logabsdet[0])

    for name, tensor in flow.state_dict().items():
        assert torch.equal(tensor, before[name]), f"a pass changed {name}"


def test_density_integrates_to_one():
    flow = _random_flow(2, n_levels=2, depth=3)
    axis = torch.linspace(-25.0, 25.0, 501, dtype=torch.float64)
    grid = torch.cartesian_prod(axis, axis)
    cell = float(axis[1] - axis[0]) ** 2
    with torch.no_grad():
        assert float(flow.log_prob(grid).exp().sum()) * cell == pytest.approx(1.0, abs=1e-3)


@pytest.mark.parametrize(
    ("d", "n_levels", "depth", "order"),
    [
        (2, 2, 3, range(2)),
        (5, 2, 1, range(5)),
        (16, 3, 3, range(16)),
        (5, 1, 2, [3, 4, 0, 1, 2]),
        (8, 3, 2, [4, 5, 6, 7, 2, 3, 1, 0]),
    ],
)
def test_a_new_flow_is_the_standardisation(d, n_levels, depth, order):
    """In the order of the columns; with an even depth, in that in which dimensions leave."""
    rng = np.random.RandomState(0)
    X = 3.0 + rng.normal(size=(200, d)) * np.geomspace(1e-3, 1e3, d)
    flow = _untrained(X, n_levels=n_levels, depth=depth).to_torch()
    z, logabsdet = flow(torch.from_numpy(X))
    expected = ((X - X.mean(axis=0)) / X.std(axis=0))[:, order]
    np.testing.assert_allclose(z.detach(), expected, rtol=1e-7, atol=1e-7)
    np.testing.assert_allclose(logabsdet.detach(), -np.log(X.std(axis=0)).sum(), atol=1e-7)


@pytest.mark.parametrize(
    ("d", "n_levels", "expected"), [(2, 3, 1), (3, 2, 1), (4, 2, 2), (5, 4, 2), (16, 9, 4)]
)
def test_every_level_keeps_two_dimensions(d, n_levels, expected):
    X = np.random.RandomState(0).normal(size=(50, d))
    Z = _untrained(X, n_levels=n_levels, depth=2).transform(X)
    np.testing.assert_array_equal(Z, _untrained(X, n_levels=expected, depth=2).transform(X))
    fewer = _untrained(X, n_levels=max(1, expected - 1), depth=2).transform(X)
    assert np.array_equal(Z, fewer) is (expected == 1)


@pytest.mark.parametrize("far", [0, 600])
def test_the_standardisation_is_exact_far_from_zero(far):
    rng = np.random.RandomState(0)
    X = 1000.0 + rng.normal(size=(1000, 3)) * [1.0, 1e-3, 0.0]
    X[:far, :2] -= 1e6  # the first block is far from the mean
    Z = _untrained(X).transform(X)
    np.testing.assert_allclose(Z.mean(axis=0), 0.0, atol=1e-9)
    np.testing.assert_allclose(np.sort(Z.std(axis=0)), [0.0, 1.0, 1.0], atol=1e-9)


EPS = np.finfo(np.float32).eps


@pytest.mark.parametrize(
    ("mean", "deviation", "units"),
    [
        ([0, 5, 0, 1], [3, 0, 1e-32, 1e-3], [3, *[math.sqrt(9.000001 / 4)] * 2, 1e-3]),
        # From ten roundings of the values down.
        ([0, 300, 300], [1, 2816 * EPS, 3072 * EPS], [1, math.sqrt(1 / 3), 3072 * EPS]),
        ([0, 5], [0, 0], [1, 1]),
    ],
)
def test_degenerate_columns_count_as_of_typical_deviation(mean, deviation, units):
    signs = np.tile([[1.0], [-1.0]], (20, len(mean)))
    X = (np.array(mean) + signs * deviation).astype(np.float32)
    flow, rows = _untrained(X), X.astype(np.float64)
    moved = flow.transform(rows + units) - flow.transform(rows)
    np.testing.assert_allclose(moved, 1.0, rtol=1e-4)
