"""Any model as a transformer of texts: asked once for each text, and checked."""

import pickle
import re

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.feature_extraction.text import CountVectorizer
from sklearn.utils.validation import check_is_fitted

from skcalib import BertEncoder, TextEncoder
from skcalib._encoder.text_encoder import as_encoder
from skcalib.datasets import minilm_path

TEXTS = ["a tin star", "nine notes", "as it is", "a tin star"]


def letters(texts):
    return np.array([[text.count(c) for c in "aeint"] for text in texts])


class Model:
    """Stands for a model of another library; remembers what it was asked."""

    def __init__(self, dtype=np.float32):
        self.asked, self.dtype = [], dtype

    def encode(self, texts):
        self.asked += texts
        return letters(texts).astype(self.dtype)


@pytest.mark.parametrize("model", [letters, Model()], ids=["function", "object"])
def test_gives_what_the_model_gives(model):
    np.testing.assert_array_equal(TextEncoder(model).fit_transform(TEXTS), letters(TEXTS))
    np.testing.assert_array_equal(
        TextEncoder(model, batch_size=1).fit(TEXTS).transform(TEXTS[::-1]), letters(TEXTS[::-1])
    )


@pytest.mark.parametrize(
    ("given", "expected"), [("f2", "f4"), ("f4", "f4"), ("f8", "f8"), ("i1", "f4"), ("?", "f4")]
)
def test_dtype(given, expected):
    assert TextEncoder(Model(given)).fit_transform(TEXTS).dtype == expected


def test_each_text_is_asked_for_once_also_by_clones():
    model = Model()
    encoder = TextEncoder(model, batch_size=2).fit(TEXTS)
    encoder.transform(TEXTS)
    twin = clone(encoder)
    assert twin.model is model
    twin.fit_transform([*TEXTS, "a new one"])
    assert model.asked == [*TEXTS[:3], "a new one"]


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
    np.testing.assert_array_equal(encoder.fit_transform(TEXTS), letters(TEXTS))
    assert asked == [*TEXTS[:2], "failed", TEXTS[2]]


def test_another_model_is_asked_anew():
    encoder = TextEncoder(letters).fit(TEXTS)
    encoder.set_params(model=lambda texts: -letters(texts))
    np.testing.assert_array_equal(encoder.transform(TEXTS), -letters(TEXTS))


def test_what_exceeds_the_memory_is_asked_for_again(monkeypatch):
    monkeypatch.setattr("skcalib._encoder.text_encoder.KEPT_BYTES", 1)
    model = Model()
    encoder = TextEncoder(model, batch_size=2)
    for _ in range(2):
        np.testing.assert_array_equal(encoder.fit_transform(TEXTS), letters(TEXTS))
    assert model.asked == 2 * TEXTS[:3]


def test_pickle_holds_the_model_and_no_texts():
    encoder = TextEncoder(letters).fit(["a tin star"])
    pickled = pickle.dumps(encoder)
    assert b"tin star" not in pickled
    np.testing.assert_array_equal(pickle.loads(pickled).transform(TEXTS), letters(TEXTS))


def test_a_store_keeps_vectors_for_other_processes(tmp_path):
    expected = TextEncoder(letters, memory=tmp_path, name="letters").fit_transform(TEXTS)
    np.testing.assert_array_equal(expected, letters(TEXTS))
    model = Model()
    encoder = TextEncoder(model, memory=tmp_path, name="letters")
    np.testing.assert_array_equal(encoder.fit_transform([*TEXTS, "new"])[:4], expected)
    assert model.asked == [TEXTS[0], "new"]  # the first tells the width
    other = TextEncoder(lambda texts: -letters(texts), memory=tmp_path, name="negated")
    np.testing.assert_array_equal(other.fit_transform(TEXTS), -expected)
    with pytest.raises(ValueError, match="got memory and no name"):
        TextEncoder(letters, memory=tmp_path).fit(TEXTS)


def test_is_the_sentence_transformer_as_shipped():
    package = pytest.importorskip("sentence_transformers")
    model = package.SentenceTransformer(str(minilm_path()), device="cpu")
    vectors = TextEncoder(model).fit_transform(TEXTS)
    np.testing.assert_allclose(vectors, model.encode(TEXTS), atol=1e-6)
    assert TextEncoder(model).fit(TEXTS).get_feature_names_out()[0] == "textencoder0"


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        (lambda texts: np.zeros((1, 3)), "shape (1, 3) for 3 texts; it is to give one row"),
        (lambda texts: np.zeros(3), "shape (3,) for 3 texts"),
        (lambda texts: [[1.0, 2.0], [3.0], [4.0]], "shape (3,) for 3 texts"),
        (lambda texts: CountVectorizer().fit_transform(texts), "shape () for 3 texts"),
        (lambda texts: np.array([["x"]] * 3), "dtype <U1; it is to give numbers"),
        (
            lambda texts: np.array([[0.0], [np.nan], [0.0]]),
            "not finite for the text 'nine notes'",
        ),
    ],
)
def test_refuses_what_is_no_array_of_vectors(answer, message):
    encoder = TextEncoder(answer)
    with pytest.raises(ValueError, match=re.escape(message)):
        encoder.fit_transform(TEXTS)
    with pytest.raises(ValueError, match="not fitted"):
        check_is_fitted(encoder)


def test_refuses_another_width():
    encoder = TextEncoder(letters).fit(TEXTS)
    encoder.set_params(model=lambda texts: letters(texts)[:, :2])
    with pytest.raises(ValueError, match="gives 2 features, but gave 5"):
        encoder.transform(TEXTS)


def test_any_encoder():
    assert isinstance(as_encoder("folder", "calibrate"), BertEncoder)
    assert isinstance(as_encoder(letters, "calibrate"), TextEncoder)
    transformer = CountVectorizer()
    assert as_encoder(transformer, "calibrate") is transformer
    with pytest.raises(TypeError, match="calibrate got a int; it takes the folder"):
        as_encoder(3, "calibrate")
