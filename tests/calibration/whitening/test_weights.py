"""Sample weights: repetitions, in one call and in parts."""

import numpy as np
import pytest
from numpy.testing import assert_allclose

from skcalib import Whitening


@pytest.fixture
def X():
    rng = np.random.default_rng(0)
    return rng.normal(size=(60, 5)) @ rng.normal(size=(5, 5)) + 20


@pytest.fixture
def weight():
    return np.random.default_rng(1).integers(0, 4, size=60)


@pytest.mark.parametrize("shrinkage", [0.0, "auto"])
def test_integer_weights_equal_repetition(X, weight, shrinkage):
    weighted = Whitening(shrinkage=shrinkage).fit(X, sample_weight=weight)
    repeated = Whitening(shrinkage=shrinkage).fit(np.repeat(X, weight, axis=0))
    assert weighted.n_samples_seen_ == repeated.n_samples_seen_
    assert_allclose(weighted.mean_, repeated.mean_, rtol=1e-13)
    assert_allclose(weighted.get_covariance(), repeated.get_covariance(), rtol=1e-11)
    assert_allclose(weighted.shrinkage_, repeated.shrinkage_, rtol=1e-10)
    assert_allclose(weighted.transform(X), repeated.transform(X), rtol=1e-9, atol=1e-10)


def test_partial_fit_and_merge_take_weights(X, weight):
    whole = Whitening().fit(X, sample_weight=weight)
    parts = Whitening().partial_fit(X[:10], sample_weight=weight[:10])
    parts.partial_fit(X[10:30], sample_weight=weight[10:30])
    parts = parts.merge(Whitening().partial_fit(X[30:], sample_weight=weight[30:]))
    assert_allclose(parts.transform(X), whole.transform(X), atol=1e-10)


@pytest.mark.parametrize(
    ("weight", "message"),
    [
        (np.full(60, 1 / 60), r"n_samples=1; .*sample_weight counts repetitions.*multiply"),
        (np.zeros(60), "n_samples=0; a covariance"),
        (np.full(60, -1.0), "Negative values"),
        (np.ones(59), r"sample_weight.shape == \(59,\), expected \(60,\)"),
        (np.full(60, np.nan), "NaN"),
    ],
)
def test_bad_weights_are_named(X, weight, message):
    with pytest.raises(ValueError, match=message):
        Whitening().fit(X, sample_weight=weight)


def test_a_batch_of_no_weight_changes_nothing(X, weight):
    expected = Whitening().fit(X, sample_weight=weight)
    parts = Whitening().partial_fit(X[:9] + 50, sample_weight=np.zeros(9))
    parts.partial_fit(X, sample_weight=weight)
    parts.partial_fit(X[:9] - 50, sample_weight=np.zeros(9))
    assert_allclose(parts.transform(X), expected.transform(X), rtol=1e-9, atol=1e-10)
