"""Encoders of other families, and models that are no encoders."""

import numpy as np
import pytest
import transformers
from numpy.testing import assert_allclose, assert_array_equal

from skcalib import BertEncoder

SMALL = {
    "hidden_size": 16,
    "num_hidden_layers": 3,
    "num_attention_heads": 2,
    "intermediate_size": 32,
    "max_position_embeddings": 40,
    "pad_token_id": 0,
}
FAMILIES = {
    "Roberta": SMALL,
    "XLMRoberta": SMALL,
    "DistilBert": {
        "dim": 16,
        "n_layers": 3,
        "n_heads": 2,
        "hidden_dim": 32,
        "max_position_embeddings": 40,
    },
    "MPNet": SMALL,
    "Electra": SMALL | {"embedding_size": 8},
    "Albert": SMALL | {"embedding_size": 8},
}


# Families that pack no texts.
UNPACKED = {
    "MPNet": SMALL,  # a bias by relative position
    "MobileBert": SMALL
    | {"embedding_size": 8, "intra_bottleneck_size": 16},  # joins neighbours
    "FNet": {k: v for k, v in SMALL.items() if k != "num_attention_heads"},
    "Nystromformer": SMALL,
    "Yoso": SMALL,
    "ConvBert": SMALL | {"embedding_size": 16},
    "XLM": {"emb_dim": 16, "n_layers": 3, "n_heads": 2, "max_position_embeddings": 40},
    "Flaubert": {"emb_dim": 16, "n_layers": 3, "n_heads": 2, "max_position_embeddings": 40},
}
PACKED = ("Bert", "Roberta", "XLMRoberta", "DistilBert", "Electra", "Albert")


@pytest.fixture
def save(save_family):
    """Return a function that saves a random model of a family with the tiny vocabulary."""
    return save_family


@pytest.mark.parametrize("family", [*FAMILIES, *sorted(set(UNPACKED) - set(FAMILIES))])
def test_hidden_states_are_those_of_the_family(save, family, texts):
    import torch

    folder = save(family, **(FAMILIES | UNPACKED)[family])
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    model = transformers.AutoModel.from_pretrained(folder).eval()
    with torch.inference_mode():
        states = [
            model(torch.tensor([tokenizer(t)["input_ids"]]), output_hidden_states=True)
            for t in texts
        ]
    for layer in range(4):
        expected = [s.hidden_states[layer][0].mean(dim=0).numpy() for s in states]
        vectors = BertEncoder(folder, layers=layer).fit_transform(texts)
        assert_allclose(vectors, expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("family", UNPACKED)
def test_a_text_does_not_depend_on_its_neighbours(save, family, texts):
    """Padding, or the neighbours in a row, would leak into its vector in these families."""
    encoder = BertEncoder(save(family, **UNPACKED[family])).fit(texts)
    assert not encoder._backbone().forward.way.packed
    alone = np.vstack([encoder.transform([t]) for t in texts])
    assert_allclose(encoder.transform(texts), alone, atol=1e-5 * np.abs(alone).max())


def test_a_model_whose_texts_mix_in_any_batch_is_refused(save, monkeypatch):
    from transformers.models.yoso.modeling_yoso import YosoEmbeddings

    forward = YosoEmbeddings.forward

    def mixing(self, *args, **kwargs):
        hidden = forward(self, *args, **kwargs)
        return hidden + hidden.mean(dim=0, keepdim=True)

    monkeypatch.setattr(YosoEmbeddings, "forward", mixing)
    with pytest.raises(ValueError, match=r"depend on the texts beside it.*Choose another"):
        BertEncoder(save("Yoso", **SMALL, seed=1)).fit(["dog"])


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("family", PACKED)
@pytest.mark.usefixtures("packing")
def test_a_packed_row_gives_what_each_text_gives_alone(save, family, texts, dtype):
    import torch

    folder = save(family, **({"Bert": SMALL} | FAMILIES)[family], initializer_range=0.3)
    encoder = BertEncoder(folder, layers=(0, 1, 2, 3), layer_merge="concat", dtype=dtype)
    vectors = encoder.fit_transform(texts)
    backbone = encoder._backbone()
    assert backbone.forward.way.packed
    model = transformers.AutoModel.from_pretrained(folder).eval()
    with torch.inference_mode():
        states = [
            model(torch.tensor([backbone.tokenizer(t)["input_ids"]]), output_hidden_states=True)
            for t in texts
        ]
    expected = [np.hstack([h[0].mean(dim=0) for h in s.hidden_states]) for s in states]
    # bfloat16 keeps 8 bits.
    atol = (1e-5 if dtype == "float32" else 0.05) * np.abs(expected).max()
    assert_allclose(vectors, expected, rtol=0, atol=atol)
    assert_array_equal(encoder.transform(texts), vectors)


@pytest.mark.usefixtures("packing")
def test_transformers_too_old_for_packing_will_do(save, texts, monkeypatch, loader):
    def register(*_):
        raise ImportError("cannot import name 'AttentionInterface' from 'transformers'")

    folder = save("Bert", **SMALL)
    expected = BertEncoder(folder).fit_transform(texts)
    monkeypatch.setattr(transformers.AttentionInterface, "register", register)
    loader.cache_clear()
    encoder = BertEncoder(folder).fit(texts)
    assert not encoder._backbone().forward.way.packed
    assert_allclose(encoder.transform(texts), expected, atol=1e-5)


def test_a_model_that_wants_more_tokens_is_refused(save):
    # It wants texts of 40 tokens.
    folder = save("Nystromformer", **SMALL, num_landmarks=4, segment_means_seq_len=40)
    with pytest.raises(ValueError, match="could not be run on token ids: RuntimeError"):
        BertEncoder(folder).fit(["dog"])


@pytest.mark.parametrize(
    ("family", "params"),
    [("Longformer", {"attention_window": 4}), ("SqueezeBert", {"embedding_size": 16})],
)
def test_layers_that_blocks_do_not_show_come_from_the_model(save, family, params):
    import torch

    encoder = BertEncoder(save(family, **SMALL | params), layers=1, device="cpu")
    vectors = encoder.fit_transform(["dog", "the old cat sleeps", "a red cat sleeps"])
    backbone = encoder._backbone()
    for text, vector in zip(["dog", "the old cat sleeps"], vectors, strict=False):
        ids = torch.tensor([backbone.tokenizer(text)["input_ids"]])
        with torch.inference_mode():
            hidden = backbone.module(ids, output_hidden_states=True).hidden_states[1]
        assert_allclose(vector, hidden[0].mean(dim=0), atol=1e-5)


@pytest.mark.parametrize("family", ["Roberta", "XLMRoberta", "MPNet"])
def test_positions_that_start_later_shorten_the_longest_text(save, family):
    encoder = BertEncoder(save(family, **FAMILIES[family]))
    # The tiny tokenizer ends at 40; these families number positions from pad_token_id + 1.
    expected = 40 - 1 if family != "MPNet" else 40 - 2
    assert encoder.fit(["dog"]).max_length_ == expected
    with pytest.warns(UserWarning, match="1 of 1 texts were cut off"):
        assert np.isfinite(encoder.transform(["dog " * 60])).all()


def test_decoders_are_refused(save):
    folder = save("GPT2", n_embd=16, n_layer=2, n_head=2, n_positions=40)
    with pytest.raises(
        ValueError, match=r"a decoder, whose tokens see only.*'gpt2'.*BERT, RoB"
    ):
        BertEncoder(folder).fit(["dog"])


def test_encoder_decoders_are_refused(save):
    folder = save("T5", d_model=16, d_kv=8, d_ff=32, num_layers=2, num_heads=2)
    with pytest.raises(ValueError, match=r"an encoder-decoder.*'t5'"):
        BertEncoder(folder).fit(["dog"])


def test_bert_set_up_as_a_decoder_is_refused(save):
    with pytest.raises(ValueError, match=r"a decoder, whose tokens.*'bert'"):
        BertEncoder(save("Bert", is_decoder=True, **SMALL)).fit(["dog"])


@pytest.mark.parametrize(
    ("family", "params", "match"),
    [
        ("CLIPText", {"projection_dim": 16}, r"a decoder, whose tokens.*'clip_text_model'"),
        ("Bros", {}, "could not be run on token ids: ValueError"),
        ("Canine", {"num_hash_buckets": 64}, "could not be given tokens"),
        ("Perceiver", {"d_model": 16, "d_latents": 16, "num_latents": 4}, "given tokens"),
    ],
    ids=["CLIP", "Bros", "Canine", "Perceiver"],
)
def test_what_cannot_be_pooled_is_refused_by_fit(save, family, params, match):
    with pytest.raises(ValueError, match=match):
        BertEncoder(save(family, **SMALL | params)).fit(["dog"])


def test_tokenizer_without_a_padding_token_will_do(tiny_bert, tiny_bert_copy, edit_json, texts):
    folder = tiny_bert_copy()
    edit_json(folder / "tokenizer_config.json", pad_token=None)
    vectors = BertEncoder(str(folder)).fit_transform(texts)
    assert_allclose(vectors, BertEncoder(tiny_bert).fit_transform(texts), atol=1e-6)
