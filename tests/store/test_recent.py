"""Without a store, the vectors used last stay in memory: a search runs the model once."""

import numpy as np
import pytest
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline

import skcalib._encoder.recent as recent_module
from skcalib import BertEncoder, BiEncoder, Whitening
from skcalib._encoder.recent import Recent


@pytest.fixture(autouse=True)
def recent(recent):
    """Keep vectors, as outside the tests."""
    recent.bound = 2**20
    return recent


@pytest.fixture
def encoded(monkeypatch):
    """Texts that went through a model, in order."""
    from skcalib._encoder import batches

    seen, original = [], batches.encode

    def counted(backbone, texts, **options):
        seen.extend(texts)
        return original(backbone, texts, **options)

    monkeypatch.setattr(batches, "encode", counted)
    return seen


def test_a_search_encodes_each_text_once_for_each_hidden_state(tiny_bert, words, encoded):
    rng = np.random.default_rng(0)
    pairs = [[" ".join(rng.choice(words, 4)) for _ in range(2)] for _ in range(30)]
    model = BiEncoder(make_pipeline(BertEncoder(tiny_bert), Whitening(noise="auto")))
    grid = {
        "encoder__bertencoder__layers": [0, 1, 2],
        "encoder__whitening__n_components": [2, 4, 8],
    }
    GridSearchCV(model, grid, cv=3).fit(pairs, rng.random(30))
    distinct = {text for pair in pairs for text in pair}
    assert len(encoded) == 3 * len(distinct)


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
    ],
)
@pytest.mark.filterwarnings("ignore:.*cut off")
def test_what_decides_on_a_vector_tells_encoders_apart(tiny_bert, changed, recent):
    texts = ["the dog sleeps on a small red bridge", "a cat"]
    BertEncoder(tiny_bert).fit_transform(texts)
    got = BertEncoder(tiny_bert, **changed).fit_transform(texts)
    recent.clear()
    np.testing.assert_array_equal(got, BertEncoder(tiny_bert, **changed).fit_transform(texts))


def test_another_model_has_vectors_of_its_own(tiny_bert, other_bert):
    first = BertEncoder(tiny_bert).fit_transform(["the dog"])
    other = BertEncoder(other_bert).fit_transform(["the dog"])
    assert not np.array_equal(first, other)


def test_known_and_new_texts_mix(tiny_bert, encoded):
    texts = ["the dog", "a cat", "the river", "a song"]
    encoder = BertEncoder(tiny_bert)
    alone = np.vstack([encoder.fit_transform([text]) for text in texts[1:3]])
    del encoded[:]
    X = encoder.transform([*texts, texts[0]])
    assert encoded == [texts[0], texts[3]]
    np.testing.assert_array_equal(X[1:3], alone)
    np.testing.assert_array_equal(X[4], X[0])


def test_a_text_cut_off_is_told_of_every_time(tiny_bert):
    encoder = BertEncoder(tiny_bert, max_length=4).fit(["dog"])
    for _ in range(2):
        with pytest.warns(UserWarning, match="2 of 3 texts were cut off"):
            encoder.transform(["the dog sleeps on a bridge", "dog"] + ["the cat sleeps on it"])


def test_what_was_used_longest_ago_makes_room():
    vectors, cut = np.arange(3, dtype=np.float32)[:, None], np.array([False, True, False])
    recent = Recent(bound=5 * (ENTRY + 1 + 4))
    out, truncated = np.full((3, 1), -1, np.float32), np.zeros(3, dtype=bool)
    recent.write("first", ["a", "b"], vectors[:2], cut[:2])
    recent.write("second", ["a", "b"], vectors[1:], cut[1:])
    assert recent.read("first", ["a"], out[:1], truncated[:1]).tolist() == []
    recent.write("third", ["c", "d"], vectors[:2], cut[:2])  # the second goes
    assert recent.read("first", ["a", "c", "b"], out, truncated).tolist() == [1]
    assert (out[:, 0].tolist(), truncated.tolist()) == ([0, -1, 1], [False, False, True])
    assert recent.read("second", ["a", "b"], out, truncated).tolist() == [0, 1]
    assert recent.read("third", ["c"], out, truncated).tolist() == []


def test_a_table_beyond_the_bound_begins_anew():
    recent = Recent(bound=3 * (ENTRY + 1 + 4) + 4)
    vectors, out = np.arange(4, dtype=np.float32)[:, None], np.empty((4, 1), np.float32)
    truncated = np.zeros(4, dtype=bool)
    recent.write("model", ["a", "b", "c"], vectors[:3], truncated[:3])
    assert recent.read("model", ["a", "b", "c"], out[:3], truncated[:3]).tolist() == []
    recent.write("model", ["d"], vectors[3:], truncated[3:])
    assert recent.read("model", ["a", "d"], out[:2], truncated[:2]).tolist() == [0, 1]
    recent.write("model", ["d"], vectors[3:], truncated[3:])
    assert recent.read("model", ["a", "d"], out[:2], truncated[:2]).tolist() == [0]
    assert out[1] == 3


def test_kept_vectors_are_safe_from_their_reader(tiny_bert):
    encoder = BertEncoder(tiny_bert)
    first = encoder.fit_transform(["dog"])
    kept = first.copy()
    first[:] = 0
    np.testing.assert_array_equal(encoder.transform(["dog"]), kept)


@pytest.mark.parametrize("name", ["read", "write", "clear"])
def test_an_interrupt_at_any_line_leaves_no_wrong_vector(interrupt, name):
    """And no lock."""
    texts, cut = ["a", "b", "c"], np.array([False, True, False])
    vectors = np.arange(3, dtype=np.float32)[:, None]
    out, truncated = np.empty((3, 1), np.float32), np.empty(3, bool)
    other = [text + "!" for text in texts]

    def interrupted_at(n):
        recent = Recent(bound=5 * (ENTRY + 2 + 4))
        recent.write("another", other, vectors, cut)  # goes when all texts of the model come
        recent.write("model", texts[:2], vectors[:2], cut[:2])
        arguments = {
            "read": ("model", texts, out, truncated),
            "write": ("model", texts[1:], vectors[1:], cut[1:]),
        }.get(name, ())
        broken = interrupt(recent_module, n, lambda: getattr(recent, name)(*arguments))
        return recent if broken else None

    n = 0
    while (recent := interrupted_at(n := n + 1)) is not None:
        recent.write("model", texts[2:], vectors[2:], cut[2:])
        missing = recent.read("model", texts, out, truncated)
        known = np.setdiff1d(np.arange(3), missing)
        assert 2 in known
        np.testing.assert_array_equal(out[known], vectors[known])
        np.testing.assert_array_equal(truncated[known], cut[known])
    assert n > 3
