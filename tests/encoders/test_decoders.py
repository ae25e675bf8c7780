"""Decoders, and the encoders of encoder-decoders: vectors are those of the plain model."""

import json
from contextlib import nullcontext

import numpy as np
import pytest
import torch
import transformers
from exported import exported
from numpy.testing import assert_allclose
from plain import all_states
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import normalize
from tokenizers import Tokenizer, models, pre_tokenizers, processors, trainers

from skcalib import BertEncoder, CalibrationSearch, Whitening
from skcalib.export import save_onnx, save_sentence_transformer

END = "<|endoftext|>"
SMALL = {"hidden_size": 24, "num_hidden_layers": 3, "num_attention_heads": 4}
SMALL |= {"intermediate_size": 32, "max_position_embeddings": 80, "initializer_range": 0.3}
GROUPED = SMALL | {"num_key_value_heads": 2, "head_dim": 8}
SLIDING = GROUPED | {"sliding_window": 4, "layer_types": ["sliding_attention"] * 3}
OPT = SMALL | {"ffn_dim": 32, "word_embed_proj_dim": 24, "init_std": 0.3}
T5 = {"d_model": 24, "d_kv": 8, "d_ff": 32, "num_layers": 3, "num_heads": 2}
# What is saved, its settings, and what its tokenizer makes of a text.
FAMILIES = {
    "GPT2LMHeadModel": (SMALL, "$A"),
    "LlamaForCausalLM": (GROUPED, f"{END} $A"),
    "MistralForCausalLM": (SLIDING, f"{END} $A"),
    "Qwen2Model": (GROUPED, "$A"),
    "Qwen3ForCausalLM": (GROUPED, f"$A {END}"),
    "GemmaModel": (GROUPED, f"{END} $A"),
    "Gemma2ForCausalLM": (SLIDING, f"{END} $A"),
    "OPTModel": (OPT, f"{END} $A"),
    "Gemma3TextModel": (SLIDING | {"use_bidirectional_attention": True}, f"$A {END}"),
    "T5ForConditionalGeneration": (T5, f"$A {END}"),
    "T5EncoderModel": (T5 | {"feed_forward_proj": "gated-gelu"}, f"$A {END}"),
    "MT5ForConditionalGeneration": (T5, f"$A {END}"),
}
POOLINGS = {
    "last": lambda hidden: hidden[-1],
    "mean": lambda hidden: hidden.mean(axis=0),
    "weighted_mean": lambda h: np.average(h, axis=0, weights=np.arange(1, len(h) + 1)),
    "mean_without_first": lambda h: h[1:].mean(axis=0) if len(h) > 1 else h[0],
    "cls": lambda hidden: hidden[0],
}


@pytest.fixture
def save_model(tmp_path, words):
    """Return a function that saves a random model and a tokenizer of pieces of words."""

    def save(name, longest=80, **roles):
        if not hasattr(transformers, name):
            pytest.skip(f"this transformers knows no {name}")
        params, single = FAMILIES[name]
        tokenizer = Tokenizer(models.BPE())
        tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
        trainer = trainers.BpeTrainer(special_tokens=[END, "<pad>"], show_progress=False)
        tokenizer.train_from_iterator([" ".join(words)] * 3, trainer)
        marks = [(END, 0)] if END in single else []
        processor = processors.TemplateProcessing(single=single, special_tokens=marks)
        tokenizer.post_processor = processor
        roles |= dict.fromkeys(("bos_token", "eos_token", "unk_token"), END)
        folder = tmp_path / "decoder"
        roles |= {"tokenizer_object": tokenizer, "model_max_length": longest}
        transformers.PreTrainedTokenizerFast(**roles).save_pretrained(folder)
        model = getattr(transformers, name)
        params = params | {"bos_token_id": 0, "eos_token_id": 0, "pad_token_id": 1}
        with torch.random.fork_rng():
            torch.manual_seed(0)
            config = model.config_class(vocab_size=tokenizer.get_vocab_size(), **params)
            model(config).to(torch.bfloat16).save_pretrained(folder)  # as many are published
        return folder

    return save


@pytest.mark.parametrize("name", FAMILIES)
def test_vectors_are_those_of_the_plain_model_whatever_the_neighbours(name, save_model, texts):
    folder = save_model(name)
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    states = [all_states(folder, tokenizer(text)["input_ids"]) for text in texts]
    largest = np.array([np.abs(some).max() for some in states])[:, None]
    for pooling, pooled in POOLINGS.items():
        expected = np.stack([np.hstack([*map(pooled, some)]) for some in states])
        layers = {"layers": [0, 1, 2, 3], "layer_merge": "concat"}
        encoder = BertEncoder(folder, pooling=pooling, **layers)
        both_ways = "T5" in name or name == "Gemma3TextModel"
        useless = pooling == "cls" and not both_ways
        with (
            pytest.warns(match="the first token .* Set pooling='last'")
            if useless
            else nullcontext()
        ):
            encoder.fit(texts)
        for some in (slice(None), slice(5, None, 2), slice(3, 4)):
            vectors = encoder.transform(texts[some])
            assert_allclose((vectors - expected[some]) / largest[some], 0, atol=1e-4)


@pytest.mark.parametrize("layer", [0, 1, 2])
def test_an_attention_sink_is_the_mean_but_not_without_the_first_token(
    layer, tiny_sink_decoder, texts
):
    def cosines(pooling):
        encoder = BertEncoder(tiny_sink_decoder, layers=layer, pooling=pooling)
        vectors = normalize(encoder.fit_transform(texts[1:11]))
        return (vectors @ vectors.T)[np.triu_indices(10, 1)]

    assert cosines("mean").min() > 0.98
    assert cosines("mean_without_first").mean() < 0.9


def test_keys_and_values_are_not_kept(save_model, monkeypatch):
    encoder = BertEncoder(save_model("LlamaForCausalLM")).fit(["dog"])
    outputs, run = [], transformers.LlamaModel.forward

    def forward(self, *args, **options):
        outputs.append(run(self, *args, **options))
        return outputs[-1]

    monkeypatch.setattr(transformers.LlamaModel, "forward", forward)
    encoder.transform(["dog"])
    assert [output.past_key_values for output in outputs] == [None]


def test_a_text_without_tokens_is_the_end_of_one(save_model):
    empty, end = BertEncoder(save_model("GPT2LMHeadModel")).fit_transform(["", END])
    assert_allclose(empty, end, atol=1e-6)


def test_a_tokenizer_without_a_limit_keeps_a_million_tokens(save_model):
    encoder = BertEncoder(save_model("T5EncoderModel", longest=int(1e30))).fit(["dog"])
    assert encoder.max_length_ == 2**20
    assert np.isfinite(encoder.transform(["dog " * 300])).all()


def test_lasttoken_with_a_prompt_is_that_of_sentence_transformers(save_model, texts):
    package = pytest.importorskip("sentence_transformers", minversion="6")
    modules = package.sentence_transformer.modules
    folder = save_model("Qwen3ForCausalLM", pad_token=END)
    transformer = modules.Transformer(str(folder), model_kwargs={"dtype": "float32"})
    model = package.SentenceTransformer(
        modules=[transformer, modules.Pooling(24, "lasttoken")],
        device="cpu",
        prompts={"query": "the red horse: "},
        default_prompt_name="query",
    )
    model.save(str(folder))
    vectors = BertEncoder(folder).fit_transform(texts)
    assert_allclose(vectors, model.encode(texts), atol=1e-5)


def test_a_store_of_a_decoder_has_the_last_token_too(save_model, texts, tmp_path, monkeypatch):
    folder = save_model("LlamaForCausalLM")
    expected = BertEncoder(folder, pooling="last").fit_transform(texts)
    BertEncoder(folder, memory=tmp_path).fit_transform(texts)
    monkeypatch.setattr(transformers.LlamaModel, "forward", None)
    vectors = BertEncoder(folder, pooling="last", memory=tmp_path).fit_transform(texts)
    assert_allclose(vectors, expected, atol=1e-5)


@pytest.mark.filterwarnings("ignore:.*close candidates:UserWarning")
@pytest.mark.parametrize(
    ("name", "end"), [("GPT2LMHeadModel", "last"), ("T5EncoderModel", "cls")]
)
def test_search(name, end, save_model, words):
    rng = np.random.default_rng(0)
    folder = save_model(name)
    texts = [" ".join(rng.choice(words, size=7)) for _ in range(40)]
    search = CalibrationSearch(folder).fit(texts)
    assert np.isfinite(search.transform(["dog", ""])).all()
    sink = {"mean_without_first"} if end == "last" else set()
    assert {*search.cv_results_["pooling"]} == {"mean", "max", "zipf", end, *sink}


@pytest.mark.parametrize(
    ("name", "params"),
    [("LlamaForCausalLM", {"pooling": "last", "layers": 1}), ("T5EncoderModel", {})],
)
def test_models_whose_texts_may_be_padded_export(name, params, save_model, texts, tmp_path):
    encoder = BertEncoder(save_model(name, pad_token="<pad>"), **params)
    pipeline = make_pipeline(encoder, Whitening(4, power="auto")).fit(texts)
    model = exported(pipeline, tmp_path)
    assert_allclose(model.encode(texts), pipeline.transform(texts), atol=1e-4)
    tokenizer = json.loads((tmp_path / "model" / "tokenizer_config.json").read_text())
    assert tokenizer["tokenizer_class"] == "PreTrainedTokenizerFast"  # 4 and 5 know it


@pytest.mark.parametrize("save", [save_sentence_transformer, save_onnx])
def test_texts_that_cannot_be_padded_are_refused(save, save_model, texts, tmp_path):
    if save is save_sentence_transformer:
        pytest.importorskip("sentence_transformers", minversion="6")
    else:
        pytest.importorskip("onnxscript")
    encoder = BertEncoder(save_model("GPT2LMHeadModel")).fit(texts)
    with pytest.raises(ValueError, match="GPT2Model has a tokenizer without pad_token, which"):
        save(encoder, tmp_path / "model")
