"""Any model as a transformer of texts: asked once for each text, and checked."""

import pickle
import re
from types import SimpleNamespace

import joblib
import numpy as np
import pytest
from counting import Counting
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.feature_extraction.text import CountVectorizer
from sklearn.pipeline import make_pipeline

from skcalib import BertEncoder, TextEncoder, VectorStore, Whitening

TEXTS = ["a tin star", "nine notes", "as it is", "a tin star"]


@pytest.fixture(autouse=True)
def forget(recent):
    """Keep vectors in memory, as outside the tests; return the function that empties it."""
    recent.bound = 2**20
    return recent.clear


def letters(texts):
    return np.array([[text.count(c) for c in "aeint"] for text in texts])


@pytest.mark.parametrize("model", [letters, SimpleNamespace(encode=letters)])
def test_gives_what_the_model_gives(model):
    assert_array_equal(TextEncoder(model).fit_transform(TEXTS), letters(TEXTS))
    vectors = TextEncoder(model, batch_size=1).fit(TEXTS).transform(TEXTS[::-1])
    assert_array_equal(vectors, letters(TEXTS[::-1]))


@pytest.mark.parametrize(
    ("given", "expected"), [("f2", "f4"), ("f4", "f4"), ("f8", "f8"), ("i1", "f4"), ("?", "f4")]
)
def test_dtype(given, expected):
    encoder = TextEncoder(lambda texts: letters(texts).astype(given))
    assert encoder.fit_transform(TEXTS).dtype == expected


def test_each_text_is_asked_for_once_also_by_clones():
    model = Counting(letters)
    encoder = TextEncoder(model, batch_size=2).fit(TEXTS)
    encoder.transform(TEXTS)
    twin = clone(encoder)
    assert twin.model is model
    twin.fit_transform([*TEXTS, "a new one"])
    assert model.asked == [*TEXTS[:3], "a new one"]


def test_a_failed_fit_leaves_nothing_fitted():
    encoder = TextEncoder(letters).fit(TEXTS)
    for fit in (encoder.fit, encoder.fit_transform):
        encoder.fit(TEXTS)
        with pytest.raises(TypeError, match="expected str"):
            fit([1, 2])
        with pytest.raises(NotFittedError):
            encoder.transform(TEXTS)
        with pytest.raises(ValueError, match="'batch_size' parameter"):
            encoder.fit(TEXTS).set_params(batch_size=0).fit(TEXTS)
        with pytest.raises(NotFittedError):
            encoder.transform(TEXTS)
        encoder.set_params(batch_size=1)


def test_what_was_answered_before_an_error_is_not_asked_for_again():
    asked = []

    def limited(texts):
        if len(asked) == 2:
            asked.append("failed")
            raise TimeoutError
        asked.extend(texts)
        return letters(texts)

    encoder = TextEncoder(limited, batch_size=1)
    with pytest.raises(TimeoutError):
        encoder.fit_transform(TEXTS)
    assert_array_equal(encoder.fit_transform(TEXTS), letters(TEXTS))
    assert asked == [*TEXTS[:2], "failed", TEXTS[2]]


def test_another_model_is_asked_anew():
    encoder = TextEncoder(letters).fit(TEXTS)
    encoder.set_params(model=lambda texts: -letters(texts))
    assert_array_equal(encoder.transform(TEXTS), -letters(TEXTS))


def test_a_clone_keeps_the_client_and_the_containers_of_its_output():
    pytest.importorskip("pandas")
    model = Counting(letters)
    encoder = TextEncoder(model).set_output(transform="pandas")
    frame = clone(encoder).fit_transform(TEXTS)
    assert list(frame.columns) == [f"textencoder{i}" for i in range(5)]
    pipeline = clone(make_pipeline(encoder, Whitening(2, power="auto")))
    assert pipeline.fit_transform(TEXTS).shape == (4, 2)
    assert model.asked == TEXTS[:3]


def test_a_clone_with_a_name_or_another_batch_size_changes_nothing_in_the_original():
    model = Counting(letters)
    encoder = TextEncoder(model, batch_size=2).fit(TEXTS)
    X = encoder.transform(TEXTS)
    narrow = clone(encoder).set_params(batch_size=1)
    assert_array_equal(narrow.fit_transform(TEXTS), X)
    assert_array_equal(encoder.transform(TEXTS), X)
    assert model.asked == TEXTS[:3]
    named = clone(encoder).set_params(name="a").fit(TEXTS)
    sizes = []
    model.vectors = lambda texts: sizes.append(len(texts)) or letters(texts)
    encoder.transform(["b", "c"])
    assert sizes == [2]
    model.vectors = lambda texts: -letters(texts)
    other = clone(named).set_params(name="b")
    assert_array_equal(other.fit_transform(TEXTS), -X)
    assert_array_equal(named.transform(TEXTS[:1]), X[:1])


def test_pickle_holds_the_model_and_no_texts():
    encoder = TextEncoder(letters).fit(["a tin star"])
    pickled = pickle.dumps(encoder)
    assert b"tin star" not in pickled
    assert_array_equal(pickle.loads(pickled).transform(TEXTS), letters(TEXTS))


def test_a_store_keeps_vectors_for_other_processes(tmp_path):
    expected = TextEncoder(letters, memory=tmp_path, name="letters").fit_transform(TEXTS)
    assert_array_equal(expected, letters(TEXTS))
    model = Counting(letters)
    encoder = TextEncoder(model, memory=tmp_path, name="letters")
    assert_array_equal(encoder.fit_transform([*TEXTS, "new"])[:4], expected)
    assert model.asked == [TEXTS[0], "new"]
    other = TextEncoder(lambda texts: -letters(texts), memory=tmp_path, name="negated")
    assert_array_equal(other.fit_transform(TEXTS), -expected)
    with pytest.raises(ValueError, match="got memory but no name"):
        TextEncoder(letters, memory=tmp_path).fit(TEXTS)


@pytest.mark.parametrize("lose", [lambda store: None, VectorStore.clear], ids=["new", "clear"])
def test_what_memory_knows_reaches_a_disk_that_lacks_it(tmp_path, lose):
    model, store = Counting(letters), VectorStore(tmp_path)
    encoder = TextEncoder(model, name="letters").fit(TEXTS)
    X = encoder.transform(TEXTS)
    encoder.set_params(memory=store)
    for _ in range(2):
        assert_array_equal(encoder.transform(TEXTS), X)
        assert len(store) == 3
        lose(store)
    assert model.asked == TEXTS[:3]


@pytest.mark.parametrize(
    ("dtype", "scale"), [("float16", 1e5), ("float16", 1e-6), ("float32", 1e-40)]
)
def test_a_store_refuses_vectors_that_would_lose_their_digits(tmp_path, dtype, scale):
    store = VectorStore(tmp_path, dtype=dtype)
    encoder = TextEncoder(lambda texts: scale * letters(texts), memory=store, name="x")
    message = f"The vector of the text .* too small, in {dtype} .*dtype of the .*scale"
    with pytest.raises(ValueError, match=message):
        encoder.fit_transform(TEXTS)
    assert len(store) == 0


def test_requests_are_full_whatever_the_store(tmp_path):
    sizes = []

    def service(texts):
        sizes.append(len(texts))
        return letters(texts)

    texts = [f"text {i}" for i in range(2100)]
    TextEncoder(service, batch_size=100, memory=tmp_path, name="x").fit_transform(texts)
    assert sorted(sizes) == [1, 99] + 20 * [100]


def test_a_model_that_answers_in_two_dtypes_loses_no_digits():
    def mixed(texts):
        return np.full((1, 2), 1e300) if texts == ["b"] else np.ones((1, 2), np.float32)

    encoder = TextEncoder(mixed, batch_size=1).fit(["a"])
    assert_array_equal(encoder.transform(["a", "b"])[:, 0], [1, 1e300])


@pytest.mark.parametrize("encoder", [BertEncoder(), TextEncoder(letters, name="letters")])
def test_joblib_memory_is_refused(encoder, tmp_path):
    encoder = clone(encoder).set_params(memory=joblib.Memory(tmp_path, verbose=0))
    with pytest.raises(ValueError, match=r"'memory' parameter of .* [Gg]ot Memory\("):
        encoder.fit(TEXTS)


def test_a_hub_id_is_for_another_encoder():
    with pytest.raises(
        TypeError, match=r"model is the str 'all-MiniLM-L6-v2'.*use BertEncoder"
    ):
        TextEncoder("all-MiniLM-L6-v2").fit(TEXTS)


def test_is_the_sentence_transformer_as_shipped(minilm):
    package = pytest.importorskip("sentence_transformers")
    model = package.SentenceTransformer(str(minilm), device="cpu")
    vectors = TextEncoder(model).fit_transform(TEXTS)
    assert_allclose(vectors, model.encode(TEXTS), atol=1e-6)
    assert TextEncoder(model).fit(TEXTS).get_feature_names_out()[0] == "textencoder0"


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        (np.zeros((1, 3)), "(1, 3) and dtype float64 for 2 texts; expected numbers, one"),
        (np.zeros(3), "shape (3,) and dtype"),
        (CountVectorizer().fit_transform(TEXTS), "shape () and dtype object"),
        (np.array([["x"]] * 2), "dtype <U1 for 2 texts; expected numbers"),
        ([[np.nan], [0.0]], "The vector of the text 'nine notes' is not finite"),
        ([[0.0], [1.0, 2.0]], "shape (2,) and dtype object"),
    ],
)
def test_refuses_what_is_no_array_of_vectors(answer, message):
    encoder = TextEncoder(lambda texts: answer if len(texts) > 1 else [[0.0]])
    with pytest.raises(ValueError, match=re.escape(message)):
        encoder.fit_transform(TEXTS)


def test_refuses_another_width():
    encoder = TextEncoder(letters).fit(TEXTS)
    encoder.set_params(model=lambda texts: letters(texts)[:, :2])
    with pytest.raises(ValueError, match=r"shape \(3, 2\).*expected .*\(3, 5\).* fit again"):
        encoder.transform(TEXTS)


def test_an_asynchronous_model_is_refused_by_its_name():
    async def remote(texts):
        return np.zeros((len(texts), 2))

    with pytest.raises(TypeError, match=r"remote.* is asynchronous; .*asyncio\.run"):
        TextEncoder(remote).fit(["a"])
