"""Encoders of other families, and models that are no encoders."""

import numpy as np
import pytest
import transformers
from numpy.testing import assert_allclose

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


@pytest.fixture
def save(tiny_bert_copy):
    """Return a function that saves a random model of a family with the tiny vocabulary."""

    def save(family, **params):
        import torch

        folder = tiny_bert_copy()
        for name in ("model.safetensors", "config.json"):
            (folder / name).unlink()
        config = getattr(transformers, f"{family}Config")(vocab_size=60, **params)
        with torch.random.fork_rng():
            torch.manual_seed(0)
            getattr(transformers, f"{family}Model")(config).save_pretrained(folder)
        return str(folder)

    return save


@pytest.mark.parametrize("family", FAMILIES)
def test_hidden_states_are_those_of_the_family(save, family, texts):
    import torch

    folder = save(family, **FAMILIES[family])
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
        ("Longformer", {"attention_window": 4}, "without a hidden state for each token"),
        ("SqueezeBert", {"embedding_size": 16}, "without a hidden state for each token"),
        ("Bros", {}, "could not be run on token ids: ValueError"),
        ("Canine", {"num_hash_buckets": 64}, "could not be given tokens"),
        ("Perceiver", {"d_model": 16, "d_latents": 16, "num_latents": 4}, "given tokens"),
    ],
    ids=["CLIP", "Longformer", "SqueezeBERT", "Bros", "Canine", "Perceiver"],
)
def test_what_cannot_be_pooled_is_refused_by_fit(save, family, params, match):
    with pytest.raises(ValueError, match=match):
        BertEncoder(save(family, **SMALL | params)).fit(["dog"])


def test_tokenizer_without_a_padding_token_will_do(tiny_bert, tiny_bert_copy, edit_json, texts):
    folder = tiny_bert_copy()
    edit_json(folder / "tokenizer_config.json", pad_token=None)
    vectors = BertEncoder(str(folder)).fit_transform(texts)
    assert_allclose(vectors, BertEncoder(tiny_bert).fit_transform(texts), atol=1e-6)
