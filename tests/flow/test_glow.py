"""The Glow is a bijection, its log-determinant is that of its Jacobian, its loss trains."""

import itertools
import math

import numpy as np
import pytest
import torch

from skcalib import NormalizingFlow
from skcalib._flow.glow import Glow, Standardize
from skcalib._flow.rows import shuffled_batches
from skcalib._flow.statistics import column_moments
from skcalib._flow.training import Trainer
from skcalib._flow.transforms import ActNorm, Coupling, LULinear, Permutation

ARCHITECTURES = list(
    itertools.product(("additive", "affine"), ("reverse", "shuffle", "lu"), (1, 2), (1, 3))
)


def _random_flow(d, coupling, permutation, n_levels, depth, seed=0):
    """A flow in general position, in float64: nothing is zero that training would move."""
    rng = np.random.RandomState(seed)
    X = rng.normal(size=(40, d)) * rng.uniform(0.5, 2.0, size=d) + rng.normal(size=d)
    settings = {"coupling": coupling, "permutation": permutation, "coupling_width": 8}
    estimator = NormalizingFlow(
        n_levels=n_levels, depth=depth, random_state=seed, device="cpu", **settings
    )
    flow = estimator.fit(X).to_torch()
    with torch.no_grad():
        for parameter in flow.parameters():
            noise = rng.normal(size=parameter.shape)
            parameter += torch.from_numpy(0.2 * noise / math.sqrt(parameter.shape[-1]))
    return flow


@pytest.mark.parametrize("d", [2, 3, 7, 64, 384])
@pytest.mark.parametrize(("coupling", "permutation", "n_levels", "depth"), ARCHITECTURES)
def test_flow_is_a_bijection_with_the_log_determinant_it_states(
    coupling, permutation, n_levels, depth, d
):
    flow = _random_flow(d, coupling, permutation, n_levels, depth)
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


@pytest.mark.parametrize(
    "transform",
    [
        Standardize(5),
        ActNorm(5),
        Permutation(5),
        LULinear(5),
        Coupling(5, 4, affine=False),
        Coupling(5, 4, affine=True),
    ],
    ids=lambda transform: type(transform).__name__,
)
def test_each_transform_inverts_and_states_its_log_determinant(transform):
    transform = transform.double()
    rng = np.random.RandomState(0)
    with torch.no_grad():
        for parameter in transform.parameters():
            parameter.copy_(torch.from_numpy(rng.normal(0.0, 0.5, parameter.shape)))
        if isinstance(transform, Standardize):
            transform.initialize(rng.normal(size=5), rng.uniform(0.1, 9.0, size=5))
    x = torch.from_numpy(rng.normal(size=(3, 5)))
    y, logabsdet = transform(x)
    back, inverse_logabsdet = transform.inverse(y)
    torch.testing.assert_close(back, x)
    torch.testing.assert_close(inverse_logabsdet, -logabsdet)
    for row, expected in zip(x, logabsdet.expand(3), strict=True):
        jacobian = torch.autograd.functional.jacobian(lambda r: transform(r[None])[0][0], row)
        torch.testing.assert_close(torch.linalg.slogdet(jacobian)[1], expected)


@pytest.mark.parametrize("coupling", ["additive", "affine"])
@pytest.mark.parametrize("permutation", ["reverse", "shuffle", "lu"])
def test_density_integrates_to_one(coupling, permutation):
    flow = _random_flow(2, coupling, permutation, n_levels=2, depth=3)
    axis = torch.linspace(-25.0, 25.0, 1001, dtype=torch.float64)
    grid = torch.cartesian_prod(axis, axis)
    cell = float(axis[1] - axis[0]) ** 2
    with torch.no_grad():
        assert float(flow.log_prob(grid).exp().sum()) * cell == pytest.approx(1.0, abs=1e-3)


@pytest.mark.parametrize("permutation", ["reverse", "shuffle", "lu"])
@pytest.mark.parametrize("d", [2, 5, 16])
def test_a_new_flow_is_the_standardisation_up_to_order(permutation, d):
    rng = np.random.RandomState(0)
    X = 3.0 + rng.normal(size=(200, d)) * np.geomspace(1e-3, 1e3, d)
    flow = NormalizingFlow(
        coupling="affine", permutation=permutation, learning_rate=1e-12, device="cpu"
    )
    z, logabsdet = flow.fit(X).to_torch()(torch.from_numpy(X))
    expected = (X - X.mean(axis=0)) / X.std(axis=0)
    # Columns may come in another order: compare them sorted by their first entry.
    z, expected = (a[:, a[0].argsort()] for a in (z.detach().numpy(), expected))
    np.testing.assert_allclose(z, expected, rtol=1e-7, atol=1e-7)
    np.testing.assert_allclose(logabsdet.detach(), -np.log(X.std(axis=0)).sum(), atol=1e-7)


@pytest.mark.parametrize(
    ("d", "n_levels", "expected"), [(2, 3, 1), (3, 2, 1), (4, 2, 2), (384, 2, 2), (16, 9, 4)]
)
def test_every_level_keeps_two_dimensions(d, n_levels, expected):
    flow = NormalizingFlow(n_levels=n_levels, depth=1, coupling_width=4, device="cpu")
    assert len(flow.fit(np.eye(d)[:9]).to_torch().levels) == expected


EPS = np.finfo(np.float32).eps


@pytest.mark.parametrize(
    ("mean", "deviation", "degenerate", "typical"),
    [
        ([0.0, 5.0, 0.0, 1.0], [3.0, 0.0, 1e-32, 1e-3], [1, 2], math.sqrt(9.000001 / 4)),
        # From ten roundings of the values down.
        ([0.0, 300.0, 300.0], [1.0, 2900 * EPS, 3100 * EPS], [1], math.sqrt(1 / 3)),
        ([0.0, 5.0], [0.0, 0.0], [0, 1], 1.0),
    ],
)
def test_degenerate_columns_count_as_noise_of_typical_deviation(
    mean, deviation, degenerate, typical
):
    standardize, expected = Standardize(len(mean)), np.array(deviation)
    standardize.initialize(np.array(mean), np.array(deviation))
    expected[degenerate] = typical
    np.testing.assert_allclose(1.0 / standardize.scale, expected, rtol=1e-6)
    assert np.flatnonzero(standardize.jitter).tolist() == degenerate
    np.testing.assert_allclose(standardize.jitter[degenerate], typical, rtol=1e-6)


@pytest.mark.parametrize("size", [1e-220, 1e220])
def test_deviations_whose_squares_leave_float64_are_standardised(size):
    standardize = Standardize(2).double()
    standardize.initialize(np.zeros(2), np.array([0.0, size]))
    np.testing.assert_allclose(1.0 / standardize.scale, [size * math.sqrt(0.5), size])


@pytest.mark.parametrize(("fits", "does_not"), [(5e-29, 3e-29), (7e28, 9e28)])
def test_scales_keep_a_quarter_of_the_range_free(fits, does_not):
    # 2^-126 and 2^128, float32's limits, to the power of 3/4: 3.6e-29 and 7.9e28.
    Standardize(2).initialize(np.zeros(2), np.full(2, fits))
    with pytest.raises(ValueError, match="out of the range of float32"):
        Standardize(2).initialize(np.zeros(2), np.full(2, does_not))


def test_lu_linear_is_the_product_it_states():
    transform, rng = LULinear(5).double(), np.random.RandomState(0)
    with torch.no_grad():
        for parameter in transform.parameters():
            parameter.copy_(torch.from_numpy(rng.normal(size=parameter.shape)))
    lower, upper, log_diagonal = (p.detach().numpy() for p in transform.parameters())
    x = rng.normal(size=(3, 5))
    L = np.tril(lower, -1) + np.eye(5)
    U = np.triu(upper, 1) + np.diag(np.exp(log_diagonal))
    y, _ = transform(torch.from_numpy(x))
    np.testing.assert_allclose(y.detach(), (x @ (L @ U).T)[:, ::-1])


def test_hidden_layers_start_at_half_of_what_keeps_the_variance():
    flow = Glow(128, 1, 1, 256, "additive", "reverse")
    flow.initialize(np.zeros(128), np.ones(128), np.random.RandomState(0))
    (network,) = (m.network for m in flow.modules() if isinstance(m, Coupling))
    for layer in (network[0], network[2]):
        assert float(layer.weight.detach().std()) == pytest.approx(
            math.sqrt(0.5 / layer.in_features), rel=0.03
        )


def test_an_affine_coupling_scales_by_e_squared_at_most():
    coupling = Coupling(4, 8, affine=True).double()
    with torch.no_grad():
        for parameter in coupling.parameters():
            parameter.normal_(0.0, 100.0, generator=torch.Generator().manual_seed(0))
        _, logabsdet = coupling(torch.randn(500, 4, generator=torch.Generator()).double())
    limits = float(logabsdet.min()), float(logabsdet.max())
    assert limits == pytest.approx((-2 * 2.0, 2 * 2.0))  # of two dimensions


@pytest.mark.parametrize("permutation", ["reverse", "lu"])  # by hand and by autograd
def test_trainer_takes_the_steps_of_adam_without_bias_correction(permutation):
    flow = _random_flow(6, "additive", permutation, n_levels=1, depth=2)
    reference = _random_flow(6, "additive", permutation, n_levels=1, depth=2)
    trainer = Trainer(flow, learning_rate=0.01, weight_decay=0.1)
    moments = {p: (torch.zeros_like(p), torch.zeros_like(p)) for p in reference.parameters()}
    for seed in range(3):
        batch = torch.from_numpy(np.random.RandomState(seed).normal(size=(4, 6)))
        loss = trainer.step(batch)

        reference.zero_grad()
        expected = -reference.log_prob(batch).mean()
        (expected / (6 * math.log(2.0))).backward()
        gradients = [p.grad for p in reference.parameters()]
        norm = torch.sqrt(sum(g.square().sum() for g in gradients))
        assert float(loss) == pytest.approx(float(expected.detach()))
        with torch.no_grad():
            for p in reference.parameters():
                m, v = moments[p]
                g = p.grad / max(1.0, float(norm))
                m.mul_(0.9).add_(0.1 * g)
                v.mul_(0.999).add_(0.001 * g**2)
                decay = 0.1 if p.ndim == 2 else 0.0
                p -= 0.01 * (m / (v.sqrt() + 1e-6) + decay * p)
    assert norm > 1.0, "the test should see a gradient clipped"
    trainer.write_back()
    for name, parameter in flow.state_dict().items():
        torch.testing.assert_close(parameter, reference.state_dict()[name])


def test_epoch_visits_every_row_and_no_batch_is_small():
    seen = []

    class Recorder(Trainer):
        def step(self, batch):
            seen.append(batch)
            return batch.new_zeros(())

    trainer = Recorder(_random_flow(3, "additive", "reverse", 1, 1), 0.1, 0.0)
    X = np.arange(36.0).reshape(12, 3)
    trainer.epoch(X, np.arange(11), 4, np.random.RandomState(0))
    assert [len(batch) for batch in seen] == [4, 4, 4]
    rows = torch.cat(seen)[:, 0].numpy() / 3.0
    assert set(rows) == set(range(11))
    assert not np.array_equal(rows[:11], np.arange(11))


def test_large_data_are_shuffled_in_runs_within_pools(monkeypatch):
    monkeypatch.setattr("skcalib._flow.rows.LARGE_BYTES", 4 * 2048 * 24)
    X = np.repeat(np.arange(10_000.0)[:, None], 3, axis=1)  # 24 bytes a row
    rows = np.arange(3, 10_000)
    batches = list(shuffled_batches(X, rows, 8, np.random.RandomState(0)))
    assert [len(batch) for batch in batches] == [8] * 1250
    seen = np.concatenate(batches)[:, 0].astype(int)
    assert set(seen) == set(rows)
    # A pool of 2048 rows comes from a few stretches of the file, shuffled within.
    for pool in np.split(seen, [2048, 4096, 6144, 8192])[:4]:
        stretches = 1 + (np.diff(np.sort(pool)) > 1).sum()
        assert 3 < stretches <= 2048 // 256 + 3
        assert (np.diff(pool) == 1).sum() < 8


@pytest.mark.parametrize("far", [0, 600])
def test_column_moments_are_those_of_the_rows_asked_for(far):
    rng = np.random.RandomState(0)
    X = (1000.0 + rng.normal(size=(1000, 3)) * [1.0, 1e-3, 0.0]).astype(np.float32)
    X[:far, :2] -= 1e6  # the first block is far from the mean
    rows = np.sort(rng.permutation(1000)[:700])
    mean, deviation = column_moments(X, rows)
    np.testing.assert_allclose(mean, X[rows].astype(float).mean(axis=0), rtol=1e-14)
    np.testing.assert_allclose(deviation, X[rows].astype(float).std(axis=0), rtol=1e-10)
    assert deviation[2] == 0.0


def test_divergence_restores_the_last_good_state():
    states = []

    class Poisoned(Trainer):
        def step(self, batch):
            states.append(self.state())
            return super().step(batch * (math.nan if len(states) == 100 else 1.0))

    trainer = Poisoned(_random_flow(4, "additive", "reverse", 1, 1), 0.01, 0.0)
    rng = np.random.RandomState(0)
    X, rows = rng.normal(size=(1000, 4)), np.arange(1000)
    assert math.isnan(trainer.epoch(X, rows, 8, rng))
    for tensor, expected in zip(trainer.state(), states[64], strict=True):
        assert torch.equal(tensor, expected)
    # A step may be the first to give infinite parameters, and the last.
    hopeless = Trainer(_random_flow(4, "additive", "reverse", 1, 1), 1e308, 0.0)
    assert math.isnan(hopeless.epoch(X, rows[:8], 8, rng))
