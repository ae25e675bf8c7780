"""Prompts with the text twice: the vector is pooled from the second one, by its offsets."""

import numpy as np
import pytest
import transformers
from numpy.testing import assert_allclose, assert_array_equal
from plain import states_of
from tokenizers import processors

from skcalib import BertEncoder
from skcalib.encoders.bert_encoder import backbone_of, recipe_of
from skcalib.encoders.pipelines import encode
from skcalib.export import save_onnx, save_sentence_transformer

TWICE = "the old , {text} , is a red house , {text} !"
BARE = "{text} {text}"
POOLINGS = {
    "cls": lambda hidden: hidden[0],
    "last": lambda hidden: hidden[-1],
    "mean": lambda hidden: hidden.mean(axis=0),
    "max": lambda hidden: hidden.max(axis=0),
    "mean_own": lambda hidden: hidden.mean(axis=0),
    "weighted_mean": lambda h: np.average(h, axis=0, weights=np.arange(1, len(h) + 1)),
    "mean_without_first": lambda h: h[1:].mean(axis=0) if len(h) > 1 else h[0],
}
LONG = "man woman child cat plane flute guitar horse river street rain snow night morning " * 5


@pytest.fixture(params=["bert", "decoder", "decoder with a token of the beginning"])
def folder(request, tmp_path):
    """Folder of an encoder, of a decoder without special tokens, and of one with them."""
    if request.param == "bert":
        return request.getfixturevalue("tiny_bert")
    decoder = request.getfixturevalue("tiny_sink_decoder")
    if request.param == "decoder":
        return decoder
    tokenizer = transformers.AutoTokenizer.from_pretrained(decoder)
    inner, end = tokenizer.backend_tokenizer, tokenizer.eos_token
    inner.post_processor = processors.TemplateProcessing(
        single=f"{end} $A", special_tokens=[(end, tokenizer.eos_token_id)]
    )
    tokenizer = transformers.PreTrainedTokenizerFast(
        tokenizer_object=inner, model_max_length=80, bos_token=end, eos_token=end, pad_token=end
    )
    tokenizer.save_pretrained(tmp_path / "begins")
    transformers.AutoModel.from_pretrained(decoder).save_pretrained(tmp_path / "begins")
    return str(tmp_path / "begins")


@pytest.fixture
def plain(folder):
    """Return a function from a prompt and a text to the hidden states of the second text."""
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)

    def states(prompt, text):
        string = prompt.replace("{text}", text)
        begin = len(prompt[: prompt.rindex("{text}")].replace("{text}", text))
        encoded = tokenizer(string, return_offsets_mapping=True)
        hidden, spans = states_of(folder, encoded["input_ids"]), encoded["offset_mapping"]
        return hidden[[i < begin + len(text) and j > begin for i, j in spans]]

    return states


@pytest.mark.filterwarnings("ignore:.*first token")
@pytest.mark.filterwarnings("ignore:.*unknown to this model")
@pytest.mark.parametrize("prompt", [TWICE, BARE, 'dog : "{text}" cat "{text}"'])
def test_the_second_text_is_pooled(folder, plain, texts, prompt):
    several = [*texts[:6], "a cat.", ",", "a dog !", "the dog\n"]
    states = [plain(prompt, text) for text in several]
    for pooling, pool in POOLINGS.items():
        expected = [*map(pool, states)]
        encoder = BertEncoder(folder, pooling=pooling, prompt=prompt).fit(texts)
        assert_allclose(encoder.transform(several), expected, atol=1e-5)
        assert_allclose(encoder.transform(several[2::-1]), expected[2::-1], atol=1e-5)


def test_zipf_weights_are_those_of_the_second_text(tiny_bert, texts):
    encoder = BertEncoder(tiny_bert, pooling="zipf", prompt=TWICE).fit(texts)
    backbone, text = backbone_of(encoder), "the dog plays"
    ids = [backbone.tokens.ids_of(string)[1:-1] for string in (text, TWICE)]
    whole = backbone.tokens.ids_of(TWICE.replace("{text}", text))
    begin = len(whole) - 2 - len(ids[0])
    assert whole[begin : begin + len(ids[0])] == ids[0]
    hidden = states_of(tiny_bert, whole)[begin : begin + len(ids[0])]
    expected = np.average(hidden, axis=0, weights=backbone.tokens.zipf[ids[0]])
    assert_allclose(encoder.transform([text])[0], expected, atol=1e-5)


@pytest.mark.filterwarnings("ignore:.*unknown to this model")
def test_a_text_without_tokens_has_the_vector_of_the_prompt(folder, texts):
    encoder = BertEncoder(folder, pooling="mean", prompt=TWICE).fit(texts)
    once = BertEncoder(folder, pooling="mean", prompt="").fit(texts)
    expected = once.transform([TWICE.replace("{text}", "")])
    assert_allclose(encoder.transform(["", "dog"])[:1], expected, atol=1e-5)


def parts_of(folder, prompt, max_length):
    """Tokens before, between and after two texts, of a long one, and how many have room."""
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    string = prompt.replace("{text}", "dog")
    encoded = tokenizer(string, return_offsets_mapping=True)
    first = string.index("dog")
    second = string.index("dog", first + 1)
    places = []
    for begin in (first, second):
        spans = enumerate(encoded["offset_mapping"])
        places.append([k for k, (i, j) in spans if i < begin + 3 and j > begin])
    ids = encoded["input_ids"]
    before, after = ids[: places[0][0]], ids[places[1][-1] + 1 :]
    between = ids[places[0][-1] + 1 : places[1][0]]
    room = (max_length - len(before) - len(between) - len(after)) // 2
    text = tokenizer(prompt.replace("{text}", LONG), verbose=False)["input_ids"]
    n = (len(text) - len(before) - len(between) - len(after)) // 2
    body = text[len(before) : len(before) + n]
    return before, between, after, body, room


@pytest.mark.parametrize("overflow", ["cut_right", "cut_left", "windows"])
def test_both_texts_are_cut_alike(folder, overflow):
    before, between, after, body, room = parts_of(folder, TWICE, 38)

    def second(piece):
        ids = [*before, *piece, *between, *piece, *after]
        assert len(ids) <= 38
        begin = len(before) + len(piece) + len(between)
        return states_of(folder, ids)[begin : begin + len(piece)]

    starts = {"cut_right": [0], "cut_left": [len(body) - room]}
    starts = starts.get(overflow, range(0, len(body), room))
    windows = [second(body[start : start + room]) for start in starts]
    options = {"prompt": TWICE, "overflow": overflow, "max_length": 38}
    for pooling, expected in (
        ("mean", np.concatenate(windows).mean(axis=0)),
        ("last", windows[-1][-1]),
        ("max", np.concatenate(windows).max(axis=0)),
    ):
        encoder = BertEncoder(folder, pooling=pooling, **options).fit(["dog"])
        if overflow == "windows":
            found = encoder.transform([LONG, "dog"])
        else:
            with pytest.warns(UserWarning, match="1 of 2 texts were cut off at max_length=38"):
                found = encoder.transform([LONG, "dog"])
        assert_allclose(found[0], expected, atol=1e-5)


@pytest.mark.filterwarnings("ignore:.*were cut off")
@pytest.mark.parametrize("overflow", ["cut_right", "cut_left", "windows"])
def test_a_first_word_of_other_tokens_at_both_places(tiny_sink_decoder, overflow):
    """Without a space before it, the word is two tokens; none is lost at the other end."""
    for length in range(4, 12):
        options = {"overflow": overflow, "max_length": length}
        encoder = BertEncoder(tiny_sink_decoder, prompt=BARE, pooling="last", **options)
        encoder.fit(["dog"])
        tokens = backbone_of(encoder).tokens
        windows = tokens.windows(["horse street river " * 40], recipe_of(encoder))
        for ids, (begin, stop) in zip(windows.ids, windows.second, strict=True):
            assert len(ids) <= length
            assert 0 < begin < stop == len(ids)
            firsts, seconds = (
                tokens.tokenizer.decode(part).strip() for part in (ids[:begin], ids[begin:stop])
            )
            assert firsts == seconds or length < 8


@pytest.mark.filterwarnings("ignore:.*unknown to this model")
@pytest.mark.parametrize("prompt", [TWICE, "the old {text} red house"])
def test_words_of_the_prompt_are_no_content(folder, prompt):
    encoder = BertEncoder(folder, prompt=prompt, pooling="mean").fit(["dog"])
    _, silent = encode(encoder, ["dog", "", "  ", "red house"])
    assert_array_equal(silent, [False, True, True, False])


@pytest.mark.filterwarnings("error:.*unknown to this model")
def test_unknown_words_count_once(tiny_bert):
    """Of ten words one is unknown; both texts together have two."""
    encoder = BertEncoder(tiny_bert, prompt=BARE, pooling="mean").fit(["dog"])
    encoder.transform(["dog dog dog dog dog dog dog dog dog xylophone"])


@pytest.mark.parametrize(
    ("prompt", "message"),
    [
        ("{text} a {text} a {text}", r"has \{text\} 3 times; expected it once, .* or twice"),
        ("the dog {text} and {text} " + "red " * 90, "has .* tokens, .* no room for a text"),
        ("the {text}nd dog", r"joins with those of a text\. Put a space"),
        ("the {text}nd dog {text}", r"joins with those of a text\. Put a space"),
        ("the {text} and the{text}", r"joins with those of a text\. Put a space"),
        ("{text}{text}", r"joins with those of a text\. Put a space"),
    ],
)
def test_prompts_that_cannot_be_are_refused(tiny_bert, prompt, message):
    with pytest.raises(ValueError, match=message):
        BertEncoder(tiny_bert, prompt=prompt, pooling="mean").fit(["dog"])


def test_exports_refuse_the_text_twice(tiny_bert, texts, tmp_path):
    pytest.importorskip("sentence_transformers")
    encoder = BertEncoder(tiny_bert, prompt=TWICE).fit(texts)
    with pytest.raises(ValueError, match=r"prompts before texts only\. Set a prompt wit"):
        save_sentence_transformer(encoder, tmp_path / "model")
    with pytest.raises(ValueError, match=r"cannot find the second text .* with one \{text\}"):
        save_onnx(encoder, tmp_path / "model.onnx")
