"""Whitening: the theorem, the reference, and scikit-learn's contract."""

import pickle

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.decomposition import PCA
from sklearn.exceptions import NotFittedError

from skcalib import Whitening

ATTRIBUTES = (
    *("mean_", "components_", "explained_variance_", "explained_variance_ratio_"),
    *("n_components_", "rank_", "shrinkage_", "noise_", "n_samples_seen_"),
)


@pytest.fixture
def X():
    """Anisotropic vectors far from the origin: 600 of 12 dimensions."""
    rng = np.random.default_rng(0)
    return rng.normal(size=(600, 12)) @ rng.normal(size=(12, 12)) + 50


@pytest.fixture
def few():
    """Fewer samples than dimensions: 10 of 30."""
    return np.random.default_rng(1).normal(size=(10, 30)) + 3


def float64_whitening(X, k=None):
    """Whiten by the SVD of the centred sample, independent of any covariance."""
    X = X.astype(np.float64)
    mean = X.mean(axis=0)
    _, s, vt = np.linalg.svd(X - mean, full_matrices=False)
    scale = s[:k] / np.sqrt(len(X) - 1)
    vt = vt[:k]
    signs = np.sign(vt[np.arange(len(vt)), np.abs(vt).argmax(axis=1)])
    return lambda Z: (Z.astype(np.float64) - mean) @ (vt * signs[:, None]).T / scale


# The theorem -----------------------------------------------------------------------------


@pytest.mark.parametrize("method", ["pca", "zca", "rotated"])
def test_whitened_sample_has_zero_mean_and_identity_covariance(X, method):
    Z = Whitening(method=method).fit_transform(X)
    assert_allclose(Z.mean(axis=0), 0, atol=1e-11)
    assert_allclose(np.cov(Z, rowvar=False), np.eye(12), atol=1e-10)


@pytest.mark.parametrize("power", [0.0, 0.3, 1.0])
def test_power_leaves_that_much_of_the_spectrum(X, power):
    whitening = Whitening(power=power).fit(X)
    spectrum = np.diag(whitening.explained_variance_ ** (1 - power))
    assert_allclose(np.cov(whitening.transform(X), rowvar=False), spectrum, 1e-9, 1e-9)


def test_power_zero_is_pca_and_kept_dimensions_come_back_to_its_projection(X):
    ours, pca = Whitening(5, power=0).fit(X), PCA(5, svd_solver="full").fit(X)
    assert_allclose(np.abs(ours.transform(X)), np.abs(pca.transform(X)), rtol=1e-8, atol=1e-9)
    assert_allclose(ours.explained_variance_, pca.explained_variance_, rtol=1e-10)
    assert_allclose(ours.explained_variance_ratio_, pca.explained_variance_ratio_, rtol=1e-10)
    assert_allclose(np.abs(ours.components_), np.abs(pca.components_), rtol=1e-8)
    projected = pca.inverse_transform(pca.transform(X))
    for whitening in (ours, Whitening(5).fit(X)):
        back = whitening.inverse_transform(whitening.transform(X))
        assert_allclose(back, projected, rtol=1e-9)


@pytest.mark.parametrize("offset", [10, 1000])
def test_what_float32_rounds_is_no_direction(offset):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(400, 3)) @ rng.normal(size=(3, 6)) + offset
    assert Whitening().fit(X.astype(np.float32)).rank_ == 3
    assert Whitening().fit(X.astype(np.float32).astype(np.float64)).rank_ == 6


@pytest.mark.filterwarnings("ignore:There are fewer than 5 samples")
@pytest.mark.parametrize("seed", range(5))
def test_n_samples_have_n_minus_1_directions(seed):
    X = np.random.default_rng(seed).normal(size=(5, 20)) * np.geomspace(1, 1e-6, 20)
    assert Whitening().fit(X).rank_ == 4


def test_shrinkage_whitens_the_shrunk_covariance(X):
    whitening = Whitening(shrinkage=0.4).fit(X)
    covariance = np.cov(X, rowvar=False)
    shrunk = 0.6 * covariance + 0.4 * np.trace(covariance) / 12 * np.eye(12)
    W = whitening.linear_map().projection
    assert_allclose(W.T @ shrunk @ W, np.eye(12), atol=1e-9)


@pytest.mark.parametrize("params", [{}, {"power": 0.5, "n_components": 5}, {"shrinkage": 0.4}])
def test_noise_is_a_wiener_filter_by_its_share_of_the_total_variance(X, params):
    pca = Whitening(power=0).fit(X)
    variance, shrinkage = pca.explained_variance_, params.get("shrinkage", 0)
    shrunk = (1 - shrinkage) * variance + shrinkage * variance.mean()
    gain = shrunk ** (1 - params.get("power", 1) / 2) / (shrunk + 0.7 * variance.sum())
    Z = Whitening(noise=0.7, **params).fit_transform(X)
    assert_allclose(Z, (pca.transform(X) * gain)[:, : params.get("n_components")], rtol=1e-7)


@pytest.mark.parametrize("n_components", [3, 0.9, None])
@pytest.mark.parametrize("noise", [0.0, 0.5])
def test_zca_rotates_the_axes_kept_back(X, n_components, noise):
    pca = Whitening(n_components, noise=noise).fit(X)
    zca = Whitening(n_components, noise=noise, method="zca").fit(X)
    k = pca.n_components_
    assert zca.n_components_ == 12
    assert zca.components_.shape == (k, 12)
    assert_allclose(zca.transform(X), pca.transform(X) @ pca.components_, atol=1e-9)
    back = zca.inverse_transform(zca.transform(X))
    assert_allclose(back, pca.inverse_transform(pca.transform(X)), rtol=1e-9)


@pytest.mark.parametrize("n_components", [3, None])
def test_a_rotation_keeps_inner_products(X, n_components):
    pca = Whitening(n_components, power=0.0).fit(X)
    rotated = Whitening(n_components, power=0.0, method="rotated").fit(X)
    Y, Z = pca.transform(X), rotated.transform(X)
    assert Y.shape == Z.shape
    assert_allclose(Z @ Z.T, Y @ Y.T, atol=1e-9 * np.abs(Y @ Y.T).max())
    assert_allclose(rotated.inverse_transform(Z), pca.inverse_transform(Y), rtol=1e-9)
    again = Whitening(n_components, power=0.0, method="rotated").fit_transform(X)
    assert_array_equal(again, Z)


@pytest.mark.parametrize("n", [500, 30])  # above and below the number of columns
def test_a_rotation_gives_every_column_its_share_of_the_variance(n):
    X = np.random.default_rng(0).normal(size=(n, 64)) * np.logspace(0, -3, 64)
    variance = Whitening(64, noise=0.02, method="rotated").fit_transform(X).var(axis=0)
    assert 0.2 < (variance / variance.mean()).min() < (variance / variance.mean()).max() < 4


def with_outliers(size, n=3000, d=200):
    """Rows whose mean has one coordinate that is larger by ``size``."""
    return np.random.default_rng(0).normal(size=(n, d)) + 0.5 + size * np.eye(d)[0]


@pytest.mark.parametrize(
    "given", [{}, {"noise": 0.02}, {"power": 0.5}, {"power": "auto", "noise": 0.1}]
)
def test_a_number_of_clusters_beside_figures_is_refused(X, given):
    whitening = Whitening(n_groups=4, **given)
    with pytest.raises(
        ValueError, match=r"n_groups=4 with power=.* and noise=.*Set power='auto'"
    ):
        whitening.fit(X)
    assert not hasattr(whitening, "mean_")


def strength_of(X):
    whitening = Whitening(power="auto").fit(X)
    return whitening.power_, whitening.level_ / X.var(axis=0).sum(), whitening.centering_


def centered_cosines(T, mean):
    T = T.astype(np.float64) - mean
    return cosines(T)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("n", [2, 5, 29, 600])
def test_power_0_is_the_mean_subtracted_however_few_the_samples(n, dtype):
    rng = np.random.default_rng(0)
    X = (rng.normal(size=(n, 30)) * np.geomspace(1, 0.01, 30) + 2).astype(dtype)
    T = (rng.normal(size=(40, 30)) * np.geomspace(1, 0.01, 30) + 2).astype(dtype)
    mean = X.mean(axis=0, dtype=np.float64)
    parts = np.array_split(X, min(n, 3))
    by_parts = Whitening(power=0)
    for part in parts:
        by_parts.partial_fit(part)
    merged = Whitening(power=0).partial_fit(parts[0])
    merged = merged.merge(*(Whitening(power=0).partial_fit(part) for part in parts[1:]))
    for method in ("pca", "zca", "rotated"):
        whole = Whitening(power=0, method=method).fit(X)
        for whitening in (whole, by_parts, merged):
            Z = whitening.transform(T)
            assert Z.shape == T.shape
            assert whitening.n_components_ == 30
            assert whitening.rank_ == min(n - 1, 30)
            assert_allclose(cosines(Z), centered_cosines(T, mean), atol=1e-6)
            assert_allclose(whitening.inverse_transform(Z), T, atol=1e-5)


@pytest.mark.parametrize("centering", [0.0, 0.3, 1.0])
def test_a_share_of_the_mean_is_subtracted(X, centering):
    whitening = Whitening(power=0, centering=centering).fit(X)
    Z = whitening.transform(X)
    assert_allclose(whitening.mean_, X.mean(axis=0))
    assert_allclose(cosines(Z), centered_cosines(X, centering * X.mean(axis=0)), atol=1e-12)
    assert_allclose(whitening.inverse_transform(Z), X)
    exact, part = (Whitening(centering=c).fit_transform(X) for c in (1.0, centering))
    assert_allclose(np.cov(part.T), np.eye(12), atol=1e-9)
    assert_allclose(part - part.mean(axis=0), exact, atol=1e-9)


@pytest.mark.parametrize("size", [0, 10, 20, 300])
def test_a_rotation_never_makes_it_stronger(size):
    X = with_outliers(size)
    for seed in range(5):
        rotation = np.linalg.qr(np.random.default_rng(seed).normal(size=(200, 200)))[0]
        assert strength_of(X @ rotation)[0] <= strength_of(X)[0]


def cosines(Z):
    Z = Z / np.linalg.norm(Z, axis=1, keepdims=True)
    return Z @ Z.T


@pytest.mark.parametrize(("width", "k"), [(60, None), (180, None), (60, 4)])
def test_cosines_after_automatic_noise_depend_on_neither_scale_nor_width(width, k):
    X = np.random.default_rng(0).normal(size=(9000, width)) * np.logspace(0, -1, width) + 0.3
    automatic = Whitening(power="auto", n_groups=k)
    expected = cosines(automatic.fit(X).transform(X[:300]))
    # The shrinkage is toward the identity, which gives zeros some variance.
    for Y, atol in (
        (1e-5 * X, 1e-9),
        (np.pad(X, ((0, 0), (0, width))), 0.01),
        (np.hstack([X, X]), 0.01),
    ):
        found = cosines(automatic.fit(Y).transform(Y[:300]))
        assert_allclose(found, expected, atol=atol)


def test_a_shrinkage_of_ones_own_is_the_least_that_automatic_noise_takes(X):
    assert Whitening(power="auto", shrinkage=0.9).fit(X).shrinkage_ == 0.9
    least = Whitening(shrinkage="auto").fit(X).shrinkage_
    assert Whitening(power="auto", shrinkage=least / 2).fit(X).shrinkage_ == least


@pytest.mark.parametrize(
    "params", [{}, {"method": "zca"}, {"power": 0.5}, {"shrinkage": 0.3}, {"noise": 2.0}]
)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_inverse_transform_inverts(X, params, dtype):
    X = X.astype(dtype)
    whitening = Whitening(**params).fit(X)
    back = whitening.inverse_transform(whitening.transform(X))
    assert back.dtype == dtype
    assert_allclose(back, X, rtol=1e-5 if dtype == np.float32 else 1e-10)


# Numerics --------------------------------------------------------------------------------


def test_signs_do_not_depend_on_the_order_of_samples(X):
    order = np.random.default_rng(3).permutation(len(X))
    assert_allclose(
        Whitening().fit(X).transform(X), Whitening().fit(X[order]).transform(X), atol=1e-9
    )


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize(
    ("mean", "decades"),
    [(0.0, 0), (0.3, 1), (3.0, 1), (0.0, 8), (1000.0, 0), (100.0, 8), (1000.0, 6)],
)
def test_float64_reference_is_reached_at_any_conditioning(mean, decades, dtype):
    rng = np.random.default_rng(0)
    rotation = np.linalg.qr(rng.normal(size=(32, 32)))[0] if decades != 1 else np.eye(32)
    spread = 10 ** np.linspace(0, -decades / 2, 32)  # eigenvalues over that many decades
    X = (rng.normal(size=(2000, 32)) * spread @ rotation + mean).astype(dtype)
    whitening, reference = Whitening().fit(X), float64_whitening(X)(X)
    accuracy = 1e-6 if decades <= 1 and mean < 10 else 1e-5
    atol = np.abs(reference).max() * (accuracy if dtype == np.float32 else 1e-7)
    assert_allclose(whitening.transform(X), reference, rtol=0, atol=atol)
    assert_allclose(whitening.transform(X[:1]), reference[:1], rtol=0, atol=atol)


# Rank ------------------------------------------------------------------------------------


def test_more_components_than_rank_are_zero_with_a_warning(few):
    with pytest.warns(UserWarning, match=r"lower rank than n_components: the surplus"):
        whitening = Whitening(20).fit(few)
    Z = whitening.transform(few)
    assert Z.shape == (10, 20)
    assert (whitening.rank_, whitening.n_components_) == (9, 20)
    assert_allclose(np.cov(Z[:, :9], rowvar=False), np.eye(9), atol=1e-10)
    assert not Z[:, 9:].any()
    assert not whitening.components_[9:].any()
    assert not whitening.explained_variance_[9:].any()


@pytest.mark.parametrize("n", [31, 149])
def test_fewer_than_five_samples_a_feature_warn(n):
    X = np.random.default_rng(0).normal(size=(n, 30))
    message = r"fewer than 5 samples for each of 30 features.*power='auto'.*150 samples"
    for params in ({}, {"n_components": 3}, {"method": "zca"}, {"power": 0.5}):
        with pytest.warns(UserWarning, match=message):
            Whitening(**params).fit(X)
    for regularised in ({"noise": 0.1}, {"shrinkage": 0.1}, {"power": 0}):
        Whitening(**regularised).fit(X[:10])  # in silence


@pytest.mark.parametrize("share", [0.5, 0.9, 0.999])
def test_share_of_variance_keeps_just_enough(X, share):
    whitening = Whitening(share).fit(X)
    explained = np.cumsum(Whitening().fit(X).explained_variance_ratio_)
    k = whitening.n_components_
    assert explained[k - 1] >= share
    assert k == 1 or explained[k - 2] < share


@pytest.mark.parametrize("params", [{"power": "auto"}, {"shrinkage": "auto"}])
def test_few_samples_of_an_isotropic_source_keep_every_direction(few, params):
    new = np.random.default_rng(2).normal(size=(500, 30)) + 3
    Z = Whitening(**params).fit(few).transform(new)
    spread = np.linalg.svd(Z - Z.mean(axis=0), compute_uv=False)
    assert spread[-1] > 0.4 * spread[0]
    assert np.abs(Z).max() < 10  # the covariance of the source is the identity


# Streaming and merging -------------------------------------------------------------------


@pytest.mark.parametrize("batches", [1, 2, 7, range(1, 60)], ids=["1", "2", "7", "of a row"])
@pytest.mark.parametrize(
    "params", [{}, {"shrinkage": "auto"}, {"power": "auto"}, {"power": "auto", "n_groups": 4}]
)
def test_partial_fit_equals_fit(X, batches, params):
    whole = Whitening(**params).fit(X)
    parts = Whitening(**params)
    for batch in np.array_split(X, batches):
        parts.partial_fit(batch)
    assert_allclose(parts.transform(X), whole.transform(X), rtol=1e-10, atol=1e-10)
    halves = (Whitening(**params).partial_fit(half) for half in np.array_split(X, 2))
    merged = next(halves).merge(next(halves))
    assert_allclose(merged.transform(X), whole.transform(X), rtol=1e-10, atol=1e-10)


def test_merge_refuses_what_it_cannot_add(X):
    whitening = Whitening().fit(X)
    with pytest.raises(NotFittedError):
        whitening.merge(Whitening())
    assert whitening.n_samples_seen_ == 600


# Bad input -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "outside", "ends"),
    [
        ("n_components", (0, 0.0, 1.0, 1.5, "all"), (1, 12, 1e-9, 1 - 1e-9)),
        ("power", (-0.01, 1.01), (0, 1)),
        ("shrinkage", (-0.01, 1.01, "lw"), (0, 1)),
        ("noise", (-1e-9, 1e308, np.nan, np.inf, "auto"), (0, 1e9)),
        ("method", ("svd",), ()),
    ],
)
@pytest.mark.parametrize("learn", [Whitening.fit, Whitening.partial_fit])
def test_parameters_are_held_to_their_range(X, name, outside, ends, learn):
    for value in outside:
        whitening = Whitening(**{name: value})
        with pytest.raises(ValueError, match=f"The '{name}' parameter of Whitening must be"):
            learn(whitening, X)
        assert not hasattr(whitening, "mean_")
    for value in ends:
        assert np.isfinite(learn(Whitening(**{name: value}), X).transform(X)).all()


@pytest.mark.parametrize("learn", [Whitening.fit, Whitening.partial_fit])
def test_more_components_than_features_are_refused(X, learn):
    with pytest.raises(ValueError, match=r"n_components=13 exceeds n_features=12.*up to 12"):
        learn(Whitening(13), X)


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (lambda X: X[:1], "n_samples=1; a covariance needs at least 2"),
        (lambda X: np.where(X == X[3, 3], np.nan, X), "contains NaN"),
        (lambda X: np.repeat(X[:1], 5, axis=0), "All 5 samples are equal"),
        (lambda X: X * 1e160, r"overflow float64: the largest magnitude in X is .*e\+16"),
    ],
)
def test_bad_input_leaves_the_estimator_unfitted(X, spoil, message):
    for params in ({}, {"power": "auto"}, {"power": "auto", "n_groups": 3}):
        whitening = Whitening(**params).fit(X)
        with pytest.raises(ValueError, match=message):
            whitening.fit(spoil(X))
        with pytest.raises(NotFittedError):
            whitening.transform(X)
        assert not any(hasattr(whitening, name) for name in ATTRIBUTES)


def test_bad_batch_leaves_what_was_seen(X):
    whitening = Whitening().partial_fit(X[:300])
    before = whitening.transform(X)
    for bad in (X[:, :5], X * np.nan, X[:0]):
        with pytest.raises(ValueError, match=r"features|NaN|0 sample"):
            whitening.partial_fit(bad)
    assert_array_equal(whitening.transform(X), before)
    assert whitening.n_samples_seen_ == 300


def test_one_sample_is_not_enough_to_transform(X):
    whitening = Whitening().partial_fit(X[:1])
    with pytest.raises(ValueError, match=r"n_samples=1; a covariance needs at least 2"):
        whitening.transform(X)
    assert whitening.partial_fit(X[1:]).transform(X).shape == X.shape


# State -----------------------------------------------------------------------------------


def test_refit_forgets_everything(X):
    whitening = Whitening(3).fit(X)
    whitening.set_params(n_components=5, shrinkage=0.2).fit(X[:, :8])
    fresh = Whitening(5, shrinkage=0.2).fit(X[:, :8])
    assert_array_equal(whitening.transform(X[:, :8]), fresh.transform(X[:, :8]))
    assert whitening.n_features_in_ == 8


@pytest.mark.parametrize("params", [{"power": "auto"}, {"n_components": 3, "method": "zca"}])
@pytest.mark.parametrize("name", ATTRIBUTES)
def test_attributes_in_parts_are_those_of_the_whole(X, params, name):
    parts = Whitening(**params).fit(3 * X[:100]).merge(Whitening(**params).fit(X[100:200]))
    getattr(parts, name)  # is of the past after
    parts.partial_fit(X[200:])
    whole = Whitening(**params).fit(np.vstack([3 * X[:100], X[100:]]))
    assert_allclose(getattr(parts, name), getattr(whole, name), rtol=1e-10, atol=1e-10)


def test_partial_fit_refuses_parameters_that_exclude_each_other(X):
    whitening = Whitening(n_groups=3, noise=0.1)
    with pytest.raises(ValueError, match=r"n_groups=3 with power=1\.0.*Set power='auto'"):
        whitening.partial_fit(X)
    assert not hasattr(whitening, "n_samples_seen_")
    expected = whitening.set_params(n_groups=None).partial_fit(X).transform(X)
    with pytest.raises(ValueError, match=r"n_groups=3 with power=1\.0.*Set power='auto'"):
        whitening.set_params(n_groups=3).partial_fit(2 * X)
    assert_array_equal(whitening.transform(X), expected)


def test_partial_fit_warns_of_few_samples_at_the_first_use(few):
    whitening = Whitening().partial_fit(few[:5]).partial_fit(few[5:])
    with pytest.warns(UserWarning, match="fewer than 5 samples for each"):
        assert whitening.rank_ == 9
    whitening.transform(few)  # in silence
    whitening = whitening.merge(Whitening().partial_fit(few))
    with pytest.warns(UserWarning, match="fewer than 5 samples for each"):
        expected = whitening.transform(few)
    assert_array_equal(whitening.transform(few), expected)  # in silence
    assert_allclose(whitening.inverse_transform(expected), few)


@pytest.mark.parametrize("looks", [False, True])
@pytest.mark.parametrize("learn", [Whitening.fit, Whitening.partial_fit])
def test_parameters_are_those_of_the_last_call_that_learned(X, learn, looks):
    whitening = learn(Whitening(3), X)
    expected = Whitening(3).fit_transform(X)
    if looks:
        assert whitening.n_components_ == 3
    whitening.set_params(n_components=2, power=9)
    assert_allclose(whitening.transform(X), expected, atol=1e-10)
    assert_allclose(whitening.merge().transform(X), expected, atol=1e-10)
    with pytest.raises(ValueError, match="'power' parameter"):
        whitening.partial_fit(X)
    assert_allclose(whitening.transform(X), expected, atol=1e-10)
    assert whitening.set_params(power=1.0).partial_fit(X).n_components_ == 2


def test_a_pickle_holds_the_covariance_and_its_axes_once():
    X = np.random.default_rng(0).normal(size=(500, 384)).astype(np.float32)
    whitening = Whitening(power="auto").fit(X)
    whitening.transform(X[:2])
    assert len(pickle.dumps(whitening)) < 2.5e6  # two matrices of 384 x 384 in float64


@pytest.mark.parametrize("learn", [Whitening.fit, Whitening.partial_fit])
@pytest.mark.parametrize("name", ["mean_", "components_", "explained_variance_"])
def test_writing_to_an_attribute_changes_no_map(X, learn, name):
    whitening, expected = learn(Whitening(), X), Whitening().fit_transform(X)
    getattr(whitening, name)[:] = 7
    assert_allclose(whitening.transform(X), expected, atol=1e-10)
    assert_array_equal(Whitening().fit_transform(X), expected)


@pytest.mark.parametrize("n", [30, 40_000], ids=["one thread", "threads"])
def test_what_is_not_finite_is_an_error_without_a_warning(n):
    X = np.random.default_rng(0).normal(size=(n, 4)).astype(np.float32)
    whitening = Whitening().fit(X)
    for value, message in [(np.inf, "contains infinity"), (np.nan, "contains NaN")]:
        bad = X.copy()
        bad[-1, 2] = value
        with pytest.raises(ValueError, match=message):
            whitening.transform(bad)
        with pytest.raises(ValueError, match=message):
            Whitening().fit(bad)
    huge = X.copy()
    huge[-1] = [3e38, -3e38, 3e38, -3e38]
    with pytest.raises(ValueError, match=r"overflow float32: the largest .* is 3e\+38"):
        Whitening().fit(X / 100).transform(huge)


@pytest.mark.parametrize(
    ("dtype", "remedy"), [("float64", r"Scale X down\.$"), ("float32", "float64")]
)
def test_overflow_names_a_remedy_that_is_left(dtype, remedy):
    whitening = Whitening().fit(1e-9 * np.random.default_rng(0).normal(size=(60, 4)))
    with pytest.raises(ValueError, match=rf"overflow {dtype}.*{remedy}"):
        whitening.transform(np.full((1, 4), np.finfo(dtype).max / 10, dtype))
