"""SearchEncoder: the score and its gain, few queries, wrong banks, bad input."""

import json
import pickle
import shutil
from itertools import product
from zlib import crc32

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from skcalib.similarity.search.bank_test import BankTest
from skcalib.similarity.search.estimator import ALARMS
from skcalib.similarity.search.hubs import gate
from skcalib.similarity.search.sides import unanswered_share
from sklearn import config_context
from sklearn.base import clone
from sklearn.covariance import ledoit_wolf
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.neighbors import KNeighborsTransformer, NearestNeighbors
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.utils.estimator_checks import parametrize_with_checks

from skcalib import BertEncoder, SearchEncoder, SimilarityScale, Whitening
from skcalib.datasets import load_docstrings

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
        search = SearchEncoder().fit(DOCUMENTS[:n], queries=QUERIES[:100])
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


def draws_of(kind, rng, d=16):
    """Return what draws n queries: of one distribution, of topics, or in families of copies."""
    if kind == "heavy tails":
        return lambda n: rng.standard_t(1.5, (n, d))
    if kind == "topics":
        topics, shares = rng.normal(size=(8, d)), rng.dirichlet(np.ones(8))
        return lambda n: topics[rng.choice(8, n, p=shares)] + 0.5 * rng.normal(size=(n, d))
    if kind == "repeated":
        population = rng.normal(size=(300, d))
        return lambda n: population[np.minimum(rng.zipf(1.3, n) - 1, 299)]
    return (
        lambda n: (  # four near copies of each
            np.repeat(rng.normal(size=(-(-n // 4), d)), 4, axis=0)[:n]
            + 0.1 * rng.normal(size=(n, d))
        )
    )


@pytest.mark.parametrize(("n", "new"), [(30, 300), (300, 100)])
@pytest.mark.parametrize("kind", ["heavy tails", "topics", "repeated", "near copies"])
def test_one_bank_warns_of_few_clean_calls(kind, n, new):
    """One bank after another, each with many calls: nine of ten warn of one in a hundred."""
    rng, alarms = np.random.default_rng(n), []
    for _ in range(25):
        draw = draws_of(kind, rng)
        test = BankTest.of(np.float32(unit(draw(n))))
        calls = [np.float32(unit(draw(new))) for _ in range(40)] if test else []
        alarms.append(sum(test.p_value(call) <= ALARMS for call in calls))
    assert np.mean(np.array(alarms) > 1) <= 0.1  # one in 40 may be chance


def test_queries_of_another_kind_are_noticed():
    others = QUERIES[:60] - 4 * QUERIES.mean(axis=0)
    with pytest.warns(UserWarning, match=r"queries are unlike the bank \(p=.*fit again"):
        SEARCH.encode_query(others)
    SEARCH.encode_query(NEW)  # no warning: they are like the bank
    SEARCH.encode_query(others[:4])  # too few to judge, as is a bank of eight
    SearchEncoder().fit(DOCUMENTS, queries=BANK[:8]).encode_query(others)


def test_many_queries_show_a_small_difference_that_few_do_not():
    rng = np.random.default_rng(1)
    bank, queries = rng.normal(size=(400, 16)) + 1, rng.normal(size=(200, 16)) + 1
    queries += 0.7 * rng.choice([-1, 1], size=(200, 16))
    search = SearchEncoder(power=0).fit(rng.normal(size=(300, 16)), queries=bank)
    search.encode_query(queries[:20])  # no warning
    with pytest.warns(UserWarning, match="queries are unlike the bank"):
        search.encode_query(queries)


def test_a_bank_of_documents_warns():
    bank = [*TEXTS[:11], *ASKED[:10]]  # two are equal by docstrings of old packages
    match = f"11 of {len({*bank})} distinct queries are documents"
    with pytest.warns(UserWarning, match=match):
        SearchEncoder(vague).fit(TEXTS, queries=bank)
    with pytest.warns(UserWarning, match="101 of 201 distinct queries are documents"):
        SearchEncoder().fit(DOCUMENTS, queries=np.vstack([BANK[:100], DOCUMENTS[:101]]))
    SearchEncoder().fit(DOCUMENTS, queries=np.vstack([BANK[:100], DOCUMENTS[:100]]))


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


# Words.

PARTS = "bdgkm", ("al", "ir", "on"), ("sen", "ek", "u")
SURNAMES = ["".join(parts) for parts in product(*PARTS)]


def random(text, d=16):
    return np.random.default_rng(crc32(text.encode())).normal(size=d)


def vague(texts):
    """Vectors that hardly see names; those of texts without words are zero."""
    vectors = np.zeros((len(texts), 16))
    for vector, text in zip(vectors, texts, strict=True):
        for word in text.split():
            vector += (0.8 if word in SURNAMES else 0.3) * random(word)
        if text.strip():
            vector += 1.2 * random(text)
    return vectors


PEOPLE = [f"{name} has {thing}" for name in SURNAMES for thing in ("flu", "gout")]
WHO = [f"who is {name} with {thing}" for name in SURNAMES[::3] for thing in ("flu", "gout")]


@pytest.mark.parametrize("queries", [None, WHO])
def test_words_find_what_vectors_do_not_see(queries):
    search = SearchEncoder(vague).fit(PEOPLE, queries=queries)
    asked = [f"where is {name} with flu" for name in SURNAMES]
    right = np.arange(len(SURNAMES)) * 2
    by_vectors = search.encode_query(asked).dense @ search.vectors_.T
    found = np.mean(by_vectors.argmax(axis=1) == right)
    assert np.mean(search.kneighbors(asked, 1)[1][:, 0] == right) > found + 0.1
    off = SearchEncoder(vague, lexical=None).fit(PEOPLE, queries=queries)
    assert off.words_ is off.vectorizer_ is None
    assert off.lexical_weight_ == 0
    assert_array_equal(off.encode_query(asked), search.encode_query(asked).dense)


def test_a_score_is_the_sum_of_two_inner_products():
    search = SearchEncoder(vague).fit(PEOPLE, queries=WHO)
    asked, kept = search.encode_query(WHO), search.encode_document(PEOPLE)
    scores = asked.dense @ kept.dense.T + (asked.sparse @ kept.sparse.T).toarray()
    best, rows = search.kneighbors(WHO, 5)
    assert_allclose(best, np.take_along_axis(scores, rows, axis=1), atol=1e-6)
    assert_allclose(best, -np.sort(-scores, axis=1)[:, :5], atol=1e-6)
    assert_allclose(search.words_.toarray(), kept.sparse.toarray())
    lengths = np.sqrt(asked.sparse.multiply(asked.sparse).sum(axis=1))
    assert_allclose(lengths, search.lexical_weight_, rtol=1e-5)
    back = pickle.loads(pickle.dumps(search))
    assert_array_equal(back.kneighbors(WHO, 5)[1], rows)
    index = KNeighborsTransformer(metric="cosine")
    found = clone(search).set_params(neighbors=index).fit(PEOPLE, queries=WHO)
    assert_array_equal(found.kneighbors(WHO, 5)[1], rows)  # of all, which are fewer than 100
    later = search.encode_document(["an entirely new zebra xylophone"])
    assert later.sparse.shape[1] == search.words_.shape[1]  # the fit determines the terms


def test_words_reorder_the_hundred_documents_that_an_index_finds():
    documents = [
        f"{name} has {thing}" for name in SURNAMES for thing in ("flu", "gout", "a", "b")
    ]
    index = KNeighborsTransformer(metric="cosine")
    search = SearchEncoder(vague, neighbors=index).fit(documents, queries=WHO)
    asked, kept = search.encode_query(WHO), search.encode_document(documents)
    dense = asked.dense @ kept.dense.T
    scores = dense + (asked.sparse @ kept.sparse.T).toarray()
    scores[dense < -np.sort(-dense, axis=1)[:, 99:100]] = -np.inf
    for k in (5, 20, 60):
        found = search.kneighbors(WHO, k)[0]
        assert_allclose(found, -np.sort(-scores, axis=1)[:, :k], atol=1e-6)


def test_words_of_another_kind_are_those_of_the_vectorizer():
    words = TfidfVectorizer()
    search = SearchEncoder(vague, lexical=words).fit(PEOPLE, queries=WHO)
    assert "flu" in search.vectorizer_.vocabulary_
    assert not hasattr(words, "vocabulary_")
    assert search.lexical_weight_ > 0


ODD = [
    "İstanbul ΟΔΟΣ Οδός",
    "ß\u00a0ẞ\x1ca",
    "中文字 搜索",
    "a",
    "A b\t\nc",
    "so-so, so!",
    "so so",
]


def test_pieces_of_words_are_those_of_a_vectorizer_that_cuts_each_text():
    pieces = {"analyzer": "char_wb", "ngram_range": (2, 4), "sublinear_tf": True}
    of_texts = TfidfVectorizer(**pieces, dtype=np.float32)
    expected = of_texts.fit_transform(ODD)
    search = SearchEncoder(vague).fit(ODD)
    assert search.vectorizer_.vocabulary_ == of_texts.vocabulary_
    assert_array_equal(search.vectorizer_.idf_, of_texts.idf_)
    assert_allclose(search.words_.toarray(), expected.toarray(), atol=1e-7)
    assert_allclose(search.encode_document(ODD)[1].toarray(), expected.toarray(), atol=1e-7)
    assert clone(search.vectorizer_).get_params() == of_texts.get_params()


def test_the_weight_of_words_is_the_formula():
    people = [f"{person} {i}" for person in PEOPLE for i in range(6)]
    search = SearchEncoder(vague).fit(people, queries=WHO)
    asked = search.encode_query(WHO)
    scores = asked.dense @ search.vectors_.T
    words = (asked.sparse @ search.words_.T).toarray() / search.lexical_weight_
    near = np.take_along_axis(words, np.argsort(-scores, axis=1, kind="stable"), axis=1)
    first, others = near[:, 0], near[:, 10:60]
    deviation = np.sqrt((first.var() + others.var()) / 2)
    D = (first.mean() - others.mean()) / deviation
    expected = D**2 / (2 + 2 * D**2) * scores.std(axis=1).mean() / deviation
    assert search.lexical_weight_ == pytest.approx(expected, rel=1e-3)


@pytest.mark.parametrize("queries", [None, WHO])
def test_words_that_do_not_show_what_is_found_count_little(queries):
    """Vectors that know nothing of the words: the first document has no more of them."""
    people = [f"{person} {i}" for person in PEOPLE for i in range(8)]
    known, unrelated = (
        SearchEncoder(encoder).fit(people, queries=queries).lexical_weight_
        for encoder in (vague, lambda texts: np.array([random(text) for text in texts]))
    )
    assert unrelated < 0.1 * known


@pytest.mark.parametrize(
    "documents",
    [
        ["one text", "", "two texts", "  "],
        ["a b"] * 4 + ["c d"],
        ["x", "y"],
        ["x y"] * 9 + ["z w"],
    ],
)
@pytest.mark.parametrize("queries", [None, ["who asks", "what now", "日本", "q w"]])
@pytest.mark.filterwarnings("ignore")
def test_few_equal_or_empty_texts_give_finite_scores(documents, queries):
    search = SearchEncoder(vague).fit(documents, queries=queries)
    scores, rows = search.kneighbors(["", "日本語", "one text", "unknown zzz"], 9)
    assert np.isfinite(scores).all()
    assert rows.shape == scores.shape == (4, min(9, len(documents)))
    assert np.isfinite(search.lexical_weight_)
    assert (rows[0] == -1).all()


@pytest.mark.filterwarnings("ignore:3 of 3 texts")
def test_a_vocabulary_that_cannot_be_learned_is_refused_with_what_to_choose():
    stop = TfidfVectorizer(stop_words=["who", "is"])
    with pytest.raises(ValueError, match=r"lexical=Tfidf.*cannot .* empty vocab.*None"):
        SearchEncoder(vague, lexical=stop).fit(["who", "is who"])
    model = SearchEncoder(vague).fit(PEOPLE)
    with pytest.raises(ValueError, match="n_samples=1 documents, 1 of them with content"):
        model.fit(["one document"])
    with pytest.raises(ValueError, match="n_samples=3 documents, 0 of them"):
        model.fit(["", " ", ""])


@pytest.mark.filterwarnings("ignore")
def test_documents_and_queries_without_known_words_are_found_by_vectors():
    words = TfidfVectorizer(token_pattern="[a-z]+")  # knows no number and no other script
    documents = [*PEOPLE[:40], "12 13", "東京の天気", "42"]
    search = SearchEncoder(vague, lexical=words).fit(documents, queries=WHO)
    asked = ["12 13", "東京の天気", "77 78"]
    encoded, kept = search.encode_query(asked), search.encode_document(documents[-3:])
    assert encoded.sparse.nnz == kept.sparse.nnz == 0
    scores, rows = search.kneighbors(asked, 43)
    assert rows[:2, 0].tolist() == [40, 41]
    assert_allclose(scores, -np.sort(-encoded.dense @ search.vectors_.T), atol=1e-6)
    without = SearchEncoder(vague).fit(["東京の天気", "大阪の地図", "京都の寺"])  # no spaces
    assert without.kneighbors(["東京の地図"], 3)[1].shape == (1, 3)
    assert without.encode_query(["東京"]).sparse.nnz > 0


def test_documents_that_are_asked_for_are_no_hubs():
    """Nine of ten queries ask for the same five documents, which are near no others."""
    rng = np.random.default_rng(0)
    documents = rng.normal(size=(200, 16))
    popular = rng.integers(5, size=90)
    asked = documents[[*popular, *range(5, 15)]] + 0.3 * rng.normal(size=(100, 16))
    assert SearchEncoder().fit(documents, queries=asked).hub_weight_ == 0
    assert gate(np.arange(100), 200) == 1
    assert gate(popular, 200) == 0
    # 38 documents are first for two queries each. Half of the way from .75 to .95 is .85.
    twice = np.r_[np.repeat(np.arange(38), 2), 100:124]
    ratio = (1 / 100 + 99 / 100 / 200) / (38 * 0.02**2 + 24 * 0.01**2)
    assert gate(twice, 200) == pytest.approx((ratio - 0.75) / 0.2)
    assert 0.4 < gate(twice, 200) < 0.6


def test_the_weight_of_hubs_is_what_another_bank_would_repeat():
    """The correlation of two halves, of a bank of half the size, after Spearman and Brown."""
    search = SearchEncoder(power=0).fit(DOCUMENTS, queries=BANK)
    b = 2**0.5 * search.encode_query(BANK)[:, :-2]
    cosines = 2**0.5 * search.vectors_[:, :-2] @ b.T
    rng, correlations = np.random.default_rng(1), []
    for _ in range(100):
        order = rng.permutation(200)
        halves = [
            np.sort(cosines[:, rows])[:, -10:].mean(axis=1)
            for rows in (order[:100], order[100:])
        ]
        correlations.append(np.corrcoef(*halves)[0, 1])
    r = np.mean(correlations)
    share = 1 - 200 / (400 * 20)
    assert 0.3 < r < 0.9
    assert search.hub_weight_ == pytest.approx(0.75 * share * 2 * r / (1 + r), rel=0.03)


# Sides and what is refused.


def test_queries_by_position_are_refused():
    with pytest.raises(TypeError, match="fit\\(documents, queries=past_queries\\)"):
        SearchEncoder(vague).fit(PEOPLE, WHO)
    with pytest.raises(TypeError, match="got vectors as y"):
        SearchEncoder().fit(DOCUMENTS, BANK)


def test_a_pipeline_that_routes_queries_transforms_them():
    with config_context(enable_metadata_routing=True):
        search = SearchEncoder().set_fit_request(queries=True)
        pipeline = Pipeline(
            [("white", Whitening()), ("search", search)], transform_input=["queries"]
        )
        pipeline.fit(DOCUMENTS, queries=BANK)
    whitening = Whitening().fit(DOCUMENTS)
    expected = SearchEncoder().fit(
        whitening.transform(DOCUMENTS), queries=whitening.transform(BANK)
    )
    assert_allclose(pipeline[-1].vectors_, expected.vectors_, atol=1e-6)


class TwoSided:
    """A model of another library, with a method for each side."""

    def encode(self, texts):
        return vague(texts)

    def encode_query(self, texts):
        return -vague(texts)

    def encode_document(self, texts):
        return vague(texts)


def test_each_side_is_encoded_as_the_model_declares_it():
    model = TwoSided()
    search = SearchEncoder(model, lexical=None).fit(PEOPLE, queries=WHO)
    by_hand = SearchEncoder().fit(vague(PEOPLE), queries=-vague(WHO))
    assert_allclose(search.vectors_, by_hand.vectors_, atol=1e-6)
    assert_allclose(search.encode_query(WHO), by_hand.encode_query(-vague(WHO)), atol=1e-6)


@pytest.mark.filterwarnings("ignore:.*tokens are unknown")
@pytest.mark.parametrize(
    "prompts",
    [
        {"query": "red: ", "passage": "snow: "},
        {"query": "red: "},
        {"document": "snow: "},
    ],
)
def test_declared_prompts_are_used_by_side(prompts, tiny_bert, tmp_path):
    folder = shutil.copytree(tiny_bert, tmp_path / "model")
    settings = {"prompts": prompts, "default_prompt_name": None}
    (folder / "config_sentence_transformers.json").write_text(json.dumps(settings))
    by_hand = SearchEncoder(
        BertEncoder(folder, prompt="snow: " if len({*prompts} - {"query"}) else ""),
        query_encoder=BertEncoder(folder, prompt=prompts.get("query", "")),
        lexical=None,
    ).fit(TEXTS, queries=ASKED)
    fitted = BertEncoder(folder).fit(TEXTS)  # it is cloned, so it has no sides yet
    for encoder in (str(folder), fitted, make_pipeline(fitted)):
        search = SearchEncoder(encoder, lexical=None).fit(TEXTS, queries=ASKED)
        assert_allclose(search.vectors_, by_hand.vectors_, atol=1e-6)
        assert_allclose(search.encode_query(ASKED), by_hand.encode_query(ASKED), atol=1e-6)
