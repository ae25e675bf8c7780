"""With noise the flow maps filtered vectors; its density is that of the vectors as they are."""

import numpy as np
import pytest

from skcalib import NormalizingFlow, Whitening


@pytest.fixture(scope="module")
def rows():
    """1500 skewed, correlated rows, whose axes differ a hundredfold in variance."""
    rng = np.random.RandomState(0)
    skewed = rng.gamma(2.0, size=(1500, 6)) * np.geomspace(1.0, 0.1, 6)
    rotation, _ = np.linalg.qr(rng.normal(size=(6, 6)))
    return skewed @ rotation + 1.0


def _flow(**changes):
    return NormalizingFlow(
        **{"device": "cpu", "max_epochs": 3, "noise": 0.5, "random_state": 0} | changes
    )


def _filtered(X, noise):
    """Rows of X, each axis of its covariance faded by λ / (λ + noise tr(Σ))."""
    mean, (variance, axes) = X.mean(axis=0), np.linalg.eigh(np.cov(X.T))
    gain = variance / (variance + noise * variance.sum())
    return (X - mean) @ axes * gain @ axes.T + mean


@pytest.mark.parametrize(
    ("noise", "k", "times"),  # eight times as many rows are not read at once
    [(0.1, None, 8), (2.0, None, 1), ("auto", None, 1), ("auto", 4, 1)],
)
def test_an_untrained_flow_is_the_whitening_up_to_order(rows, noise, k, times):
    rows = np.tile(rows, (times, 1)) + np.arange(times).repeat(len(rows))[:, None]
    told = {"noise": noise, "n_groups": k}
    whitening = Whitening(**told, centering=1.0).fit(rows)
    settings = {"learning_rate": 1e-12, "max_epochs": 1, "batch_size": len(rows)}
    flow = _flow(**told, **settings).fit(rows)
    assert flow.noise_ == pytest.approx(whitening.noise_)
    Z, W = flow.transform(rows), whitening.transform(rows)
    places = abs(np.corrcoef(Z.T, W.T)[:6, 6:]).argmax(axis=1)
    assert sorted(places) == list(range(6))
    # With a power below 1, up to a factor.
    scale = Z.std() / W.std() if whitening.power_ < 1 else 1.0
    assert flow.level_ == pytest.approx(whitening.level_)
    np.testing.assert_allclose(Z, scale * W[:, places], atol=1e-6)


def test_the_map_is_that_of_filtered_rows(rows):
    settings = {"learning_rate": 3e-3, "max_epochs": 1, "batch_size": 50}
    flow = _flow(noise=0.5, **settings).fit(rows)
    unfiltered = _flow(noise=1e-12, **settings).fit(rows)
    expected = unfiltered.transform(_filtered(rows, 0.5))
    np.testing.assert_allclose(flow.transform(rows), expected, atol=1e-6)
    assert np.ptp(expected) > 1.0


@pytest.mark.parametrize("seed", range(4))
def test_flow_trains_axes_without_variance_on_noise(rows, seed):
    # Its eigenvalue is rounding, of a sign and size that depend on the rows.
    mixing = np.random.RandomState(seed).normal(size=(6, 7))
    flow = _flow(max_epochs=1).fit(rows @ mixing)
    assert np.count_nonzero(flow.to_torch().standardize.jitter) == 1
    assert flow.loss_curve_[-1] > 0  # rounding would be dense


def test_noise_leaves_density_training_and_samples_alone(rows):
    one, other = _flow(noise=0.5).fit(rows), _flow(noise="auto").fit(rows)
    assert one.noise_ != other.noise_
    assert one.loss_curve_ == other.loss_curve_
    np.testing.assert_array_equal(one.score_samples(rows), other.score_samples(rows))
    np.testing.assert_array_equal(one.sample(50), other.sample(50))
    samples = one.sample(20000)
    np.testing.assert_allclose(samples.mean(axis=0), rows.mean(axis=0), atol=0.2)
    # Filtered samples would have lost nearly all the variance of the weakest axis.
    spread, expected = (np.linalg.eigvalsh(np.cov(X.T)) for X in (samples, rows))
    np.testing.assert_allclose(spread, expected, rtol=0.3)


def test_no_gain_is_too_small_to_invert():
    X = np.random.RandomState(0).normal(size=(500, 5)) * np.geomspace(1.0, 1e-5, 5)
    flow = _flow(noise=1.0).fit(X.astype(np.float32))
    assert float(flow.to_torch().gain.min()) == np.float32(1e-3)
    back = flow.inverse_transform(flow.transform(X.astype(np.float32)))
    assert (abs(back - X).max(axis=0) < 1e-3 * X.std(axis=0)).all()


@pytest.mark.parametrize(
    ("settings", "row", "message"),
    [
        ({"noise": "auto"}, np.zeros(6), r"All 9 samples are equal.*or set noise=0"),
        ({"noise": "auto"}, 1e200, r"overflow float64.* Scale X down"),
        ({"noise": 0.0}, 1e200, r"overflow float64\. Scale X .* or drop"),
        ({"noise": 0.5, "n_groups": 4}, 1.0, r"n_groups=4 and noise=0\.5.*'auto'"),
    ],
)
def test_what_has_no_filter_is_refused(settings, row, message):
    flow, X = _flow(**settings), np.zeros((9, 6))
    X[5] = row
    with pytest.raises(ValueError, match=message):
        flow.fit(X)
    assert not hasattr(flow, "n_features_in_")
