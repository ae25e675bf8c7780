"""Any text has a vector: finite, its own, and the same wherever it stands."""

import os
import unicodedata
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal
from transformers import AutoTokenizer

from skcalib import BertEncoder
from skcalib.encoders.recipe import POOLINGS

# The tiny BERT knows fifty words, and reads forty tokens.
pytestmark = pytest.mark.filterwarnings(
    "ignore:.*unknown to this model", "ignore:.*were cut off"
)

# What breaks naive code: halves of surrogate pairs, invisible characters, overrides of the
# direction, NUL, noncharacters, combining marks, emoji of several code points, word separators.
HOSTILE = (
    *"\ud800\udfff\u200b\u200d\ufeff\u2060\u202e\u2066\x00\x07\ufffe\U0010ffff\u0301\u0e33\u1160",
    *"\u2028\x85\xa0\u3000İßﬃ \n",
    *("\x1b[31m", "🏳️‍🌈", "👨‍👩‍👧‍👦", "🇩🇪", "[CLS]", "[SEP]", "[MASK]", "[PAD]", "</s>", "##s"),
    *("%s", "中文", "ไทย", "العربية", "हिन्दी", "dog"),
)
texts_of_any_kind = st.one_of(
    st.text(st.characters(exclude_categories=()), max_size=40),  # surrogates, too
    st.lists(st.sampled_from(HOSTILE), max_size=12).map("".join),
    st.tuples(st.sampled_from(HOSTILE), st.integers(1, 300)).map(lambda t: t[0] * t[1]),
)


@pytest.fixture(scope="module")
def encoders(tiny_bert, minilm):
    """Fitted encoders of two tokenizers, the tiny one and MiniLM's."""
    return [
        BertEncoder(tiny_bert, pooling="zipf").fit(["dog"]),
        BertEncoder(minilm, layers=0).fit(["dog"]),
    ]


@settings(max_examples=40)
@given(st.lists(texts_of_any_kind, min_size=1, max_size=8))
@example(["", " ", "\t\n", "\u200b", "\x00", "\ud800"])
@example(["a" + "\u0301" * 5000])
def test_any_text_has_a_finite_vector_of_its_own(encoders, texts):
    for encoder in encoders:
        vectors = encoder.transform(texts)
        assert np.isfinite(vectors).all()
        backwards = encoder.transform(texts[::-1])[::-1]
        assert_allclose(vectors, backwards, rtol=1e-4, atol=1e-5)


@settings(max_examples=15)
@given(st.lists(texts_of_any_kind, min_size=1, max_size=8))
def test_any_text_is_read_back(tiny_bert, tmp_path, texts):
    encoder = BertEncoder(tiny_bert, memory=tmp_path).fit(texts)
    assert_array_equal(encoder.transform(texts), encoder.transform(texts))


@pytest.mark.parametrize(
    "text",
    [
        "dog cat " * 13_000,  # some 6,000 characters are read at first
        "x" * 100_000 + " dog",
        " " * 100_000 + "dog",
        "中" * 35_000,
        "a" + "\u0301" * 50_000,
        "dog\n" * 10 + "y" * 99 + "z" * 100_000,
        ("cat " * 30 + "w" * 700) * 120,
    ],
    ids=["words", "x", "spaces", "chinese", "marks", "late", "mixed"],
)
def test_head_of_a_long_text_gives_the_tokens_of_the_whole(minilm, text, split):
    tokenizer = AutoTokenizer.from_pretrained(minilm)
    whole = tokenizer([text], truncation=False, verbose=False)["input_ids"][0]
    kept = tokenizer([text], truncation=True, max_length=256)["input_ids"]
    ids, _, truncated, _ = split(tokenizer, ["dog", text], 256)
    assert ids[1:] == kept
    assert truncated.tolist() == [False, len(whole) > 256]


def test_a_tokenizer_that_returns_nothing_gives_finite_vectors(tiny_bert_copy, edit_json):
    folder = tiny_bert_copy()
    edit_json(folder / "tokenizer.json", post_processor=None)  # adds no [CLS], no [SEP]
    texts = ["", " ", "\u200b", "dog"]
    for pooling in POOLINGS:
        vectors = BertEncoder(folder, pooling=pooling).fit_transform(texts)
        assert np.isfinite(vectors).all()
        assert_array_equal(vectors[0], vectors[1])
        assert not np.allclose(vectors[0], vectors[3])


@pytest.mark.parametrize("value", [None, "true"])
@pytest.mark.usefixtures("loads")
def test_tokenizers_get_no_threads_unless_the_user_wants_them(tiny_bert, monkeypatch, value):
    monkeypatch.setenv("TOKENIZERS_PARALLELISM", value or "")  # is undone afterwards
    if value is None:
        monkeypatch.delenv("TOKENIZERS_PARALLELISM")
    BertEncoder(tiny_bert).fit(["dog"])
    assert os.environ["TOKENIZERS_PARALLELISM"] == (value or "false")


def test_threads_do_not_see_each_others_truncation(tiny_bert):
    encoders = [BertEncoder(tiny_bert, max_length=n).fit(["dog"]) for n in (4, 9, 17, 40)]
    texts = [f"{'dog cat ' * n}{n}" for n in range(1, 60)]
    expected = [encoder.transform(texts) for encoder in encoders]
    with ThreadPoolExecutor(8) as pool:
        jobs = [pool.submit(encoder.transform, texts) for encoder in encoders * 8]
        for job, vectors in zip(jobs, expected * 8, strict=True):
            assert_array_equal(job.result(timeout=600), vectors)


@pytest.mark.filterwarnings("default")
@pytest.mark.parametrize("memory", [False, True])
def test_unknown_tokens_are_told_of_with_their_share(tiny_bert, tmp_path, memory):
    encoder = BertEncoder(tiny_bert, memory=tmp_path if memory else None).fit(["dog"])
    for texts in (["the dog", "天 气 好"], ["天 气 好", "the dog"]):
        with pytest.warns(UserWarning, match="60% of the tokens are unknown"):
            encoder.transform(texts)
    # One of fourteen is not worth a word.
    encoder.transform(["the dog sleeps on a small red bridge with a cat", "the zebra"])


@pytest.mark.parametrize("pooling", ["cls", "last"])
def test_a_special_token_of_layer_0_is_no_vector_of_a_text(tiny_bert, pooling):
    encoder = BertEncoder(tiny_bert, pooling=pooling, layers=0)
    match = f"'{pooling}' with layers=0 uses .*all texts get the same vector"
    with pytest.warns(UserWarning, match=match):
        X = encoder.fit_transform(["the dog", "a cat"])
    assert_array_equal(X[0], X[1])
    encoder.set_params(layers=(0, 1)).fit(["dog"])  # without a word


def test_a_token_that_the_model_does_not_embed_is_refused_in_a_text(tiny_bert_copy):
    folder = tiny_bert_copy()
    tokenizer = AutoTokenizer.from_pretrained(folder)
    tokenizer.add_tokens(["zebra"])
    tokenizer.add_special_tokens({"additional_special_tokens": ["<mark>"]})
    tokenizer.save_pretrained(folder)
    encoder = BertEncoder(folder, pooling="zipf").fit(["the zebra"])
    texts = ["the dog", "a small cat"]
    expected = BertEncoder(tiny_bert_copy(), pooling="zipf").fit_transform(texts)
    assert_array_equal(encoder.transform(texts), expected)
    message = "text 'the zebra' has the token 'zebra', which the model"
    with pytest.raises(ValueError, match=message):
        encoder.transform(["the dog", "the zebra"])


@pytest.mark.parametrize("prompt", ["", "dog {text} cat", "dog {text} cat {text}"])
def test_canonically_equal_texts_have_one_vector(tiny_sink_decoder, prompt):
    """As files of macOS are named; the tokenizer of bytes tells them apart."""
    composed = ["vol\u00e9 cat", "\uac00 dog", "\u212b"]
    encoder = BertEncoder(tiny_sink_decoder, prompt=prompt, pooling="mean").fit(composed)
    apart = [unicodedata.normalize("NFD", text) for text in composed]
    assert not {*apart} & {*composed}
    assert_array_equal(encoder.transform(apart), encoder.transform(composed))
