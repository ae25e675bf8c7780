"""Vectors used last stay in memory, with a store and without."""

import pickle
import shutil

import numpy as np
import pytest
from counting import Counting
from sklearn.base import clone
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from skcalib import BertEncoder, TextEncoder, clear_caches


@pytest.fixture(autouse=True)
def recent(recent):
    """Keep vectors, as outside the tests."""
    recent.bound = 2**20
    return recent


def thousands(texts):
    """Vectors of a thousand numbers, 4 kB."""
    return np.array([[sum(map(ord, text))] * 1000 for text in texts], dtype=np.float32)


@pytest.mark.parametrize("memory", [None, "vectors"])
@pytest.mark.parametrize(
    "changed",
    [
        {"layers": 0},
        {"layers": (0, 1)},
        {"layers": (0, 1), "layer_merge": "concat"},
        {"pooling": "cls"},
        {"pooling": "mean_own"},
        {"max_length": 5},
        {"dtype": "bfloat16"},
        {"model": "other"},
    ],
)
@pytest.mark.filterwarnings("ignore:.*cut off")
def test_what_decides_on_a_vector_tells_encoders_apart(
    tiny_bert, other_bert, tmp_path, monkeypatch, recent, changed, memory
):
    monkeypatch.chdir(tmp_path)
    texts = ["the dog sleeps on a small red bridge", "a cat"]
    first = BertEncoder(tiny_bert, memory=memory)
    second = BertEncoder(tiny_bert, memory=memory)
    second.set_params(**({"model": other_bert} if "model" in changed else changed))
    vectors = first.fit_transform(texts), second.fit_transform(texts)
    assert not np.array_equal(*vectors)
    recent.bound = 0
    recent.clear()
    np.testing.assert_allclose(
        vectors[1], second.set_params(memory=None).fit_transform(texts), atol=1e-6
    )


class Whole:
    """A model that can be pickled."""

    def encode(self, texts):
        return thousands(texts)


def test_known_and_new_texts_mix():
    model = Counting(thousands)
    texts = ["the dog", "a cat", "the river", "a song"]
    encoder = TextEncoder(model)
    alone = np.vstack([encoder.fit_transform([text]) for text in texts[1:3]])
    X = encoder.transform([*texts, texts[0]])
    assert model.asked == ["a cat", "the river", "the dog", "a song"]
    np.testing.assert_array_equal(X[1:3], alone)
    np.testing.assert_array_equal(X[4], X[0])
    X[:] = 0  # what is kept is safe from its reader
    np.testing.assert_array_equal(encoder.transform(texts[1:3]), alone)


@pytest.mark.parametrize("memory", [None, "vectors"])
def test_warnings_come_with_vectors_from_anywhere(
    tiny_bert, recent, memory, tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    encoder = BertEncoder(tiny_bert, max_length=4, memory=memory).fit(["dog"])
    cut = ["the dog sleeps on it", "dog", "the dog sleeps on it"]
    for i in range(3):  # in another order, since the same texts are told of once
        with pytest.warns(UserWarning, match="2 of 3 texts were cut off .*'windows' to encode"):
            encoder.transform(cut[i:] + cut[:i])
        with pytest.warns(UserWarning, match="50% of the tokens are unknown"):
            encoder.transform(["the oak"] * (i + 1))
        recent.bound = 0  # from the store, if any


def test_what_was_used_longest_ago_makes_room_whoever_asked(recent):
    """One bound for all encoders, and one order: that of the last use."""
    recent.bound = 3 * 5000  # three texts
    models = Counting(thousands), Counting(thousands)
    first, second = (TextEncoder(model) for model in models)
    for encoder, texts in ((first, "ab"), (second, "c"), (first, "a"), (second, "d")):
        for text in texts:
            encoder.fit_transform([text])
    first.fit_transform(["a", "b"])  # b went
    assert models[0].asked == ["a", "b", "b"]
    second.fit_transform(["d", "c"])  # c, in turn
    assert models[1].asked == ["c", "d", "c"]


def test_what_exceeds_the_bound_is_asked_for_again(recent):
    recent.bound = 1000
    model = Counting(thousands)
    encoder = TextEncoder(model, batch_size=2)
    vectors = [encoder.fit_transform(["a", "b", "c"]) for _ in range(2)]
    np.testing.assert_array_equal(*vectors)
    assert model.asked == 2 * ["a", "a", "b", "c"]  # for the fit, too


def test_encoders_that_merge_otherwise_share_vectors(tiny_bert, inputs):
    texts = ["the dog sleeps", "a cat"]
    first = BertEncoder(tiny_bert, layers="last2")
    merged = first.fit_transform(texts)
    shapes = inputs("Bert")
    concatenated = first.set_params(layer_merge="concat").fit_transform(texts)
    np.testing.assert_array_equal(concatenated.reshape(2, 2, -1).mean(axis=1), merged)
    cut = first.set_params(truncate_dim=5).fit_transform(texts)
    expected = concatenated.reshape(2, 2, -1)[:, :, :5].reshape(2, -1)
    np.testing.assert_array_equal(cut, expected)
    assert shapes == []
    first.set_params(pooling="max").fit_transform(texts)
    assert shapes  # one more pass


def test_clear_caches_drops_vectors_and_models(tiny_bert, loads):
    model = Counting(thousands)
    encoders = BertEncoder(tiny_bert).fit(["dog"]), TextEncoder(model).fit(["dog"])
    vectors = [encoder.transform(["dog"]) for encoder in encoders]
    assert model.asked == ["dog"]
    assert len(loads) == 1
    clear_caches()
    for encoder, before in zip(encoders, vectors, strict=True):
        np.testing.assert_array_equal(encoder.transform(["dog"]), before)
    assert model.asked == ["dog", "dog"]
    assert len(loads) == 2


@pytest.mark.parametrize("kind", ["BertEncoder", "TextEncoder"])
def test_a_pickle_of_a_fitted_encoder_leaves_its_memory_behind(kind, tiny_bert, tmp_path):
    folder = tmp_path / "vectors"
    if kind == "BertEncoder":
        encoder = BertEncoder(tiny_bert, memory=folder)
    else:
        encoder = TextEncoder(Whole(), memory=folder, name="whole")
    sent = pickle.loads(pickle.dumps(encoder))  # to a worker of a search
    assert sent.memory == folder
    pipeline = make_pipeline(encoder, StandardScaler()).fit(["the dog", "a cat"])
    expected = pipeline.transform(["a song"])
    shutil.rmtree(folder)
    clear_caches()
    loaded = pickle.loads(pickle.dumps(pipeline))
    np.testing.assert_allclose(loaded.transform(["a song"]), expected, atol=1e-6)
    assert loaded[0].memory is None
    assert not folder.exists()
    assert clone(encoder).memory == folder
    loaded[0].set_params(memory=folder).transform(["a song"])  # asked for
    assert folder.exists()
