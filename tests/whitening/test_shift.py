"""Vectors unlike those of the fit: their distance, and a copy about their mean."""

import os

import numpy as np
import pytest
from sklearn.metrics import roc_auc_score
from sklearn.pipeline import make_pipeline

from skcalib import BertEncoder, Whitening
from skcalib.datasets import fetch_sts, minilm_path


@pytest.fixture
def X():
    rng = np.random.default_rng(0)
    return rng.normal(size=(4000, 12)) @ rng.normal(size=(12, 12)) + 7


@pytest.mark.parametrize("kept", [1, 5, 11])
def test_distance_counts_what_the_kept_axes_leave_out(X, kept):
    """Over the mean of the dropped eigenvalues, so that its mean over the fit is the rank."""
    whitening, whole = Whitening(kept).fit(X), Whitening().fit(X)
    Z = (X - whitening.mean_) @ whole.components_.T
    inner = (Z[:, :kept] ** 2 / whole.explained_variance_[:kept]).sum(axis=1)
    outer = (Z[:, kept:] ** 2).sum(axis=1) / whole.explained_variance_[kept:].mean()
    np.testing.assert_allclose(whitening.mahalanobis(X), inner + outer)
    assert whitening.mahalanobis(X).mean() == pytest.approx(12 * 3999 / 4000)


def test_distance_of_far_vectors_is_finite(X):
    X = X.astype(np.float32)
    far = Whitening().fit(X).mahalanobis(X[:1] * np.float32(1e22))
    assert far.dtype == np.float64
    assert np.isfinite(far).all()


def test_shift_is_that_of_means_and_distances(X):
    new = X[2000:] * 1.5 + 3
    whitening = Whitening(6, noise=1.0).fit(X[:2000])
    shift = whitening.shift(new)
    delta = new.mean(axis=0) - X[:2000].mean(axis=0)
    square = delta @ delta / np.trace(np.cov(X[:2000].T)) - 2 / 2000
    assert shift.mean_distance == pytest.approx(np.sqrt(square))
    ratio = whitening.mahalanobis(new).mean() / whitening.mahalanobis(X[:2000]).mean()
    assert shift.mahalanobis_ratio == pytest.approx(ratio)


@pytest.mark.parametrize("n", [30, 300, 2000])
def test_chance_is_no_shift(X, n):
    shift = Whitening(noise="auto").fit(X[:2000]).shift(X[2000 : 2000 + n])
    assert not shift.is_shifted
    assert shift.mean_distance < 0.12


def test_a_recentred_copy_has_the_new_mean_and_the_same_map(X):
    whitening = Whitening(5, noise="auto").fit(X)
    before, new = whitening.transform(X), X[:500] + np.arange(12)
    twin = whitening.recentered(new)
    np.testing.assert_allclose(twin.mean_, new.mean(axis=0))
    np.testing.assert_allclose(
        twin.transform(X + 1), whitening.transform(X + 1 - twin.mean_ + whitening.mean_)
    )
    assert twin.noise_ == whitening.noise_
    assert not twin.shift(new).is_shifted
    np.testing.assert_array_equal(whitening.transform(X), before)
    unit = make_pipeline(whitening)
    unit.steps[0] = ("whitening", twin)
    np.testing.assert_array_equal(unit.transform(X), twin.transform(X))


def test_one_vector_is_no_sample(X):
    with pytest.raises(ValueError, match="shift got n_samples=1; it takes two"):
        Whitening().fit(X).shift(X[:1])


@pytest.mark.skipif("SKCALIB_DATA" not in os.environ, reason="SKCALIB_DATA names no STS data")
def test_genres_are_told_apart_on_real_vectors():
    """STS-B is sorted by genre: captions first, then forums and news."""
    pairs = fetch_sts("stsb", "dev").data
    captions, news = pairs[:150].ravel(), pairs[-150:].ravel()
    X, Y = (BertEncoder(minilm_path()).fit_transform(texts) for texts in (captions, news))
    mixed = np.random.default_rng(0).permutation(np.vstack([X, Y]))
    assert not Whitening(noise="auto").fit(mixed[:300]).shift(mixed[300:]).is_shifted
    for kept in (None, 32):
        whitening = Whitening(kept, noise="auto", shrinkage="auto").fit(X[:200])
        assert whitening.shift(Y).is_shifted
        distance = whitening.mahalanobis(np.vstack([X[200:], Y]))
        assert roc_auc_score([0] * 100 + [1] * 300, distance) > 0.95
