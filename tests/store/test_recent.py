"""Vectors used last stay in memory, with a store and without."""

import numpy as np
import pytest

import skcalib._encoder.vectors as vectors_module
from skcalib import BertEncoder
from skcalib._encoder.recent import Recent

VECTORS, COUNTS = np.arange(4, dtype=np.float32)[:, None], np.arange(16).reshape(4, 4)


@pytest.fixture(autouse=True)
def recent(recent):
    """Keep vectors, as outside the tests."""
    recent.bound = 2**20
    return recent


def read(recent, origin, texts):
    """Return numbers of vectors by text, of those that are known."""
    vectors, counts = np.empty((len(texts), 1), np.float32), np.empty((len(texts), 4), int)
    known = np.setdiff1d(np.arange(len(texts)), recent.read(origin, texts, vectors, counts))
    np.testing.assert_array_equal(counts[known], COUNTS[vectors[known, 0].astype(int)])
    return {texts[i]: int(vectors[i, 0]) for i in known}


def write(recent, origin, texts, rows):
    recent.write(origin, texts, VECTORS[rows], COUNTS[rows])


def size_of(texts):
    """Bytes that the memory counts for texts with a vector of one number."""
    recent = Recent()
    write(recent, "any", texts, [0] * len(texts))
    return recent._tables["any"].n_bytes


@pytest.mark.parametrize("memory", [None, "vectors"])
@pytest.mark.parametrize(
    "changed",
    [
        {"layers": 0},
        {"layers": (0, 1)},
        {"layers": (0, 1), "layer_merge": "concat"},
        {"pooling": "cls"},
        {"pooling": "mean_sqrt_len"},
        {"special_tokens": False},
        {"max_length": 5},
        {"dtype": "bfloat16"},
        {"model": "other"},
    ],
)
@pytest.mark.filterwarnings("ignore:.*cut off")
def test_what_decides_on_a_vector_tells_encoders_apart(
    tiny_bert, other_bert, tmp_path, monkeypatch, changed, memory
):
    monkeypatch.chdir(tmp_path)
    texts = ["the dog sleeps on a small red bridge", "a cat"]
    first = BertEncoder(tiny_bert, memory=memory)
    second = BertEncoder(tiny_bert, memory=memory)
    second.set_params(**({"model": other_bert} if "model" in changed else changed))
    vectors = first.fit_transform(texts), second.fit_transform(texts)
    assert not np.array_equal(*vectors)
    monkeypatch.setattr("skcalib._encoder.vectors.RECENT", Recent(0))
    np.testing.assert_allclose(
        vectors[1], second.set_params(memory=None).fit_transform(texts), atol=1e-6
    )


def test_known_and_new_texts_mix(tiny_bert, monkeypatch):
    encoded, original = [], vectors_module.encode
    monkeypatch.setattr(
        vectors_module,
        "encode",
        lambda backbone, texts, **options: (
            encoded.append(texts) or original(backbone, texts, **options)
        ),
    )
    texts = ["the dog", "a cat", "the river", "a song"]
    encoder = BertEncoder(tiny_bert)
    alone = np.vstack([encoder.fit_transform([text]) for text in texts[1:3]])
    X = encoder.transform([*texts, texts[0]])
    assert encoded == [["a cat"], ["the river"], ["the dog", "a song"]]
    np.testing.assert_array_equal(X[1:3], alone)
    np.testing.assert_array_equal(X[4], X[0])
    X[:] = 0  # what is kept is safe from its reader
    np.testing.assert_array_equal(encoder.transform(texts[1:3]), alone)


@pytest.mark.parametrize("memory", [None, "vectors"])
def test_warnings_come_every_time(tiny_bert, recent, memory, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    encoder = BertEncoder(tiny_bert, max_length=4, memory=memory).fit(["dog"])
    for _ in range(3):
        with pytest.warns(UserWarning, match="2 of 3 texts were cut off"):
            encoder.transform(["the dog sleeps on it", "dog", "the dog sleeps on it"])
        with pytest.warns(UserWarning, match="50% of the tokens are unknown"):
            encoder.transform(["the oak"])
        recent.bound = 0  # from the store, if any


def test_what_was_used_longest_ago_makes_room():
    recent = Recent(bound=2 * size_of(["a", "b"]) + size_of(["c"]))
    write(recent, "first", ["a", "b"], [0, 1])
    write(recent, "second", ["a", "b"], [1, 2])
    assert read(recent, "first", ["a"]) == {"a": 0}
    write(recent, "third", ["c", "d"], [2, 3])  # the second goes
    assert read(recent, "first", ["a", "c", "b"]) == {"a": 0, "b": 1}
    assert read(recent, "second", ["a", "b"]) == {}
    assert read(recent, "third", ["c"]) == {"c": 2}


def test_a_table_beyond_the_bound_begins_anew():
    recent = Recent(bound=size_of(["a", "b", "c"]) - 1)
    write(recent, "model", ["a", "b"], [0, 1])
    write(recent, "model", ["c"], [2])
    assert read(recent, "model", ["a", "b", "c"]) == {}
    write(recent, "model", ["c"], [2])
    write(recent, "model", ["d"], [3])
    assert read(recent, "model", ["a", "d", "c"]) == {"c": 2, "d": 3}


def test_the_bound_counts_bytes_not_characters():
    assert size_of(["天" * 1000]) - size_of(["天"]) == 2 * 999
