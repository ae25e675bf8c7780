"""Eigendecomposition of graded and singular covariances, and the rule for float32."""

import mpmath
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal

from skcalib import Whitening
from skcalib.calibration.moments import Moments, decompose

seeds = st.integers(0, 2**32 - 1)
quick = settings(max_examples=25)


def exact_eigenvalues(X):
    """Eigenvalues of the covariance of the numbers in ``X``, in 60 digits."""
    with mpmath.workdps(60):
        X = np.vectorize(mpmath.mpf, otypes=[object])(X)
        centred = X - X.mean(axis=0)
        covariance = mpmath.matrix((centred.T @ centred / (len(X) - 1)).tolist())
        values = mpmath.eigsy(covariance, eigvals_only=True)
        return np.sort([float(v) for v in values])[::-1]


def mixed(rng, n, d, scales):
    """Correlated columns of given scales; the correlations are well conditioned."""
    return rng.normal(size=(n, d)) @ (np.eye(d) + 0.5 * rng.normal(size=(d, d)) / d) * scales


@quick
@given(seeds, st.integers(2, 6), st.floats(0, 5), st.floats(0, 1e3))
def test_graded_eigenvalues_have_relative_accuracy(seed, d, decades, mean):
    rng = np.random.default_rng(seed)
    scales = rng.permutation(10.0 ** np.linspace(0, -decades, d))
    X = mixed(rng, 40, d, scales) + mean * scales
    variance, _ = decompose(Moments.of(X).covariance())
    assert_allclose(variance, exact_eigenvalues(X), rtol=1e-10)


@pytest.mark.parametrize("order", [range(64), range(63, -1, -1), np.arange(64) * 27 % 64])
def test_graded_covariance_is_whitened_in_any_order(order):
    scales = (10.0 ** np.linspace(0, -6, 64))[[*order]]
    Z = Whitening().fit_transform(mixed(np.random.default_rng(0), 500, 64, scales))
    assert Z.shape[1] == 64
    assert_allclose(np.cov(Z, rowvar=False), np.eye(64), atol=1e-8)


@quick
@given(seeds, st.integers(1, 12), st.floats(0, 12), st.booleans())
def test_decomposition_is_orthonormal_and_reconstructs(seed, d, decades, rotated):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(rng.integers(2, 30), d)) * 10.0 ** (-decades / 2 * rng.random(d))
    if rotated:
        X = X @ np.linalg.qr(rng.normal(size=(d, d)))[0]
    covariance = np.cov(X, rowvar=False).reshape(d, d)
    variance, basis = decompose(covariance.copy())
    assert (variance >= 0).all()
    assert (np.diff(variance) <= 0).all()
    assert_allclose(basis.T @ basis, np.eye(d), atol=1e-13)
    assert_allclose(basis * variance @ basis.T, covariance, atol=1e-13 * variance[0])
    assert (basis[np.abs(basis).argmax(axis=0), np.arange(d)] > 0).all()


@pytest.mark.parametrize("scales", [np.ones(20), 10.0 ** -np.arange(20) * 1e5])
def test_zero_covariance_and_constant_columns(scales):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(100, 20)) * scales
    X[:, [3, 7]] = 0.1
    variance, basis = decompose(Moments.of(X).covariance())
    assert_allclose(variance[-2:], 0, atol=1e-300)
    assert_allclose(basis.T @ basis, np.eye(20), atol=1e-13)
    variance, _ = decompose(np.zeros((4, 4)))
    assert_array_equal(variance, 0)


def test_null_space_depends_on_the_sample_alone():
    X = np.random.default_rng(0).normal(size=(9, 30))
    whole = Whitening(shrinkage=0.3).fit(X)
    other = Whitening(shrinkage=0.3).partial_fit(X[5:]).partial_fit(X[:5])
    assert_allclose(whole.components_, other.components_, atol=1e-12)


@st.composite
def float32_samples(draw):
    """Samples of any conditioning, with what real vectors have at their worst."""
    rng = np.random.default_rng(draw(seeds))
    d = draw(st.integers(2, 24))
    n = draw(st.integers(3, 200))
    decades = draw(st.floats(0, 8))
    spread = 10.0 ** np.linspace(0, -decades / 2, d)  # of eigenvalues
    X = rng.normal(size=(n, d)) * spread
    if draw(st.booleans()):
        X = X @ np.linalg.qr(rng.normal(size=(d, d)))[0]
    X = X + draw(st.sampled_from([0.0, 1.0, 1e3]))
    if draw(st.booleans()):
        X[:, rng.integers(d)] = X[:, 0]
    if draw(st.booleans()):
        X[:, -1] = 0.1
    return X.astype(draw(st.sampled_from([np.float32, np.float64])))


@settings(max_examples=60)
@given(float32_samples())
@pytest.mark.filterwarnings("ignore:There are fewer than 5 samples:UserWarning")
def test_whitened_inner_products_equal_those_of_a_float64_svd(X):
    # Inner products: axes of equal variance may turn among themselves.
    whitening = Whitening().fit(X)
    Z = whitening.transform(X).astype(np.float64)
    centred = X.astype(np.longdouble)
    centred = (centred - centred.mean(axis=0)).astype(np.float64)
    u, s, _ = np.linalg.svd(centred, full_matrices=False)
    # Of the rank the SVD decides, except where an eigenvalue lies at the threshold itself.
    share = (s / s[0]) ** 2 / (X.shape[1] * np.finfo(np.float64).eps)
    if ((share > 0.01) & (share < 100)).any():
        return
    u = u[:, share > 1] * np.sqrt(len(X) - 1)
    assert Z.shape[1] == u.shape[1]
    scale = np.abs(u @ u.T).max()
    # Beside its own 1e-5, the covariance of the worst sample has lost s_0²/s_r² eps.
    lost = 20 * np.finfo(np.float64).eps * (s[0] / s[share > 1].min()) ** 2
    rounding = 1e-5 if X.dtype == np.float32 else 1e-9
    assert np.abs(Z @ Z.T - u @ u.T).max() <= (rounding + lost) * scale
