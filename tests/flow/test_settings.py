"""NormalizingFlow whatever the units of columns, the rows held out, and the state of torch."""

import pickle

import numpy as np
import pytest
import torch
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning

from skcalib import NormalizingFlow

X = np.random.default_rng(0).normal(size=(200, 4))


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_columns_of_all_units_count(dtype):
    units = np.array([1e-10, 1e-3, 1, 1e6])
    flow, rows = NormalizingFlow(device="cpu", random_state=0), (X * units).astype(dtype)
    flow.fit(rows)
    back = flow.inverse_transform(flow.transform(rows))
    np.testing.assert_allclose(back / units, X, atol=1e-4)
    expected = clone(flow).fit(X.astype(dtype)).score(X.astype(dtype)) - np.log(units).sum()
    assert flow.score(rows) == pytest.approx(expected, abs=0.01)


def test_float32_rows_lose_no_more_than_their_own_digits():
    rows = (X + 1e6).astype(np.float32)
    flow = NormalizingFlow(device="cpu", random_state=0).fit(rows.astype(np.float64) + 0.01)
    found, expected = flow.transform(rows), flow.transform(rows.astype(np.float64))
    assert found.dtype == np.float32
    np.testing.assert_allclose(found, expected, atol=1e-5)


def test_a_held_out_row_without_density_warns():
    rows = X.copy()
    rows[:] = np.where(np.arange(200)[:, None] % 4 == 3, [1e-3], rows)
    rows[150] = 1e200
    flow = NormalizingFlow(device="cpu", validation_fraction=0.9, n_iter_no_change=2)
    with pytest.warns(ConvergenceWarning, match="NaN or infinite.*held out, drop those far"):
        flow.set_params(random_state=0).fit(rows)


@pytest.mark.parametrize(
    "context",
    [
        torch.no_grad,
        torch.inference_mode,
        lambda: torch.autocast("cpu", torch.bfloat16),
        lambda: torch.device("meta"),
    ],
)
@pytest.mark.parametrize("coupling", ["additive", "affine"])
def test_the_state_of_torch_has_no_influence(context, coupling):
    flow = NormalizingFlow(coupling=coupling, device="cpu", random_state=0)
    expected = clone(flow).fit(X)
    with context():
        flow.fit(X)
        flow = pickle.loads(pickle.dumps(flow)).partial_fit(X)
        found, module = flow.transform(X), flow.to_torch()
    np.testing.assert_array_equal(found, expected.partial_fit(X).transform(X))
    with torch.no_grad():
        np.testing.assert_allclose(module(torch.tensor(X))[0].numpy(), found, atol=1e-5)
