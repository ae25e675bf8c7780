"""SearchEncoder: the score and its gain, few queries, wrong banks, bad input."""

import pickle

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.base import clone
from sklearn.covariance import ledoit_wolf
from sklearn.neighbors import KNeighborsTransformer, NearestNeighbors
from sklearn.utils.estimator_checks import parametrize_with_checks

from skcalib import BertEncoder, SearchEncoder, SimilarityScale
from skcalib.datasets import load_docstrings
from skcalib.similarity.search.sides import unanswered_share

UNCORRECTED = "ignore:Vectors of documents alone show neither"


@pytest.mark.filterwarnings(UNCORRECTED)
@parametrize_with_checks([SearchEncoder()])
def test_it_is_an_estimator_of_scikit_learn(estimator, check):
    check(estimator)


def two_kinds(n=400, d=16, seed=0):
    """Documents and the query of each, of different means.

    A document with little in the last columns, where queries have nothing, is a hub.
    """
    rng = np.random.default_rng(seed)
    topics, mean = rng.normal(size=(n, d)), 0.8 * rng.normal(size=(2, 2 * d))
    documents = np.hstack([topics, rng.uniform(0.8, 1.6, (n, 1)) * rng.normal(size=(n, d))])
    queries = np.hstack([topics + 0.6 * rng.normal(size=(n, d)), np.zeros((n, d))])
    return documents + mean[0], queries + mean[1]


def unit(X):
    return X / np.linalg.norm(X, axis=1, keepdims=True)


def found(scores):
    """Share of the queries whose first document is their own."""
    return np.mean(scores.argmax(axis=1) == np.arange(len(scores)))


DOCUMENTS, QUERIES = two_kinds()
BANK, NEW = QUERIES[:200], QUERIES[200:]
SEARCH = SearchEncoder().fit(DOCUMENTS, queries=BANK)


def reference(search, documents, bank, queries):
    """The formula of the docstring, in float64."""
    m, mu = unit(documents).mean(axis=0), unit(bank).mean(axis=0)
    gap = np.sum((m - mu) ** 2)
    chance = np.var(unit(bank), axis=0, ddof=1).sum() / len(bank)
    Z = max(0, 1 - chance / gap)
    centered = np.vstack([unit(documents) - m, unit(bank) - mu])
    values, axes = np.linalg.eigh(ledoit_wolf(centered, assume_centered=True)[0])
    k = round(0.1 * len(bank))
    share = 1 - len(bank) / (len(documents) * k)
    W = axes * values ** (-search.power * share / 2)
    mu = m + Z * (mu - m)
    d, q, b = (
        unit((unit(documents) - 0.8 * m) @ W),
        unit((unit(queries) - 0.8 * mu) @ W),
        unit((unit(bank) - 0.8 * mu) @ W),
    )
    r = np.sort(b @ d.T, axis=0)[-k:].mean(axis=0)
    return (q @ d.T - search.hub_weight_ * r) / 2


def test_the_score_is_the_formula_a_cosine_and_an_inner_product():
    d, q = SEARCH.encode_document(DOCUMENTS), SEARCH.encode_query(NEW)
    assert d.dtype == q.dtype == np.float32
    assert d.shape == (400, 34)
    assert_allclose(q @ d.T, reference(SEARCH, DOCUMENTS, BANK, NEW), atol=1e-6)
    assert_allclose(np.linalg.norm(d, axis=1), 1, rtol=1e-6)
    assert_allclose(np.linalg.norm(q, axis=1), 1, rtol=1e-6)
    assert_array_equal(SEARCH.vectors_, d)
    assert_array_equal(SEARCH.fit_transform(DOCUMENTS, queries=BANK), d)
    assert_array_equal(SEARCH.transform(DOCUMENTS), d)


def test_it_finds_more_than_cosines_and_than_two_means():
    raw = found(unit(NEW) @ unit(DOCUMENTS).T[:, np.r_[200:400, :200]])
    means = SearchEncoder(hub_weight=0, power=0).fit(DOCUMENTS, queries=BANK)
    order = np.r_[200:400, :200]
    by_means = found((means.encode_query(NEW) @ means.vectors_.T)[:, order])
    by_hubs = found((SEARCH.encode_query(NEW) @ SEARCH.vectors_.T)[:, order])
    assert by_means > raw + 0.02
    assert by_hubs > by_means + 0.05


def test_neighbors_are_the_largest_products_by_rows_and_by_any_index():
    products = SEARCH.encode_query(NEW).astype(float) @ SEARCH.vectors_.T
    scores, rows = SEARCH.kneighbors(NEW, 7)
    assert_array_equal(rows, np.argsort(-products, axis=1, kind="stable")[:, :7])
    assert_allclose(scores, -np.sort(-products, axis=1)[:, :7], atol=1e-6)
    for metric in ("cosine", "euclidean"):
        index = KNeighborsTransformer(metric=metric)
        by_index = clone(SEARCH).set_params(neighbors=index).fit(DOCUMENTS, queries=BANK)
        assert_array_equal(by_index.kneighbors(NEW, 7)[1], rows)
        assert by_index.kneighbors(NEW, 200)[1].shape == (200, 200)
    nearest = NearestNeighbors(n_neighbors=7, metric="cosine").fit(SEARCH.vectors_)
    assert_array_equal(nearest.kneighbors(SEARCH.encode_query(NEW))[1], rows)


def test_later_documents_need_no_new_fit():
    search = SearchEncoder().fit(DOCUMENTS[:300], queries=BANK)
    assert_allclose(search.encode_document(DOCUMENTS[:300]), search.vectors_, atol=1e-7)
    later = search.encode_document(DOCUMENTS[300:])
    own = np.einsum("ij,ij->i", search.encode_query(QUERIES[300:]), later)
    assert (
        np.mean(own > (search.encode_query(QUERIES[300:]) @ search.vectors_.T).max(axis=1))
        > 0.5
    )


def test_few_queries_change_little():
    weights, shares = [], []
    for n in (5, 20, 200):
        search = SearchEncoder().fit(DOCUMENTS, queries=QUERIES[:n])
        weights.append(search.hub_weight_)
        shares.append(np.linalg.norm(search.query_shift_ - search.document_shift_))
        assert_allclose(search.document_shift_, 0.8 * unit(DOCUMENTS).mean(axis=0), atol=1e-6)
    assert weights[0] < weights[1] < weights[2] <= 0.75
    gaps = [
        0.8 * np.linalg.norm(unit(QUERIES[:n]).mean(axis=0) - unit(DOCUMENTS).mean(axis=0))
        for n in (5, 20, 200)
    ]
    shrunk = np.divide(shares, gaps)
    assert shrunk[0] < shrunk[1] < shrunk[2] <= 1
    assert shrunk[2] > 0.95


def test_of_few_documents_the_nearest_queries_are_their_own():
    weights = []
    for n in (5, 10, 20, 100):
        search = SearchEncoder(n_neighbors=0.1).fit(DOCUMENTS[:n], queries=QUERIES[:100])
        weights.append(search.hub_weight_)
        assert (search.projection_ == np.eye(32)).all() == (n <= 10)
    assert weights[:2] == [0, 0]
    assert 0 < weights[2] < weights[3] <= 0.75
    assert unanswered_share(10, 100, 20) == 0.5
    assert unanswered_share(10, 100, 10**6) == pytest.approx(1, rel=1e-4)


@pytest.mark.filterwarnings(UNCORRECTED)
def test_vectors_without_spread_are_not_whitened():
    rng = np.random.default_rng(0)
    lengths = np.arange(1, 31)[:, None]
    for X in (rng.normal(size=(2, 5)), lengths * rng.normal(size=5), lengths):
        assert_array_equal(SearchEncoder().fit(X).projection_, np.eye(X.shape[1]))
    X = rng.normal(size=(30, 50))
    X[:, 0] = 0
    assert SearchEncoder().fit(X, queries=X[:2] + 1).projection_.shape == (50, 50)


def test_queries_drawn_like_documents_are_not_moved():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(600, 16))
    search = SearchEncoder().fit(X[:300], queries=X[300:310])
    assert_allclose(search.query_shift_, search.document_shift_, atol=0.1)


def test_equal_queries_count_once():
    repeated = np.vstack([BANK, np.repeat(BANK[:1], 500, axis=0)])
    search = SearchEncoder().fit(DOCUMENTS, queries=repeated)
    assert search.n_queries_ == 200
    assert_allclose(search.query_shift_, SEARCH.query_shift_, atol=1e-7)


@pytest.mark.parametrize("n", [30, 300])
@pytest.mark.parametrize("kind", ["heavy tails", "repeated"])
def test_false_alarms_keep_their_rate(n, kind):
    rng = np.random.default_rng(n)
    documents, population = rng.normal(size=(20, 8)), rng.normal(size=(300, 8))
    alarms = []
    for _ in range(100):
        if kind == "repeated":
            drawn = population[np.minimum(rng.zipf(1.3, n + 20) - 1, 299)]
        else:
            drawn = rng.standard_t(1.5, (n + 20, 8))
        search = SearchEncoder(hub_weight=0).fit(documents, queries=drawn[:n])
        alarms.append([search.query_p_value(drawn[n : n + m]) <= 0.1 for m in (9, 20)])
    assert np.mean(alarms, axis=0).max() <= 0.1 + 3 * np.sqrt(0.1 * 0.9 / 100)


def test_queries_of_another_kind_are_noticed():
    others = QUERIES[:60] - 4 * QUERIES.mean(axis=0)
    with pytest.warns(UserWarning, match=r"queries are unlike the bank \(p=.*fit again"):
        SEARCH.encode_query(others)
    assert SEARCH.query_p_value(others) < 1e-3
    assert SEARCH.query_p_value(NEW) > 0.01
    assert SEARCH.query_p_value(others[:4]) == 1  # too few to judge
    small = SearchEncoder().fit(DOCUMENTS, queries=BANK[:8])
    assert small.query_p_value(others) == 1


def test_what_has_no_content_comes_last_and_finds_nothing():
    documents = np.vstack([DOCUMENTS[:50], np.zeros((1, 32))])
    with pytest.warns(UserWarning, match="1 of 51 vectors are zero"):
        search = SearchEncoder().fit(documents, queries=BANK)
    assert search.kneighbors(NEW, 51)[1][:, -1].tolist() == [50] * 200
    scores, rows = search.kneighbors(np.vstack([NEW[:1], np.zeros((1, 32))]), 3)
    assert rows[1].tolist() == [-1] * 3
    assert scores[1].tolist() == [-1] * 3


def test_it_comes_back_from_a_pickle_and_clones():
    back = pickle.loads(pickle.dumps(SEARCH))
    assert_array_equal(back.encode_query(NEW), SEARCH.encode_query(NEW))
    assert clone(SEARCH).get_params() == SEARCH.get_params()
    assert SEARCH.get_feature_names_out().tolist()[:2] == ["searchencoder0", "searchencoder1"]


def test_a_scale_measures_its_scores():
    scale = SimilarityScale().fit(SEARCH.vectors_[:200], unanswerable=SEARCH.encode_query(NEW))
    scores = SEARCH.kneighbors(NEW, 400)[0]
    threshold = scale.threshold(0.1, per="query", confidence=None)
    unanswered = (SEARCH.encode_query(NEW) @ SEARCH.vectors_[:200].T).max(axis=1)
    assert np.mean(unanswered >= threshold) == pytest.approx(0.1, abs=0.011)
    assert scale.p_value(scores[0]).shape == (400,)


# Texts.

TEXTS = load_docstrings().data[:80]
ASKED = [" ".join(text.split()[-5:]) for text in load_docstrings().data[200:260]]


@pytest.fixture(scope="module")
def of_texts(minilm):
    return SearchEncoder(minilm).fit(TEXTS, queries=ASKED)


@pytest.mark.usefixtures("remembered")
def test_texts_are_as_their_vectors(of_texts, minilm):
    documents, queries = (BertEncoder(minilm).fit_transform(x) for x in (list(TEXTS), ASKED))
    of_vectors = SearchEncoder().fit(documents, queries=queries)
    assert_allclose(of_texts.vectors_, of_vectors.vectors_, atol=1e-5)
    assert_allclose(
        of_texts.encode_query(ASKED).dense, of_vectors.encode_query(queries), atol=1e-5
    )
