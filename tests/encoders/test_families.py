"""Encoders of other families, and models that are no encoders."""

from pathlib import Path

import numpy as np
import pytest
import transformers
from numpy.testing import assert_allclose, assert_array_equal
from plain import all_states

from skcalib import BertEncoder

SMALL = {"hidden_size": 16, "num_hidden_layers": 3, "num_attention_heads": 2}
SMALL |= {"intermediate_size": 32, "max_position_embeddings": 40, "pad_token_id": 0}
EMBEDDED = SMALL | {"embedding_size": 8}
DISTIL = {"dim": 16, "n_layers": 3, "n_heads": 2, "hidden_dim": 32}
XLM = {"emb_dim": 16, "n_layers": 3, "n_heads": 2, "max_position_embeddings": 40}
LONGROPE = {"rope_type": "longrope", "rope_theta": 1e4, "factor": 2.0}
LONGROPE |= {"short_factor": [1.0] * 4, "long_factor": [4.0] * 4}
LONGROPE |= {"original_max_position_embeddings": 16}
ESM = SMALL | {"token_dropout": True, "mask_token_id": 4}
GROUPED = SMALL | {"num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 4}
GROUPED |= {"bos_token_id": 2, "eos_token_id": 3}
# Texts of the tests are longer than these windows and buckets.
WINDOW = {"sliding_window": 6}
RELATIVE = SMALL | {"relative_attention": True, "pos_att_type": ["p2c", "c2p"]}
BUCKETS = RELATIVE | {"position_buckets": 8, "norm_rel_ebd": "layer_norm"}
BUCKETS |= {"position_biased_input": False}
T5 = {"d_model": 16, "d_kv": 8, "d_ff": 32, "num_layers": 3, "num_heads": 2}
T5 |= {"relative_attention_num_buckets": 8, "relative_attention_max_distance": 16}
LAYERS = {"layer_types": ["sliding_attention", "full_attention", "sliding_attention"]}
# Families that pack no texts.
UNPACKED = {
    "MobileBert": EMBEDDED | {"intra_bottleneck_size": 16},  # joins neighbours
    "CLIPText": SMALL | {"projection_dim": 16},
    "FNet": {k: v for k, v in SMALL.items() if k != "num_attention_heads"},
    "Nystromformer": SMALL,
    "Yoso": SMALL,
    "ConvBert": SMALL | {"embedding_size": 16},
    "Esm": ESM,  # a mask token weakens those that are none in its row
    "Esm rotary": ESM | {"position_embedding_type": "rotary"},
    # Long texts rotate otherwise, with all that are in their row.
    "NomicBert longrope": SMALL | {"rope_parameters": LONGROPE, "initializer_range": 0.3},
    "EuroBert longrope": SMALL | {"rope_parameters": LONGROPE, "initializer_range": 0.3},
    "Tipsv2Text": SMALL,  # no row may have more tokens than there are positions
    "Gemma2": GROUPED,  # limits what its attention adds up
    "Llama4Text": GROUPED | {"attention_chunk_size": 6, "intermediate_size_mlp": 32},
    # Of their window they tell their masks, but not their attention.
    "Qwen2Moe": GROUPED | WINDOW | {"use_sliding_window": True, "max_window_layers": 1},
    "DebertaV2 convolution": RELATIVE | {"conv_kernel_size": 3},  # joins neighbours
    # Multiplies by the weight of a linear layer itself.
    "Mamba": {"hidden_size": 16, "num_hidden_layers": 3, "state_size": 4},
    "T5Encoder": T5,
    "MT5Encoder": T5,
    "UMT5Encoder": T5,
    "DebertaV2": RELATIVE,
    "DebertaV2 far": RELATIVE | {"max_relative_positions": 6},
    "DebertaV2 buckets": BUCKETS,
    "DebertaV2 shared": BUCKETS | {"share_att_key": True},
    "DebertaV2 c2p": BUCKETS | {"pos_att_type": ["c2p"]},
    "DebertaV2 p2c": BUCKETS | {"pos_att_type": ["p2c"], "share_att_key": True},
    "DebertaV2 content": BUCKETS | {"pos_att_type": []},
    "DebertaV2 absolute": SMALL | {"pos_att_type": ["c2p"]},
    "MPNet": SMALL,
    "XLNet": {"d_model": 16, "n_layer": 3, "n_head": 2, "d_inner": 32},
    "XLM": XLM,
    "Flaubert": XLM,
    # Their blocks do not show their layers.
    "Longformer": SMALL | {"attention_window": 4},
    "SqueezeBert": SMALL | {"embedding_size": 16},
}
PACKED = {
    "Bert": SMALL,
    "Roberta": SMALL,
    "XLMRoberta": SMALL,
    "Camembert": SMALL,
    "Xmod": SMALL | {"languages": ["en_XX"], "default_language": "en_XX"},
    "DistilBert": DISTIL | {"max_position_embeddings": 40},
    "Electra": EMBEDDED,
    "Albert": EMBEDDED,
    "NomicBert": SMALL,
    "Bert decoder": SMALL | {"is_decoder": True},
    "ModernBert": SMALL | LAYERS | {"local_attention": 12},
    "EuroBert": GROUPED,
    "GPT2": {"n_embd": 16, "n_layer": 3, "n_head": 2},
    "OPT": SMALL | {"ffn_dim": 32, "word_embed_proj_dim": 16},
    "Llama": GROUPED,
    "Mistral": GROUPED | WINDOW,
    "Phi3": GROUPED | WINDOW,
    "Qwen2": GROUPED | WINDOW | {"use_sliding_window": True, "max_window_layers": 1},
    "Qwen3": GROUPED,
    "Gemma3Text": GROUPED | WINDOW | LAYERS,
    "Gemma3Text both ways": GROUPED | WINDOW | LAYERS | {"use_bidirectional_attention": True},
    "Olmo2": GROUPED,
    "Granite": GROUPED,
    "SmolLM3": GROUPED,
    "Cohere2": GROUPED | WINDOW | LAYERS,
    "Starcoder2": GROUPED | WINDOW,
}
IN_BFLOAT16 = ("Bert", "Roberta", "DistilBert", "Albert", "ModernBert", "Mistral", "MPNet")
IN_BFLOAT16 += ("Gemma3Text both ways", "T5Encoder", "DebertaV2 buckets", "FNet")


@pytest.fixture
def save(save_family):
    """Return a function that saves a random model of a family with the tiny vocabulary."""

    def save(family, **params):
        family = family.split()[0]
        if not hasattr(transformers, f"{family}Model"):
            pytest.skip(f"this transformers knows no {family}")
        return save_family(family, **params)

    return save


def n_lengths(texts):
    return len({len(text.split()) for text in texts})


def means_of(folder, texts):
    """Means of all hidden states of each text, run alone, (n_layers + 1, n_texts, d)."""
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    rows = [tokenizer(text)["input_ids"] for text in texts]
    return np.stack([all_states(folder, ids).mean(axis=1) for ids in rows], axis=1)


@pytest.mark.parametrize("family", [*PACKED, *UNPACKED])
@pytest.mark.filterwarnings("ignore:.torch.jit.script")  # in old transformers
def test_a_text_has_the_hidden_states_that_it_has_alone(save, family, texts, inputs):
    """In a packed row; or beside texts of its length, where one row would mix them."""
    texts = [*texts[5:8], *texts[-2:], "the [PAD] dog sleeps"]  # four of four words
    texts += ["[PAD] [PAD] cat", "a [MASK] cat", "[MASK]"]
    params = UNPACKED.get(family) or PACKED[family] | {"initializer_range": 0.3}
    folder = save(family, **params)
    expected, shapes = np.hstack(means_of(folder, texts)), inputs(family)
    # bfloat16 keeps 8 bits.
    for dtype, atol in {"float32": 1e-5, "bfloat16": 0.05}.items():
        if dtype == "bfloat16" and family not in IN_BFLOAT16:
            continue
        encoder = BertEncoder(folder, layers=(0, 1, 2, 3), layer_merge="concat", dtype=dtype)
        encoder.fit(texts)
        shapes.clear()
        vectors = encoder.transform(texts)
        assert len(shapes) == (1 if family in PACKED else n_lengths(texts))
        assert_allclose(vectors, expected, rtol=0, atol=atol * np.abs(expected).max())
        assert_array_equal(encoder.transform(texts), vectors)


def test_minilm_equals_its_own_hidden_states(minilm):
    texts = ["A man is playing a flute.", "Snow.", "Two dogs run along the bank, barking."]
    means = means_of(minilm, texts)
    for layer in (0, 3, 6):
        encoder = BertEncoder(minilm, layers=layer, normalize=False, device="cpu")
        vectors = encoder.fit_transform(texts)
        assert_allclose(vectors, means[layer], atol=2e-6)


@pytest.mark.filterwarnings("ignore:.*were cut off")
def test_bigbird_takes_texts_as_long_as_it_attends_to_all_their_tokens(save, texts):
    """Of longer ones it attends to blocks, unless it has seen a shorter one before."""
    folder = save("BigBird", **SMALL, block_size=2, num_random_blocks=1)
    encoder = BertEncoder(folder).fit(texts)
    assert encoder.max_length_ == 14
    with pytest.raises(ValueError, match=r"max_length=40; this model accepts 3 to 14 tokens"):
        BertEncoder(folder, max_length=40).fit(texts)
    cut = [" ".join(text.split()[:12]) for text in texts]
    assert_allclose(encoder.transform(texts), means_of(folder, cut)[3], atol=1e-5)


def test_a_model_whose_texts_mix_in_any_batch_is_refused(save, monkeypatch):
    from transformers.models.yoso.modeling_yoso import YosoEmbeddings

    forward = YosoEmbeddings.forward

    def mixing(self, *args, **kwargs):
        hidden = forward(self, *args, **kwargs)
        return hidden + hidden.mean(dim=0, keepdim=True)

    monkeypatch.setattr(YosoEmbeddings, "forward", mixing)
    message = r"of a text differ from .* depend on other texts"
    with pytest.raises(ValueError, match=message):
        BertEncoder(save("Yoso", **SMALL, seed=1)).fit(["dog"])


def test_texts_beyond_an_unproved_window_get_a_batch_of_their_own(
    save, texts, words, inputs, edit_json
):
    """To prove a long window would take long at loading."""
    sizes = {"sliding_window": 600, "max_position_embeddings": 800, "initializer_range": 0.3}
    folder = save("Mistral", **GROUPED | sizes)
    edit_json(Path(folder) / "tokenizer_config.json", model_max_length=800)
    encoder = BertEncoder(folder).fit(texts)
    shapes = inputs("Mistral")
    long = 13 * words
    texts = [*texts, " ".join(long), " ".join(long[::-1])]
    vectors = encoder.transform(texts)
    assert [n_rows for n_rows, _ in shapes] == [2, 1]
    assert_allclose(vectors, means_of(folder, texts)[3], atol=1e-5)
    assert_allclose(encoder.transform(texts), vectors, atol=1e-6)


@pytest.mark.parametrize("family", ["Roberta", "XLMRoberta", "MPNet"])
def test_positions_that_start_later_shorten_the_longest_text(save, family):
    encoder = BertEncoder(save(family, **SMALL))
    # The tiny tokenizer ends at 40; these families number positions from pad_token_id + 1.
    expected = 40 - 1 if family != "MPNet" else 40 - 2
    assert encoder.fit(["dog"]).max_length_ == expected
    with pytest.warns(UserWarning, match="1 of 1 texts were cut off"):
        assert np.isfinite(encoder.transform(["dog " * 60])).all()


BART = {"d_model": 16, "encoder_layers": 1, "decoder_layers": 1}
VIT = SMALL | {"image_size": 8, "patch_size": 4}
FORTY = SMALL | {"num_landmarks": 4, "segment_means_seq_len": 40}  # tokens of each text


@pytest.mark.parametrize(
    ("family", "params", "match"),
    [
        ("Bart", BART, "it is an encoder-decoder.*BertEncoder accepts encoders such"),
        ("Nystromformer", FORTY, "RuntimeError"),
        ("CLIP", {"text_config": VIT, "vision_config": VIT}, ""),
        ("ViT", VIT, "its input is pixel_values, not texts"),
        ("AST", SMALL, "its input is input_values"),
        ("Bros", SMALL, ""),
        ("Canine", SMALL | {"num_hash_buckets": 64}, ""),
        ("Perceiver", {"d_model": 16, "d_latents": 16, "num_latents": 4}, "input is inputs"),
    ],
    ids=lambda value: value if str(value).isalnum() else "",
)
def test_what_cannot_be_pooled_is_refused_by_fit(save, family, params, match):
    with pytest.raises(ValueError, match=f"cannot be used .*: .*{match}"):
        BertEncoder(save(family, **params)).fit(["dog"])
