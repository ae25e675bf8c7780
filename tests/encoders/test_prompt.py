"""Prompts around texts: vectors are those of the plain model for the formatted strings."""

import json
import pickle
from functools import partial

import numpy as np
import pytest
import transformers
from numpy.testing import assert_allclose, assert_array_equal
from plain import states_of
from sklearn.base import clone

from skcalib import BertEncoder
from skcalib.export import save_onnx, save_sentence_transformer

TEMPLATE = "the old , {text} , is a red house !"
POOLINGS = {
    "last": lambda hidden: hidden[-1],
    "mean": lambda hidden: hidden.mean(axis=0),
    "max": lambda hidden: hidden.max(axis=0),
    "weighted_mean": lambda h: np.average(h, axis=0, weights=np.arange(1, len(h) + 1)),
}
LONG = "man woman child cat plane flute guitar horse river street rain snow night morning " * 5


@pytest.fixture(params=["tiny_bert", "tiny_sink_decoder"])
def folder(request):
    """Folder of an encoder with special tokens around texts, and of a decoder without any."""
    return request.getfixturevalue(request.param)


@pytest.fixture
def plain(folder):
    """Return a function from token ids to hidden states, and the tokenizer."""
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    return partial(states_of, folder), lambda text: tokenizer(text, verbose=False)["input_ids"]


@pytest.fixture
def around(plain):
    """Numbers of tokens of the template before and after a text, counted with a word in it."""
    _, ids_of = plain
    one, other = (ids_of(TEMPLATE.replace("{text}", word)) for word in ("dog", "cat"))
    same = np.equal(one, other)
    assert len(one) == len(other)
    return int(same.argmin()), int(same[::-1].argmin())


@pytest.mark.parametrize("pooling", POOLINGS)
def test_a_text_in_its_prompt_is_the_formatted_string(folder, plain, pooling, texts):
    states, ids_of = plain
    some = [*texts[:6], "", "a cat.", ",", "? !"]
    expected = [POOLINGS[pooling](states(ids_of(TEMPLATE.replace("{text}", t)))) for t in some]
    encoder = BertEncoder(folder, pooling=pooling, prompt=TEMPLATE)
    assert_allclose(encoder.fit_transform(some), expected, atol=1e-5)
    assert encoder.prompt_ == TEMPLATE
    assert clone(encoder).prompt == TEMPLATE
    again = pickle.loads(pickle.dumps(encoder))
    assert_allclose(again.transform(some[::-1]), expected[::-1], atol=1e-5)


@pytest.mark.filterwarnings("ignore:.*were cut off")
@pytest.mark.parametrize("template", ["the old {text}", TEMPLATE, "{text} is a red house"])
@pytest.mark.parametrize("side", ["left", "right"])
def test_the_text_is_cut_and_never_the_prompt(folder, plain, side, template):
    states, ids_of = plain
    one, other = (ids_of(template.replace("{text}", word)) for word in ("dog", "cat"))
    same = np.not_equal(one, other)
    n_before, n_after = int(same.argmax()), int(same[::-1].argmax())
    whole, length = ids_of(template.replace("{text}", LONG)), 36
    room = length - n_before - n_after
    body = whole[n_before : len(whole) - n_after]
    body = body[:room] if side == "right" else body[-room:]
    expected = states([*whole[:n_before], *body, *whole[len(whole) - n_after :]])
    options = {"max_length": length, "overflow": f"cut_{side}", "pooling": "mean"}
    encoder = BertEncoder(folder, prompt=template, **options)
    assert_allclose(encoder.fit_transform([LONG])[0], expected.mean(axis=0), atol=1e-5)


def test_the_prompt_is_around_every_window(folder, plain, around):
    states, ids_of = plain
    whole, length = ids_of(TEMPLATE.replace("{text}", LONG)), 36
    before, after = whole[: around[0]], whole[len(whole) - around[1] :]
    body, room = whole[around[0] : len(whole) - around[1]], length - sum(around)
    windows = []
    for start in range(0, len(body), room):
        windows.append(states([*before, *body[start : start + room], *after]))
        if start + room >= len(body):
            break
    assert len(windows) > 2
    options = {"max_length": length, "overflow": "windows"}
    for pooling, expected in (
        ("mean", np.concatenate(windows).mean(axis=0)),
        ("last", windows[-1][-1]),
    ):
        encoder = BertEncoder(folder, prompt=TEMPLATE, pooling=pooling, **options)
        assert_allclose(encoder.fit_transform([LONG])[0], expected, atol=1e-5)


def declare(folder, **settings):
    (folder / "1_Pooling").mkdir()
    content = json.dumps({"pooling_mode": "mean", "include_prompt": False})
    (folder / "1_Pooling" / "config.json").write_text(content)
    (folder / "config_sentence_transformers.json").write_text(json.dumps(settings))
    return folder


def test_declared_prompts_and_tokens_of_prompts_that_are_not_pooled(tiny_bert_copy, texts):
    folder = declare(
        tiny_bert_copy(),
        prompts={"word": "the dog {text} is red", "other": "the {text}"},
        default_prompt_name="word",
    )
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    for asked, before, after in ((None, 3, 3), ("other", 2, 0), ("a {text} cat, dog", 2, 4)):
        encoder = BertEncoder(folder, prompt=asked).fit(texts)
        names = {None: "the dog {text} is red", "other": "the {text}"}
        assert encoder.prompt_ == names.get(asked, asked)
        for text in texts[:4]:
            ids = tokenizer(encoder.prompt_.replace("{text}", text))["input_ids"]
            hidden = states_of(folder, ids)
            # Special tokens beyond the words of a prompt are left out with them.
            expected = hidden[before : len(hidden) - after].mean(axis=0)
            assert_allclose(encoder.transform([text])[0], expected, atol=1e-5)


def test_the_space_before_a_text_belongs_to_its_first_word(tiny_sink_decoder, tmp_path):
    from shutil import copytree

    folder = declare(copytree(tiny_sink_decoder, tmp_path / "sink"))
    encoder = BertEncoder(folder, prompt="a dog {text} is red", pooling="mean", layers=0)
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    ids = tokenizer("a dog cat is red")["input_ids"]
    [place] = [i for i, n in enumerate(ids) if tokenizer.decode([n]) == " cat"]
    expected = states_of(folder, ids, layer=0)[place]
    assert_allclose(encoder.fit_transform(["cat"])[0], expected, atol=1e-5)


@pytest.mark.filterwarnings("ignore:.*were cut off")
@pytest.mark.parametrize("overflow", ["cut", "windows"])
def test_memories_keep_prompts_apart(folder, tmp_path, overflow, recent):
    texts = ["dog cat", "cat", LONG, f"dog {LONG}"]
    # The first four give the same strings for some texts, and are cut at other places.
    prompts = ["", "dog ", "dog {text}", "{text} cat", TEMPLATE, "the {text} is red"]
    prompts += ["{text} {text}", "{text} cat {text}", "cat {text} {text}"]
    ways = ["cut_right", "cut_left"] if overflow == "cut" else [overflow]
    settings = [{"prompt": p, "max_length": 36, "overflow": w} for p in prompts for w in ways]
    alone = [BertEncoder(folder, pooling="mean", **s).fit_transform(texts) for s in settings]
    recent.bound = 2**24
    for memory in (None, tmp_path, tmp_path):
        for params, expected in zip(settings, alone, strict=True):
            encoder = BertEncoder(folder, pooling="mean", memory=memory, **params)
            assert_array_equal(encoder.fit_transform(texts), expected)
    assert_array_equal(alone[len(ways)], alone[2 * len(ways)])  # all before the text


def test_braces_are_no_template(tiny_sink_decoder, texts):
    plain = BertEncoder(tiny_sink_decoder, pooling="mean")
    for prompt in ('{"query": ', "{ ", "{a red", "{text "):
        vectors = clone(plain).set_params(prompt=prompt).fit_transform(texts[:3])
        before = plain.set_params(prompt="").fit_transform([prompt + t for t in texts[:3]])
        assert_allclose(vectors, before, atol=1e-6)
    for prompt in ("the {} is", "the {query} is"):
        with pytest.warns(
            UserWarning, match=r"which is put before each .* Write \{text\} where"
        ):
            clone(plain).set_params(prompt=prompt).fit(texts)


def test_exports_that_put_prompts_before_texts_refuse_one_around(tiny_bert, texts, tmp_path):
    pytest.importorskip("sentence_transformers", minversion="6")
    encoder = BertEncoder(tiny_bert, prompt=TEMPLATE).fit(texts)
    message = r"before texts only\. Set a prompt without \{text\}, .* or use save_onnx"
    with pytest.raises(ValueError, match=message):
        save_sentence_transformer(encoder, tmp_path / "model")
    cut = BertEncoder(tiny_bert, prompt="the dog ", overflow="cut_left").fit(texts)
    with pytest.raises(ValueError, match=r"by which it cuts off the prompt\. Set"):
        save_sentence_transformer(cut, tmp_path / "model")


@pytest.mark.filterwarnings("ignore:.*were cut off")
@pytest.mark.skipif(
    int(transformers.__version__.partition(".")[0]) < 5,
    reason="torch exports no GPT-2 of transformers 4",
)
def test_graphs_hold_a_decoder_with_a_prompt(tiny_sink_decoder, texts, tmp_path):
    """Its tokenizer has no special tokens, and pads by the token of the end."""
    for name in ("onnx", "onnxscript", "onnxruntime"):
        pytest.importorskip(name, reason=f"{name}, of the extra onnx, is not installed")
    import onnxruntime

    some = [*texts, "", LONG]
    encoder = BertEncoder(tiny_sink_decoder, prompt=TEMPLATE, pooling="last").fit(some)
    save_onnx(encoder, tmp_path / "model.onnx")
    session = onnxruntime.InferenceSession(tmp_path / "model.onnx")
    told = session.get_modelmeta().custom_metadata_map
    assert told["prompt"] == TEMPLATE
    most, n_after = int(told["max_length"]), int(told["tokens_after"])
    tokenizer = transformers.AutoTokenizer.from_pretrained(tiny_sink_decoder)
    for text, expected in zip(some, encoder.transform(some), strict=True):
        ids = tokenizer(TEMPLATE.replace("{text}", text), verbose=False)["input_ids"]
        ids = ids if len(ids) <= most else ids[: most - n_after] + ids[-n_after:]
        inputs = {"input_ids": np.array([ids]), "attention_mask": np.ones((1, len(ids)), int)}
        assert_allclose(session.run(None, inputs)[0][0], expected, atol=1e-4)
