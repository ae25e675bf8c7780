"""With power="auto" the flow weights the axes that it maps; its density ignores the weights."""

import numpy as np
import pytest

from skcalib import NormalizingFlow, Whitening


@pytest.fixture(scope="module")
def rows():
    """1500 skewed, correlated rows, whose axes differ tenfold in variance."""
    rng = np.random.RandomState(0)
    skewed = rng.gamma(2.0, size=(1500, 6)) * np.geomspace(1.0, 0.3, 6)
    rotation, _ = np.linalg.qr(rng.normal(size=(6, 6)))
    return skewed @ rotation + 1.0


@pytest.fixture(scope="module")
def massive(rows):
    """The same with a massive column, as in a raw language model."""
    return rows + 5 * np.eye(6)[0] * (1 + rows[:, [1]])


def _flow(**changes):
    return NormalizingFlow(
        **{"device": "cpu", "max_epochs": 3, "power": "auto", "random_state": 0} | changes
    )


@pytest.mark.parametrize("k", [None, 2, "many"])
@pytest.mark.parametrize("kind", ["rows", "massive"])
@pytest.mark.parametrize("times", [1, 8])  # eight times as many rows are not read at once
def test_an_untrained_flow_is_the_whitening_up_to_order_and_a_factor(request, kind, k, times):
    X = request.getfixturevalue(kind)
    X = np.tile(X, (times, 1)) + np.linspace(0, 0.3, times).repeat(len(X))[:, None]
    whitening = Whitening(power="auto", n_groups=k, centering=1.0).fit(X)
    settings = {"learning_rate": 1e-12, "max_epochs": 1, "batch_size": len(X)}
    flow = _flow(n_groups=k, **settings).fit(X)
    assert flow.power_ == whitening.power_
    assert (flow.power_ > 0) == (kind == "massive")
    Z, W = flow.transform(X), whitening.transform(X)
    places = abs(np.corrcoef(Z.T, W.T)[:6, 6:]).argmax(axis=1)
    assert sorted(places) == list(range(6))
    np.testing.assert_allclose(Z, Z.std() / W.std() * W[:, places], atol=1e-6 * abs(Z).max())
    np.testing.assert_allclose(flow.inverse_transform(Z), X, atol=1e-4)


@pytest.mark.parametrize("seed", range(4))
def test_flow_trains_axes_without_variance_on_noise(rows, seed):
    # Its eigenvalue is rounding, of a sign and size that depend on the rows.
    mixing = np.random.RandomState(seed).normal(size=(6, 7))
    flow = _flow(max_epochs=1).fit(rows @ mixing)
    assert np.count_nonzero(flow.to_torch().standardize.jitter) == 1
    assert flow.loss_curve_[-1] > 0  # rounding would be dense


def test_weights_of_axes_leave_density_training_and_samples_alone(massive):
    one, other = _flow(n_groups=2).fit(massive), _flow(n_groups="many").fit(massive)
    assert abs(one.transform(massive) - other.transform(massive)).max() > 1e-3
    assert one.loss_curve_ == other.loss_curve_
    np.testing.assert_array_equal(one.score_samples(massive), other.score_samples(massive))
    np.testing.assert_array_equal(one.sample(50), other.sample(50))
    samples = one.sample(20000)
    np.testing.assert_allclose(samples.mean(axis=0), massive.mean(axis=0), atol=0.2)
    # Weighted samples would have lost much of the variance of the weakest axis.
    spread, expected = (np.linalg.eigvalsh(np.cov(X.T)) for X in (samples, massive))
    np.testing.assert_allclose(spread, expected, rtol=0.4)


def test_the_density_of_rotated_axes_and_scaled_columns_is_that_of_the_map(massive):
    """The logarithm of the determinant has the scales of the columns."""
    torch = pytest.importorskip("torch")
    module = _flow().fit(massive).to_torch()
    x = torch.tensor(massive[:1])
    jacobian = torch.autograd.functional.jacobian(lambda u: module(u)[0][0], x)[:, 0]
    expected = torch.linalg.slogdet(jacobian).logabsdet
    np.testing.assert_allclose(float(module(x)[1].detach()), float(expected), rtol=1e-9)


def test_no_gain_is_too_small_to_invert(rows):
    X = rows * np.geomspace(1.0, 1e-5, 6)
    flow = _flow().fit(X.astype(np.float32))
    assert float(flow.to_torch().gain.min()) >= np.float32(1e-3)
    back = flow.inverse_transform(flow.transform(X.astype(np.float32)))
    # An axis is inverted to its own digits; columns mix axes.
    assert (abs(back - X).max(axis=0) < 1e-3 * X.std()).all()


@pytest.mark.parametrize(
    ("settings", "row", "message"),
    [
        ({}, np.zeros(6), r"All 9 samples are equal.*or set power=1"),
        ({}, 1e200, r"overflow float64.* Scale X down"),
        ({"power": 1}, 1e200, r"overflow float64\. Scale X .* or drop"),
        ({"power": 1, "n_groups": 4}, 1.0, r"n_groups=4 with power=1.*power='auto'"),
    ],
)
def test_what_has_no_axes_is_refused(settings, row, message):
    flow, X = _flow(**settings), np.zeros((9, 6))
    X[5] = row
    with pytest.raises(ValueError, match=message):
        flow.fit(X)
    assert not hasattr(flow, "n_features_in_")
