"""SearchEncoder: the score and its gain, few queries, later documents, bad input."""

import json
import shutil
from itertools import product
from zlib import crc32

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy.sparse import isspmatrix
from sklearn import config_context, get_config
from sklearn.base import clone
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.pipeline import Pipeline, make_pipeline

from skcalib import BertEncoder, SearchEncoder, Whitening
from skcalib.datasets import load_docstrings


def two_kinds(n=400, d=16, seed=0):
    """Documents and the query of each, of different means."""
    rng = np.random.default_rng(seed)
    topics, mean = rng.normal(size=(n, d)), 0.8 * rng.normal(size=(2, 2 * d))
    documents = np.hstack([topics, rng.normal(size=(n, d))])
    queries = np.hstack([topics + 0.6 * rng.normal(size=(n, d)), np.zeros((n, d))])
    return documents + mean[0], queries + mean[1]


def unit(X):
    return X / np.linalg.norm(X, axis=1, keepdims=True)


DOCUMENTS, QUERIES = two_kinds()
BANK, NEW = QUERIES[:200], QUERIES[200:]
SEARCH = SearchEncoder().fit(DOCUMENTS, queries=BANK)


def reference(documents, bank, queries):
    """The formula of the docstring, in float64."""
    m = unit(documents).sum(axis=0) / (len(documents) + 10)
    mu = (unit(bank).sum(axis=0) + 10 * m) / (len(bank) + 10)
    return unit(unit(queries) - 0.75 * mu) @ unit(unit(documents) - 0.75 * m).T


def test_the_score_is_the_formula_and_an_inner_product():
    d, q = SEARCH.encode_document(DOCUMENTS), SEARCH.encode_query(NEW)
    assert d.dtype == q.dtype == np.float32
    assert d.shape == DOCUMENTS.shape  # as wide as the encoder's
    assert_allclose(q @ d.T, reference(DOCUMENTS, BANK, NEW), atol=1e-6)
    assert_allclose(np.linalg.norm(d, axis=1), 1, rtol=1e-6)
    assert_allclose(np.linalg.norm(q, axis=1), 1, rtol=1e-6)
    assert_array_equal(SEARCH.vectors_, d)
    assert_allclose(SEARCH.document_pipeline_.transform(DOCUMENTS), d, atol=1e-6)
    assert_allclose(SEARCH.query_pipeline_.transform(NEW), q, atol=1e-6)


@pytest.mark.parametrize("n", [0, 1, 5])
def test_few_queries_change_little(n):
    bank = QUERIES[:n] if n else None
    search = SearchEncoder().fit(DOCUMENTS, queries=bank)
    expected = reference(DOCUMENTS, QUERIES[:n], NEW)
    assert_allclose(search.encode_query(NEW) @ search.vectors_.T, expected, atol=1e-6)
    assert search.n_queries_ == n


def test_it_finds_more_than_cosines():
    own = np.arange(200, 400)
    raw = np.mean((unit(NEW) @ unit(DOCUMENTS).T).argmax(axis=1) == own)
    assert np.mean(SEARCH.kneighbors(NEW, 1)[1][:, 0] == own) > raw + 0.05


def test_neighbors_are_the_largest_products_alone_or_beside_others():
    products = SEARCH.encode_query(NEW).astype(float) @ SEARCH.vectors_.T
    scores, rows = SEARCH.kneighbors(NEW, 7)
    assert_array_equal(rows, np.argsort(-products, axis=1, kind="stable")[:, :7])
    assert_allclose(scores, -np.sort(-products, axis=1)[:, :7], atol=1e-6)
    assert SEARCH.kneighbors(NEW, 1000)[1].shape == (200, 400)
    alone = [SEARCH.kneighbors(query[None], 7) for query in NEW[:9]]
    assert_array_equal(np.vstack([found for _, found in alone]), rows[:9])
    assert_allclose(np.vstack([found for found, _ in alone]), scores[:9], atol=1e-6)


def test_equal_queries_count_once():
    repeated = np.vstack([BANK, np.repeat(BANK[:1], 500, axis=0)])
    search = SearchEncoder().fit(DOCUMENTS, queries=repeated)
    assert search.n_queries_ == 200
    assert_allclose(search.query_shift_, SEARCH.query_shift_, atol=1e-7)


def test_no_method_takes_queries_for_documents():
    assert not hasattr(SEARCH, "transform")
    assert not hasattr(SEARCH, "fit_transform")


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
    off = SearchEncoder(vague, lexical_weight=0).fit(PEOPLE, queries=queries)
    assert off.words_ is off.vectorizer_ is None
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
    assert_allclose(lengths, 0.4, rtol=1e-5)


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


# Documents that come and go, and what has no content.


def test_added_documents_are_found_as_those_of_the_fit():
    whole = SearchEncoder(vague).fit(PEOPLE, queries=WHO)
    search = SearchEncoder(vague).fit(PEOPLE, queries=WHO)
    assert search.add(["zorro has flu", "zorro has gout"]).tolist() == [90, 91]
    assert search.kneighbors(["zorro has gout"], 1)[1].tolist() == [[91]]
    kept = whole.encode_document([*PEOPLE, "zorro has flu", "zorro has gout"])
    assert_allclose(search.vectors_, kept.dense, atol=1e-7)
    assert_allclose(search.words_.toarray(), kept.sparse.toarray(), atol=1e-7)
    vectors = SearchEncoder().fit(DOCUMENTS[:300], queries=BANK)
    assert vectors.add(DOCUMENTS[300:]).tolist() == [*range(300, 400)]
    assert_array_equal(vectors.vectors_, vectors.encode_document(DOCUMENTS))


def test_removed_documents_are_never_found_and_the_others_keep_their_rows():
    search = SearchEncoder(vague).fit(PEOPLE, queries=WHO)
    before = search.kneighbors(WHO, 90)[1]
    gone = before[0, :3]
    assert search.remove(gone) is search
    scores, rows = search.kneighbors(WHO, 90)
    assert not np.isin(gone, rows).any()
    for old, new in zip(before, rows, strict=True):
        assert new[:87].tolist() == [row for row in old if row not in gone]
    assert (rows[:, 87:] == -1).all()
    assert (scores[:, 87:] == -1).all()
    assert not search.vectors_[gone].any()
    assert not search.words_[gone].nnz
    assert search.remove([]).remove(gone[:1]).add([PEOPLE[gone[0]]]).tolist() == [90]
    assert search.kneighbors([PEOPLE[gone[0]]], 1)[1].tolist() == [[90]]
    assert (search.remove(np.arange(91)).kneighbors(WHO)[1] == -1).all()


@pytest.mark.parametrize(
    ("rows", "match"),
    [
        ([90], "has \\[90\\]; expected row numbers from 0 to 89"),
        ([-1, 3], "has \\[-1, 3\\]"),
        ([0.5], "has \\[0.5\\]"),
        ([True, False], "has \\[True, False\\]"),
        (PEOPLE[:1], "expected row numbers"),
    ],
)
def test_rows_that_are_none_are_refused(rows, match):
    search = SearchEncoder(vague).fit(PEOPLE)
    with pytest.raises(ValueError, match=match):
        search.remove(rows)
    assert (search.kneighbors(WHO, 90)[1] >= 0).all()


@pytest.mark.parametrize("queries", [None, BANK])
def test_zero_vectors_are_not_found_and_find_nothing(queries):
    documents = np.vstack([DOCUMENTS[:50], np.zeros((1, 32))])
    with pytest.warns(UserWarning, match="1 of 51 vectors are zero"):
        search = SearchEncoder().fit(documents, queries=queries)
    rows = search.kneighbors(NEW, 51)[1]
    assert (np.sort(rows) == np.arange(-1, 50)).all()
    assert (rows[:, -1] == -1).all()
    for asked in (np.zeros((1, 32)), np.vstack([NEW[:1], np.zeros((1, 32))])):
        scores, rows = search.kneighbors(asked, 3)
        assert rows[-1].tolist() == [-1] * 3
        assert scores[-1].tolist() == [-1] * 3


@pytest.mark.filterwarnings("ignore:.*tokens are unknown")
@pytest.mark.parametrize("bank", [None, ["who asks for me", "what is the matter"]])
def test_an_empty_search_box_is_no_error(minilm, bank):
    search = SearchEncoder(minilm).fit(load_docstrings().data[:60], queries=bank)
    for asked in ([""], ["🙂"], [" ", "fit a model", "🙂"]):
        scores, rows = search.kneighbors(asked, 3)
        silent = [text != "fit a model" for text in asked]
        assert (rows[silent] == -1).all()
        assert (scores[silent] == -1).all()
        assert (rows[np.invert(silent)] >= 0).all()
        encoded = search.encode_query(asked)
        assert not encoded.dense[silent].any()
        assert not encoded.sparse[silent].nnz


@pytest.mark.parametrize(
    "documents",
    [
        ["one text", "", "two texts", "  "],
        ["a b"] * 4 + ["c d"],
        ["x", "y"],
        ["x y"] * 9 + ["z w"],
        ["東京の天気", "大阪の地図", "京都の寺"],  # no spaces
    ],
)
@pytest.mark.parametrize("queries", [None, ["who asks", "what now", "日本", "q w"]])
@pytest.mark.filterwarnings("ignore")
def test_few_equal_or_empty_texts_give_finite_scores(documents, queries):
    search = SearchEncoder(vague).fit(documents, queries=queries)
    scores, rows = search.kneighbors(["", "日本語", "one text", "unknown zzz"], 9)
    assert np.isfinite(scores).all()
    assert rows.shape == scores.shape == (4, min(9, len(documents)))
    assert (rows[0] == -1).all()


# What is refused, and sides.


@pytest.mark.parametrize(
    ("search", "X", "more", "error", "match"),
    [
        (SearchEncoder(vague), PEOPLE, {"y": WHO}, TypeError, "queries=past_queries"),
        (SearchEncoder(), DOCUMENTS, {"y": BANK}, TypeError, "vectors as y"),
        (SearchEncoder(), PEOPLE, {}, TypeError, r"SearchEncoder\(BertEncoder\(model\)\)"),
        (SearchEncoder(), DOCUMENTS, {"queries": WHO}, TypeError, "queries has texts, such as"),
        (SearchEncoder(), DOCUMENTS, {"queries": BANK[:, :9]}, ValueError, "queries has 9 fea"),
        (SearchEncoder(vague), PEOPLE, {"queries": [" "]}, ValueError, "none with content"),
        (SearchEncoder(vague), ["one document"], {}, ValueError, "1 documents, 1 of them"),
        (SearchEncoder(vague), ["", " ", ""], {}, ValueError, "3 documents, 0 of them"),
        (SearchEncoder(query_encoder=vague), DOCUMENTS, {}, ValueError, "but no encoder"),
        (SearchEncoder(lexical_weight=-1), DOCUMENTS, {}, ValueError, "lexical_weight"),
        (
            SearchEncoder(vague, query_encoder=lambda texts: vague(texts)[:, :3]),
            PEOPLE,
            {},
            ValueError,
            "query_encoder returns 3 features, but encoder 16",
        ),
    ],
)
@pytest.mark.filterwarnings("ignore:.* texts have no content")
def test_what_it_cannot_use_is_refused(search, X, more, error, match):
    with pytest.raises(error, match=match):
        search.fit(X, **more)


def test_a_bank_of_documents_warns():
    with pytest.warns(UserWarning, match="11 of 21 distinct queries are documents"):
        SearchEncoder(vague).fit(PEOPLE, queries=[*PEOPLE[:11], *WHO[:10]])
    SearchEncoder(vague).fit(PEOPLE, queries=[*PEOPLE[:10], *WHO[:10]])


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
    search = SearchEncoder(TwoSided(), lexical_weight=0).fit(PEOPLE, queries=WHO)
    by_hand = SearchEncoder().fit(vague(PEOPLE), queries=-vague(WHO))
    assert_allclose(search.vectors_, by_hand.vectors_, atol=1e-6)
    assert_allclose(search.encode_query(WHO), by_hand.encode_query(-vague(WHO)), atol=1e-6)


TEXTS = load_docstrings().data[:80]
ASKED = [" ".join(text.split()[-5:]) for text in load_docstrings().data[200:260]]


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
        lexical_weight=0,
    ).fit(TEXTS, queries=ASKED)
    fitted = BertEncoder(folder).fit(TEXTS)  # it is cloned, so it has no sides yet
    for encoder in (str(folder), fitted, make_pipeline(fitted)):
        search = SearchEncoder(encoder, lexical_weight=0).fit(TEXTS, queries=ASKED)
        assert_allclose(search.vectors_, by_hand.vectors_, atol=1e-6)
        assert_allclose(search.encode_query(ASKED), by_hand.encode_query(ASKED), atol=1e-6)


@pytest.mark.parametrize("interface", ["spmatrix", "sparray"])
def test_sparse_vectors_have_the_interface_of_the_setting(interface):
    if "sparse_interface" not in get_config():
        pytest.skip("scikit-learn 1.9 has the setting")
    by_matrices = SearchEncoder(vague).fit(PEOPLE)
    with config_context(sparse_interface=interface):
        search = SearchEncoder(vague).fit(PEOPLE)
        assert_array_equal(search.kneighbors(WHO, 3)[0], by_matrices.kneighbors(WHO, 3)[0])
        search.add(["zorro has flu", "zorro has gout"])
        search.remove([len(PEOPLE)])
        parts = search.encode_query([*WHO, ""]), search.encode_document(WHO)
        for sparse in (*(part.sparse for part in parts), search.words_):
            assert isspmatrix(sparse) == (interface == "spmatrix")
