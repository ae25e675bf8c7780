"""NeighborSmoothing: the formula, who counts as a neighbour, and scikit-learn's contract."""

import csv
import pickle
import warnings
from pathlib import Path

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy.sparse import csr_array
from sklearn.base import BaseEstimator
from sklearn.exceptions import NotFittedError
from sklearn.neighbors import KNeighborsTransformer, NearestNeighbors
from sklearn.utils.estimator_checks import parametrize_with_checks

from skcalib import NeighborSmoothing, Whitening
from skcalib._neighbors.smoothing import siblings
from skcalib._vectors import unit_rows

few_siblings = pytest.mark.filterwarnings("ignore:.*few siblings:UserWarning")


@pytest.fixture
def X():
    """Thirty topics of twenty vectors each."""
    rng = np.random.default_rng(0)
    return np.repeat(rng.normal(size=(30, 12)), 20, axis=0) + rng.normal(size=(600, 12)) / 2


@pytest.fixture
def new():
    return np.random.default_rng(1).normal(size=(50, 12))


def formula(X, fitted, own, k=10, weight=1.0, power=3):
    """Smooth by the formula on paper, text by text; ``own`` tells the row to leave out."""
    X, fitted, out = unit_rows(X)[0], unit_rows(fitted)[0], []
    for i, x in enumerate(X):
        others = np.delete(fitted, i, axis=0) if own else fitted
        cosine = others @ x
        near = np.argsort(-cosine)[:k]
        near = near[cosine[near] > 0]
        w = cosine[near] ** power
        moved = x + (weight * (w @ others[near]) / w.sum() if len(near) else 0)
        out.append(moved / np.linalg.norm(moved))
    return np.array(out)


@few_siblings
@parametrize_with_checks(
    [
        NeighborSmoothing(),
        NeighborSmoothing(2, weight=0.5, power=0),
        NeighborSmoothing(3, neighbors=KNeighborsTransformer()),
    ]
)
def test_scikit_learn_contract(estimator, check):
    check(estimator)


@few_siblings
@pytest.mark.parametrize("params", [{}, {"k": 3}, {"weight": 0.5}, {"power": 0}, {"k": 700}])
def test_vectors_are_those_of_the_formula(X, new, params):
    k, others = params.get("k", 10), {n: v for n, v in params.items() if n != "k"}
    smoothing = NeighborSmoothing(k, **others)
    assert_allclose(smoothing.fit_transform(X), formula(X, X, True, **params), atol=1e-6)
    assert_allclose(smoothing.transform(new), formula(new, X, False, **params), atol=1e-6)


def test_a_text_is_no_neighbour_of_itself_but_another_that_says_the_same_is(X):
    smoothing = NeighborSmoothing(1)
    once = smoothing.fit_transform(X)
    assert_array_equal(once, smoothing.transform(X))  # so a query finds its own text
    twice = smoothing.fit_transform(np.vstack([X, X]))
    assert_allclose(twice[:600], unit_rows(X)[0], atol=1e-6)  # its neighbour is its copy
    assert np.abs(once - twice[:600]).max() > 0.1


def test_partial_fit_adds_texts(X, new):
    whole = NeighborSmoothing().fit(X)
    parts = NeighborSmoothing()
    for part in np.split(X, [1, 200]):
        parts.partial_fit(part)
    assert_array_equal(parts.transform(new), whole.transform(new))
    assert len(parts.fit(X[:300]).vectors_) == 300  # begins anew


@pytest.mark.parametrize(
    "search",
    [
        KNeighborsTransformer(metric="cosine"),
        KNeighborsTransformer(metric="euclidean"),
        KNeighborsTransformer(mode="connectivity", algorithm="kd_tree"),
    ],
    ids=["cosine", "euclidean", "connectivity"],
)
def test_any_search_for_neighbours_gives_the_vectors_of_the_exact_one(X, new, search):
    exact = NeighborSmoothing().fit(X[:300]).partial_fit(X[300:])
    smoothing = NeighborSmoothing(neighbors=search).fit(X[:300]).partial_fit(X[300:])
    assert_allclose(smoothing.transform(new), exact.transform(new), atol=1e-6)
    assert_allclose(smoothing.fit_transform(X), exact.transform(X), atol=1e-6)
    assert not hasattr(search, "n_samples_fit_")  # cloned
    assert smoothing.neighbors_.n_samples_fit_ == 600


class Forgetful(BaseEstimator):
    """A search of approximate neighbours, which misses every second text's nearest two."""

    def __init__(self, n_neighbors=5):
        self.n_neighbors = n_neighbors

    def fit(self, X, y=None):
        self.search_ = NearestNeighbors(n_neighbors=self.n_neighbors).fit(X)
        return self

    def transform(self, X):
        rows = self.search_.kneighbors(X, return_distance=False)
        kept = [row[2 * (i % 2) :] for i, row in enumerate(rows)]
        ends = np.cumsum([0, *map(len, kept)])
        shape = len(X), self.search_.n_samples_fit_
        return csr_array((np.ones(ends[-1]), np.concatenate(kept), ends), shape=shape)


def test_neighbours_that_a_search_misses_are_missing(X):
    Z = NeighborSmoothing(neighbors=Forgetful()).fit_transform(X)
    assert_allclose(Z[::2], formula(X, X, True)[::2], atol=1e-6)
    assert 1e-3 < np.abs(Z - formula(X, X, True)).max() < 0.3


@few_siblings
def test_vectors_of_zeros_stay_and_are_nobodys_neighbours(X):
    zeros = np.zeros((3, 12))
    Z = NeighborSmoothing().fit_transform(np.vstack([X, zeros]))
    assert_allclose(Z[:-3], NeighborSmoothing().fit_transform(X), atol=1e-6)
    assert_array_equal(Z[-3:], zeros)


@few_siblings
def test_one_fitted_text_has_no_neighbour(X):
    assert_allclose(NeighborSmoothing().fit_transform(X[:1]), unit_rows(X[:1])[0])


def test_precision_pickles_frames_and_errors(X):
    smoothing = NeighborSmoothing().fit(X.astype(np.float32))
    Z = smoothing.transform(X)
    assert smoothing.transform(X.astype(np.float32)).dtype == np.float32
    assert Z.dtype == np.float64
    assert_allclose(np.linalg.norm(Z, axis=1), 1, atol=1e-14)
    assert_array_equal(pickle.loads(pickle.dumps(smoothing)).transform(X), Z)
    for library in ("pandas", "polars"):
        pytest.importorskip(library)
        frame = NeighborSmoothing().set_output(transform=library).fit_transform(X)
        assert type(frame).__module__.startswith(library)
    with pytest.raises(ValueError, match="X contains NaN"):
        smoothing.fit([[np.nan, 1.0]])
    with pytest.raises(NotFittedError):  # nothing half-fitted
        smoothing.transform(X)


def test_signs_of_siblings_are_those_of_a_sort(X):
    unit = unit_rows(X)[0].astype(np.float32)
    cosines = unit.astype(np.float64) @ unit.T
    np.fill_diagonal(cosines, -1)
    first, second, third, *_, tenth = -np.sort(-cosines, axis=1)[:, :10].mean(axis=0)
    expected = (first + second + third) / 3, (first - second) / (second - tenth)
    assert_allclose(siblings(unit), expected, rtol=1e-4)


def test_fit_warns_of_texts_with_few_siblings(X):
    NeighborSmoothing().fit(X)
    rng = np.random.default_rng(0)
    apart, pairs = rng.normal(size=(600, 100)), rng.normal(size=(300, 8)).repeat(2, axis=0)
    pairs += rng.normal(size=pairs.shape) / 8  # level 0.9, but each text has one partner
    alike = np.repeat(apart[:30], 20, axis=0)  # copies are no siblings
    for given in (apart, pairs, alike, X[:10]):
        match = rf"{len(given)} texts have few siblings: .* cosine of \d.\d\d, .* 0.46 or more"
        with pytest.warns(UserWarning, match=match):
            NeighborSmoothing().fit(given)
    assert siblings(unit_rows(pairs)[0].astype(np.float32)).level > 0.8
    assert siblings(unit_rows(apart)[0].astype(np.float32)).isolation < 0.51


@pytest.mark.parametrize("texts", ["../tasks/banking77-train.csv", "stsb-dev.csv"])
def test_the_warning_is_right_about_real_texts(texts, sts_home, minilm):
    from skcalib import BertEncoder

    path = Path(sts_home) / texts
    if not path.exists():
        pytest.skip(f"there is no {path}")
    with path.open(encoding="utf-8", newline="") as file:
        sample = [row[0] for row in csv.reader(file)][1::3][:500]
    X = Whitening(noise="auto").fit_transform(BertEncoder(minilm).fit_transform(sample))
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        NeighborSmoothing().fit(X)
    assert ["few siblings" in str(w.message) for w in caught] == [True] * ("sts" in texts)
