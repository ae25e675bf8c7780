"""Long texts whole: windows of the plain model, joined by the pooling."""

from pathlib import Path

import numpy as np
import pytest
import torch
import transformers
from numpy.testing import assert_allclose, assert_array_equal
from plain import states_of

from skcalib import BertEncoder, VectorStore
from skcalib.export import save_onnx, save_sentence_transformer

SMALL = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2}
SMALL |= {"intermediate_size": 32, "initializer_range": 0.3}
T5 = {"d_model": 16, "d_kv": 8, "d_ff": 32, "num_layers": 2, "num_heads": 2}
FAMILIES = {  # as e5, and a decoder
    "XLMRoberta": SMALL | {"max_position_embeddings": 42},
    "Llama": SMALL | {"max_position_embeddings": 40},
    "T5": T5,
}
# How windows join: from hidden states and ids of each to one vector.
JOINS = {
    "mean": lambda states, ids: np.concatenate(states).mean(axis=0),
    "max": lambda states, ids: np.concatenate(states).max(axis=0),
    "cls": lambda states, ids: np.mean([h[0] for h in states], axis=0),
    "last": lambda states, ids: states[-1][-1],
    "weighted_mean": lambda states, ids: np.average(
        np.concatenate(states),
        axis=0,
        weights=np.concatenate([np.arange(1, len(h) + 1) for h in states]),
    ),
    "mean_without_first": lambda states, ids: np.concatenate([h[1:] for h in states]).mean(
        axis=0
    ),
    # The vocabulary of the tiny models: 5 special tokens, 4 characters, then words from rank 1.
    "zipf": lambda states, ids: np.average(
        np.concatenate(states), axis=0, weights=np.log1p(np.maximum(np.concatenate(ids) - 8, 0))
    ),
}


def plain_windows(folder, text, length, prompt="", n_prompt=0):
    """Hidden states and ids of each window of a text, by plain transformers."""
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    ids = tokenizer(prompt + text)["input_ids"]
    n_before = len(tokenizer("")["input_ids"]) - 1  # each of these ends with one mark
    before, body, behind = np.split(np.array(ids), [n_before + n_prompt, len(ids) - 1])
    room, windows = length - len(before) - 1, []
    for start in range(0, len(body), room):
        windows.append([*before, *body[start : start + room], *behind])
        if start + room >= len(body):
            break
    return [states_of(folder, window) for window in windows], windows


@pytest.fixture
def long_text(words):
    return " ".join(np.random.default_rng(0).choice(words, 150))


@pytest.fixture
def windowed(tiny_bert):
    """Return a function that fits an encoder of windows of 12 tokens."""

    def fit(**params):
        params = {"max_length": 12, "overflow": "windows"} | params
        return BertEncoder(tiny_bert, **params).fit(["dog"])

    return fit


@pytest.mark.parametrize("pooling", JOINS)
def test_poolings_join_the_windows_of_the_plain_model(
    pooling, windowed, long_text, tiny_bert_copy
):
    encoder = windowed(pooling=pooling)
    found = encoder.transform(["dog", long_text])
    expected = JOINS[pooling](*plain_windows(tiny_bert_copy(), long_text, 12))
    # Entries divided by a square root reach 35, of which float32 keeps 2e-6.
    assert_allclose(found[1], expected, rtol=1e-6, atol=1e-5)


@pytest.mark.parametrize("prompt", ["", "the dog "])
@pytest.mark.parametrize("family", FAMILIES)
def test_families_and_prompts(family, prompt, save_family, long_text):
    folder = save_family(family, **FAMILIES[family])
    n_prompt = len(prompt.split())
    windows = plain_windows(Path(folder), long_text, 20, prompt=prompt, n_prompt=n_prompt)
    options = {"max_length": 20, "prompt": prompt}
    for pooling in ("mean", "last"):
        encoder = BertEncoder(folder, pooling=pooling, overflow="windows", **options)
        vectors = encoder.fit_transform(["dog", long_text, "a cat"])
        expected = JOINS[pooling](*windows)
        assert_allclose(vectors[1], expected, atol=1e-5 * np.abs(expected).max())
        short = encoder.set_params(overflow="cut").fit_transform(["dog", "a cat"])
        assert_array_equal(vectors[::2], short)


def test_tokenizers_in_python(tmp_path):
    tokenizer = transformers.ByT5Tokenizer()
    assert not tokenizer.is_fast
    tokenizer.save_pretrained(tmp_path)
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model = transformers.T5EncoderModel(transformers.T5Config(vocab_size=384, **T5))
    model.save_pretrained(tmp_path)
    text = "a slow tokenizer, bytes: äöü"
    encoder = BertEncoder(tmp_path, max_length=10, overflow="windows", prompt="q: ")
    windows = plain_windows(tmp_path, text, 10, prompt="q: ", n_prompt=3)
    assert_allclose(encoder.fit_transform([text])[0], JOINS["mean"](*windows), atol=1e-5)


@pytest.mark.parametrize(("n", "n_windows"), [(9, 1), (10, 1), (11, 2), (20, 2), (21, 3)])
def test_a_text_of_a_windows_length_and_one_more(n, n_windows, windowed, tiny_bert_copy):
    text = " ".join((["dog", "cat", "river"] * 10)[:n])
    windows = plain_windows(tiny_bert_copy(), text, 12)
    assert len(windows[0]) == n_windows
    assert_allclose(windowed().transform([text])[0], JOINS["mean"](*windows), atol=1e-5)


@pytest.mark.filterwarnings("ignore:.*unknown to this model")
@pytest.mark.parametrize("pooling", ["mean_own", "max_own", "zipf"])
def test_windows_without_words_of_their_own_do_not_count(pooling, windowed):
    encoder = windowed(pooling=pooling)
    only = encoder.transform([" ".join(["dog"] * 10)])
    behind = encoder.transform([" ".join(["[SEP]"] * 30 + ["dog"] * 10)])
    assert_allclose(behind, only, atol=1e-6)


def test_windows_of_many_texts_are_those_of_each_alone(tmp_path, words, windowed):
    """More than a million characters, which are tokenized in parts, and many batches."""
    rng = np.random.default_rng(1)
    texts = [" ".join(rng.choice(words, n)) for n in rng.integers(1, 800, 700)]
    assert sum(map(len, texts)) > 2**20
    alone = np.vstack([windowed().transform([text]) for text in texts[::20]])
    for memory in (None, tmp_path):
        assert_allclose(windowed(memory=memory).transform(texts)[::20], alone, atol=1e-5)


@pytest.mark.filterwarnings("ignore:.*were cut off")
def test_memory_keeps_the_vector_of_the_text(windowed, long_text, tmp_path, monkeypatch):
    store = VectorStore(tmp_path)
    others = ({}, {"max_length": 10}, {"prompt": "the "}, {"overflow": "cut"})
    vectors = [windowed(memory=store, **params).transform([long_text]) for params in others]
    assert len(store) == 4  # not one per window
    assert len(np.unique(np.vstack(vectors), axis=0)) == 4
    # Other poolings and all layers of the text were kept from the same pass.
    monkeypatch.setattr(transformers.BertModel, "forward", None)
    assert_array_equal(windowed(memory=store).transform([long_text]), vectors[0])
    other = windowed(memory=store, pooling="max", layers=1).transform([long_text])
    monkeypatch.undo()
    alone = windowed(pooling="max", layers=1).transform([long_text])
    assert_allclose(other, alone, atol=1e-6)


@pytest.mark.parametrize(
    ("params", "message"),
    [
        ({"prompt": "the dog sleeps " * 5}, "has 17 tokens, .* no room for a text"),
        ({"prompt": "the " * 10, "overflow": "cut"}, "has 12 .* max_length=12 leaves no room"),
        ({"overflow": "split"}, "'overflow' parameter"),
        ({"overflow": 10}, "'overflow' parameter"),
    ],
)
def test_bad_parameters_are_named(windowed, params, message):
    with pytest.raises(ValueError, match=message):
        windowed(**params)


def test_exports_refuse_windows_that_they_cannot_hold(windowed, texts, tmp_path):
    with pytest.raises(ValueError, match=r"no module for windows .* Set overflow='cut'"):
        save_sentence_transformer(windowed(), tmp_path / "model")
    for pooling in ("max", "zipf"):
        with pytest.raises(ValueError, match=f"pooling='{pooling}'. Set .*'mean'"):
            save_onnx(windowed(pooling=pooling), tmp_path / "model.onnx")


@pytest.fixture
def byte_level():
    """A tokenizer of bytes, in which a space belongs to the word behind it."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

    inner = Tokenizer(models.BPE())
    inner.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    inner.decoder = decoders.ByteLevel()
    words = "query: dog cat house river unhappy happy un street garden"
    trainer = trainers.BpeTrainer(vocab_size=400, special_tokens=["<pad>", "</s>"])
    inner.train_from_iterator([words] * 20, trainer)
    return transformers.PreTrainedTokenizerFast(
        tokenizer_object=inner, pad_token="<pad>", eos_token="</s>"
    )


@pytest.mark.parametrize("prompt", ["query: ", "un", ""])
def test_windows_have_the_whole_prompt_and_all_of_the_text(byte_level, split, prompt):
    text = "happy dog cat house river street garden " * 5
    found = split(byte_level, [text], 16, prompt=prompt, windows=True).ids
    alone = byte_level(prompt.rstrip())["input_ids"]  # its last space is the next word's
    first, *later = found
    assert all(window[: len(alone)] == alone for window in later)
    parts = [first, *(window[len(alone) :] for window in later)]
    read = [token for part in parts for token in part]
    assert read == byte_level(prompt + text)["input_ids"]
