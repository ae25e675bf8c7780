"""NeighborSmoothing: the formula, who counts as a neighbour, and scikit-learn's contract."""

import numpy as np
import pytest
import torch
from numpy.testing import assert_allclose, assert_array_equal
from scipy.sparse import csr_array
from sklearn.base import BaseEstimator
from sklearn.exceptions import NotFittedError
from sklearn.neighbors import KNeighborsTransformer, NearestNeighbors
from sklearn.preprocessing import normalize

from skcalib import NeighborSmoothing
from skcalib.export import to_torch

pytestmark = pytest.mark.filterwarnings(
    "ignore:.* vectors are zero", "ignore:.* but each text has"
)


@pytest.fixture
def X():
    """Thirty topics of twenty vectors each."""
    rng = np.random.default_rng(0)
    return np.repeat(rng.normal(size=(30, 12)), 20, axis=0) + rng.normal(size=(600, 12)) / 2


@pytest.fixture
def new():
    return np.random.default_rng(1).normal(size=(50, 12))


def formula(X, fitted, own, n_neighbors=10, weight=1.0):
    """Smooth by the formula on paper, text by text; ``own`` tells the row to leave out."""
    X, fitted, out = normalize(X), normalize(fitted), []
    for i, x in enumerate(X):
        others = np.delete(fitted, i, axis=0) if own else fitted
        cosine = others @ x
        near = np.argsort(-cosine)[:n_neighbors]
        near = near[cosine[near] > 0]
        w = cosine[near] ** 3
        moved = x + (weight * (w @ others[near]) / w.sum() if len(near) else 0)
        out.append(moved / np.linalg.norm(moved))
    return np.array(out)


@pytest.mark.parametrize(
    "params", [{}, {"n_neighbors": 3}, {"weight": 0.5}, {"n_neighbors": 700}]
)
def test_vectors_are_those_of_the_formula(X, new, params):
    smoothing = NeighborSmoothing(**params)
    assert_allclose(smoothing.fit_transform(X), formula(X, X, True, **params), atol=1e-6)
    assert_allclose(smoothing.transform(new), formula(new, X, False, **params), atol=1e-6)


def test_smoothing_text_is_no_neighbor_of_itself_but_an_equal_one_is(X):
    smoothing = NeighborSmoothing(1)
    once = smoothing.fit_transform(X)
    assert_array_equal(once, smoothing.transform(X))  # so a query finds its own text
    twice = smoothing.fit_transform(np.vstack([X, X]))
    assert_allclose(twice[:600], normalize(X), atol=1e-6)  # its neighbour is its copy
    assert np.abs(once - twice[:600]).max() > 0.1


@pytest.mark.parametrize(
    "search",
    [
        KNeighborsTransformer(metric="cosine"),
        KNeighborsTransformer(metric="euclidean"),
        KNeighborsTransformer(mode="connectivity", algorithm="kd_tree"),
    ],
)
def test_any_search_for_neighbours_gives_the_vectors_of_the_exact_one(X, new, search):
    exact = NeighborSmoothing().fit(X)
    smoothing = NeighborSmoothing(neighbors=search).fit(X)
    assert_allclose(smoothing.transform(new), exact.transform(new), atol=1e-6)
    assert_allclose(smoothing.fit_transform(X), exact.transform(X), atol=1e-6)
    assert not hasattr(search, "n_samples_fit_")  # cloned
    assert smoothing.neighbors_.n_samples_fit_ == 600


class Forgetful(BaseEstimator):
    """A search of approximate neighbours, which misses the nearest two of every other text."""

    def __init__(self, n_neighbors=5):
        self.n_neighbors = n_neighbors

    def fit(self, X, y=None):
        self.search_ = NearestNeighbors(n_neighbors=self.n_neighbors).fit(X)
        return self

    def transform(self, X):
        rows = self.search_.kneighbors(X, return_distance=False)
        kept = [row[2 * (1 - i % 2) :] for i, row in enumerate(rows)]
        ends = np.cumsum([0, *map(len, kept)])
        shape = len(X), self.search_.n_samples_fit_
        return csr_array((np.ones(ends[-1]), np.concatenate(kept), ends), shape=shape)


@pytest.mark.parametrize("n_fitted", [0, 1, 11, 600])
@pytest.mark.parametrize("params", [{}, {"weight": 0.5, "n_neighbors": 12}])
def test_torch_module_equals_transform(X, new, params, n_fitted):
    torch = pytest.importorskip("torch")
    X[3], X[5], X[6], X[7] = 0, 7 * X[4], -X[4], X[4]
    smoothing = NeighborSmoothing(**params).fit(X[:n_fitted] if n_fitted else X[3:4])
    module = to_torch(smoothing)
    assert not list(module.parameters())
    queries = np.vstack([X, new]).astype(np.float32)
    for given in (queries, np.vstack([queries, 1e-200 * X, 1e200 * X])):
        found = module(torch.from_numpy(given.reshape(-1, 10, 12))).numpy()
        assert found.dtype == given.dtype
        assert_allclose(found.reshape(given.shape), smoothing.transform(given), atol=1e-6)
    module.half()  # in which `vectors_` are not of unit length
    assert_allclose(module(torch.from_numpy(X)).norm(dim=1)[4], 1)
    assert_allclose(module(torch.from_numpy(X[4:5])), smoothing.transform(X[4:5]), atol=2e-3)


def test_neighbours_that_a_search_misses_are_missing(X):
    Z = NeighborSmoothing(neighbors=Forgetful()).fit_transform(X)
    assert_allclose(Z[1::2], formula(X, X, True)[1::2], atol=1e-6)
    assert 1e-3 < np.abs(Z - formula(X, X, True)).max() < 0.3
    one = NeighborSmoothing(1, neighbors=Forgetful()).fit(X).transform(X[:1])  # finds none
    assert_allclose(one, normalize(X[:1]))


@pytest.mark.parametrize("mode", ["connectivity", "distance"])
@pytest.mark.parametrize("n_fitted", [1, 2, 6, 10, 11, 12, 13])
def test_a_search_among_few_texts_finds_all(X, new, mode, n_fitted):
    few = X[::20][:n_fitted]
    smoothing = NeighborSmoothing(neighbors=KNeighborsTransformer(mode=mode)).fit(few)
    assert_allclose(smoothing.transform(few), formula(few, few, True), atol=1e-6)
    assert_allclose(smoothing.transform(new), formula(new, few, False), atol=1e-6)


@pytest.mark.parametrize("d", [384, 12_000])
def test_rounding_does_not_make_a_text_its_own_neighbour(d):
    """In float32 the squares of equal entries, as of words that occur, all round alike."""
    X = (np.random.default_rng(0).random((60, d)) < 0.3).astype(np.float32)
    Z = NeighborSmoothing(60).fit_transform(X)
    assert_allclose(Z, formula(X, X, True, 60), atol=1e-6)


@pytest.mark.parametrize("k", [1, 7, 40, 600])
def test_exact_search_among_many_texts(k):
    rng = np.random.default_rng(0)
    fitted, new = rng.normal(size=(6001, 8)), rng.normal(size=(300, 8))
    Z = NeighborSmoothing(k).fit(fitted).transform(new)
    assert_allclose(Z, formula(new, fitted, False, k), atol=1e-6)


def test_vectors_of_zeros_stay_and_are_nobodys_neighbours(X):
    zeros = np.zeros((30, 12))
    Z = NeighborSmoothing().fit_transform(np.vstack([X, zeros]))
    assert_allclose(Z[:600], NeighborSmoothing().fit_transform(X), atol=1e-6)
    assert_array_equal(Z[600:], zeros)
    assert_array_equal(NeighborSmoothing().fit_transform(zeros), zeros)
    assert_allclose(NeighborSmoothing().fit(zeros).transform(X), normalize(X))


def test_zeros_take_no_places_in_a_search_by_distance():
    rng = np.random.default_rng(0)
    new, fitted = rng.normal(size=(50, 100)), rng.normal(size=(200, 100))  # far from each other
    smoothing = NeighborSmoothing(neighbors=KNeighborsTransformer())
    smoothing.fit(np.vstack([np.zeros((30, 100)), fitted]))
    assert_allclose(smoothing.transform(new), formula(new, fitted, False), atol=1e-6)


def test_precision_and_errors(X):
    smoothing = NeighborSmoothing().fit(X.astype(np.float32))
    Z = smoothing.transform(X)
    assert smoothing.transform(X.astype(np.float32)).dtype == np.float32
    assert Z.dtype == np.float64
    assert_allclose(np.linalg.norm(Z, axis=1), 1, atol=1e-14)
    with pytest.raises(ValueError, match="X contains NaN"):
        smoothing.fit([[np.nan, 1.0]])
    with pytest.raises(NotFittedError):  # nothing half-fitted
        smoothing.transform(X)


def test_a_cosine_of_0_is_no_neighbor():
    """Whatever its rounding error."""
    rng = np.random.default_rng(0)
    for dtype in (np.float64, np.float32):
        n_alone = 0
        for _ in range(300):
            X = rng.integers(-1, 2, size=(6, 8)).astype(dtype)
            X = X[X.any(axis=1)]
            products = X @ X.T  # exact integers
            np.fill_diagonal(products, -1)
            alone = (products.max(axis=1) == 0) & (len(X) > 2)
            smoothing = NeighborSmoothing(3).fit(X)
            found = smoothing.transform(X), to_torch(smoothing)(torch.from_numpy(X)).numpy()
            for Z in found:
                assert_allclose(Z[alone], normalize(X)[alone], atol=1e-6)
            n_alone += alone.sum()
        assert n_alone > 30


@pytest.mark.filterwarnings("error")
def test_more_neighbors_than_texts_warn(X):
    with pytest.warns(UserWarning, match=r"n_neighbors=600, but each text has 599 others"):
        NeighborSmoothing(600).fit(X)
    NeighborSmoothing(599).fit(X)
