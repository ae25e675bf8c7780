"""Pipelines as folders of sentence-transformers, loaded where there is no skcalib."""

import json
import os
import sys
from contextlib import nullcontext

import numpy as np
import pytest
import torch
from exported import assert_equal_vectors, exported
from numpy.testing import assert_allclose
from sklearn.decomposition import PCA, TruncatedSVD
from sklearn.frozen import FrozenEstimator
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import MinMaxScaler, Normalizer, StandardScaler, normalize

from skcalib import (
    BertEncoder,
    BiEncoder,
    CalibrationSearch,
    NeighborSmoothing,
    NormalizingFlow,
    Whitening,
)
from skcalib.export import save_sentence_transformer

package = pytest.importorskip("sentence_transformers", minversion="6")

# Texts of which pooling has little to weigh: without tokens, with none but punctuation.
ODD = ["", "?", "!!", "zzz", "zzz."]

CASES = [
    {},
    {"layers": 0, "max_length": 7},
    {"layers": 2, "pooling": "max"},
    {"layers": (0, 2, 2)},
    {"layers": "first_last", "dtype": "bfloat16"},
    {"pooling": "mean_own", "layer_merge": "concat"},
    {"pooling": "zipf"},
    {"pooling": "zipf", "layers": (1, 2)},
    {"pooling": "cls", "layers": 1},
    {"pooling": "last", "prompt": "the dog "},
    {"pooling": "weighted_mean", "layers": (0, 2)},
]


@pytest.mark.filterwarnings("ignore:.*were cut off")
@pytest.mark.parametrize("params", CASES, ids=str)
def test_loaded_model_gives_the_vectors_of_the_pipeline(params, tiny_bert, texts, tmp_path):
    encoder = BertEncoder(tiny_bert, **params)
    pipeline = make_pipeline(encoder, Whitening(6, power="auto")).fit(texts)
    model = exported(pipeline, tmp_path)
    encoder.set_params(dtype="float32").fit(texts)  # what the model computes in
    texts = [*texts, *ODD]
    assert_equal_vectors(model.encode(texts), pipeline.transform(texts))


@pytest.mark.parametrize("pooled", [True, False])
def test_queries_and_documents_get_the_prompt(
    pooled, tiny_bert, without_prompts, texts, tmp_path
):
    texts = [text for text in texts if len(text.split()) < 9]
    encoder = BertEncoder(tiny_bert if pooled else without_prompts, prompt="the dog ")
    search = CalibrationSearch(encoder, task="duplicates", pooling="mean", layers=3).fit(texts)
    model = exported(search, tmp_path)
    for encode in (model.encode, model.encode_query, model.encode_document):
        assert_equal_vectors(encode(texts), search.transform(texts))


def test_linear_steps_are_one_map_there(tiny_bert, texts, tmp_path):
    steps = StandardScaler(with_mean=False), Whitening(6, power="auto"), Normalizer()
    pipeline = make_pipeline(BertEncoder(tiny_bert), *steps).fit(texts)
    model = exported(pipeline, tmp_path)
    assert len(model) == 5
    assert_equal_vectors(model.encode([*texts, *ODD]), pipeline.transform([*texts, *ODD]))
    card = (tmp_path / "model" / "README.md").read_text()
    assert all(f"`{step!r}`" in card for step in steps)


@pytest.mark.parametrize("pooling", ["mean", "cls", "max", "last", "weighted_mean"])
def test_tokens_of_a_prompt_are_not_pooled_there(pooling, without_prompts, texts, tmp_path):
    encoder = BertEncoder(without_prompts, pooling=pooling, prompt="a red dog ").fit(texts)
    model, expected = exported(encoder, tmp_path), encoder.transform([*texts, *ODD])
    assert_equal_vectors(model.encode([*texts, *ODD]), expected)
    assert_equal_vectors(model.encode_query([*texts, *ODD]), expected)
    again = BertEncoder(tmp_path / "model").fit(texts)
    assert (again.prompt_, again.pooling_) == ("a red dog ", pooling)
    assert_equal_vectors(again.transform([*texts, *ODD]), expected)


def test_token_weights_without_those_of_a_prompt_are_refused(without_prompts, texts, tmp_path):
    encoder = BertEncoder(without_prompts, pooling="zipf", prompt="a dog ").fit(texts)
    with pytest.raises(ValueError, match=r"'zipf' with token .* of the prompt.*save_onnx"):
        save_sentence_transformer(encoder, tmp_path / "model")


def test_a_mean_without_the_first_token_is_refused(tiny_bert, texts, tmp_path):
    encoder = BertEncoder(tiny_bert, pooling="mean_without_first").fit(texts)
    with pytest.raises(
        ValueError, match=r"mean_without_first'\. Set pooling='mean', .*save_onnx"
    ):
        save_sentence_transformer(encoder, tmp_path / "model")


def test_a_folder_names_what_all_versions_know(tiny_bert, texts, tmp_path):
    encoder = BertEncoder(tiny_bert, layers=0, pooling="zipf")
    whitening = Whitening(6, power="auto")
    pipeline = make_pipeline(encoder, whitening, Normalizer()).fit(texts)
    umask = os.umask(0o027)
    try:
        save_sentence_transformer(pipeline, tmp_path / "model")
    finally:
        os.umask(umask)
    modules = json.loads((tmp_path / "model" / "modules.json").read_text())
    assert {module["type"].rpartition(".")[0] for module in modules} == {
        "sentence_transformers.models"
    }
    files = [path for path in (tmp_path / "model").rglob("*") if path.is_file()]
    assert {path.stat().st_mode & 0o777 for path in files} == {0o640}
    card = (tmp_path / "model" / "README.md").read_text()
    assert card.startswith("---\nlibrary_name: sentence-transformers\n")
    assert "vectors of 6 dimensions" in card
    assert "2. `Whitening(n_components=6, power='auto')`" in card
    assert tiny_bert not in card
    versions = card.partition("## Versions")[2]
    assert f"torch {torch.__version__.partition('+')[0]}" in versions
    assert pipeline[0].fingerprint_ in versions


def test_model_is_loaded_saved_and_run_where_there_is_no_skcalib(minilm, tmp_path, monkeypatch):
    texts = ["A man plays the flute.", "Snow fell all night, and more.", "", "?", "Music"]
    encoder = BertEncoder(minilm, pooling="zipf", layers=(0, 3))
    pipeline = make_pipeline(encoder, Whitening(3, power="auto"), Normalizer())
    model = BiEncoder(pipeline).fit(texts)
    save_sentence_transformer(model, tmp_path / "model")
    with monkeypatch.context() as without:
        for name in [name for name in sys.modules if name.split(".")[0] == "skcalib"]:
            without.setitem(sys.modules, name, None)  # an import fails
        loaded = package.SentenceTransformer(str(tmp_path / "model"), device="cpu")
        loaded.save(str(tmp_path / "again"))
        loaded = package.SentenceTransformer(str(tmp_path / "again"), device="cpu")
        vectors = loaded.encode(texts, batch_size=5)
    assert_equal_vectors(vectors, model.encoder_.transform(texts))
    assert_allclose(np.linalg.norm(vectors, axis=1), 1, rtol=1e-5)


@pytest.fixture
def normalized(tiny_bert_copy):
    """Folder of a model that ends with unit length."""
    folder = tiny_bert_copy()
    kinds, of = ("Transformer", "Pooling", "Normalize"), "sentence_transformers.models"
    modules = [
        {"idx": i, "name": str(i), "path": f"{i}_{kind}" if i else "", "type": f"{of}.{kind}"}
        for i, kind in enumerate(kinds)
    ]
    (folder / "1_Pooling").mkdir()
    (folder / "1_Pooling" / "config.json").write_text('{"pooling_mode": "mean"}')
    (folder / "modules.json").write_text(json.dumps(modules))
    return str(folder)


@pytest.mark.parametrize("last", [None, Normalizer()])
def test_a_model_of_unit_length_stays_one(last, normalized, texts, tmp_path):
    whitening = Whitening(6, power="auto")
    pipeline = make_pipeline(BertEncoder(normalized), whitening, last).fit(texts)
    raw = exported(pipeline, tmp_path / "lengths", normalize=False)
    assert_equal_vectors(raw.encode(texts), pipeline.transform(texts))
    message = "ends with Normalize.*normalize=False to keep"
    with nullcontext() if last else pytest.warns(UserWarning, match=message):
        model = exported(pipeline, tmp_path)
    found = model.encode(texts)
    assert_equal_vectors(found, normalize(pipeline.transform(texts)))
    assert_allclose(found @ found.T, model.similarity(found, found), atol=1e-6)
    kinds = [type(module).__name__ for module in model]
    assert kinds == ["Transformer", "Pooling", "Normalize", "Dense", "Dense", "Normalize"]
    assert "`Normalizer()`" in (tmp_path / "model" / "README.md").read_text()


@pytest.mark.parametrize("is_unit", [True, False])
def test_a_whitening_goes_after_the_module_that_made_the_vectors_of_its_fit(
    is_unit, normalized, texts
):
    modules = pytest.importorskip("sentence_transformers.models")
    encoder = BertEncoder(normalized, normalize=is_unit)
    whitening = Whitening(power="auto").fit(encoder.fit_transform(texts))
    expected = normalize(whitening.transform(encoder.transform(texts)))
    linear = whitening.linear_map()
    dense = modules.Dense(*linear.projection.shape, activation_function=torch.nn.Identity())
    dense.linear.weight.data = torch.tensor(linear.projection.T).float()
    bias = linear.bias - linear.mean @ linear.projection
    dense.linear.bias.data = torch.tensor(bias).float()
    pooled = modules.Transformer(normalized), modules.Pooling(len(linear.mean), "mean")
    calibrated = dense, modules.Normalize()
    chains = {True: [*pooled, modules.Normalize(), *calibrated], False: [*pooled, *calibrated]}
    found = {
        place: package.SentenceTransformer(modules=chain, device="cpu").encode(texts)
        for place, chain in chains.items()
    }
    assert_equal_vectors(found[is_unit], expected)
    cosines = (found[not is_unit] * expected).sum(axis=1)
    assert cosines.min() < 0.99  # and no error


SMALL = {
    "hidden_size": 16,
    "num_hidden_layers": 3,
    "num_attention_heads": 2,
    "intermediate_size": 32,
    "max_position_embeddings": 40,
    **{f"{name}_token_id": i for i, name in enumerate(("pad", "bos", "eos", "cls", "sep"))},
}


@pytest.mark.filterwarnings("ignore:.*were cut off")
@pytest.mark.parametrize(
    ("family", "params", "depth"),
    [
        ("Bert", {}, 1),
        ("BigBird", {"block_size": 2, "num_random_blocks": 1}, 1),  # attends to all tokens
        ("ModernBert", {}, 3),
        ("RobertaPreLayerNorm", {}, 3),
        ("Longformer", {"attention_window": [4, 4, 4]}, 3),
        ("Esm", {"token_dropout": True, "mask_token_id": 4}, 3),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_model_keeps_the_blocks_that_it_needs(
    family, params, depth, save_family, texts, tmp_path
):
    folder = save_family(family, **SMALL | params)
    calibrator = Whitening(4, power="auto")
    pipeline = make_pipeline(BertEncoder(folder, layers=1), calibrator).fit(texts)
    model = exported(pipeline, tmp_path)
    assert model[0].model.config.num_hidden_layers == depth
    texts = [*texts, "the [PAD] dog sleeps", "a [MASK] cat"]
    assert_equal_vectors(model.encode(texts), pipeline.transform(texts))


def test_frozen_and_inner_pipelines_are_followed(tiny_bert, texts, tmp_path):
    steps = BertEncoder(tiny_bert), "passthrough", Whitening(4, power="auto")
    inner = make_pipeline(*steps).fit(texts)
    outer = make_pipeline(FrozenEstimator(inner), Normalizer()).fit(texts)
    assert_equal_vectors(exported(outer, tmp_path).encode(texts), outer.transform(texts))


@pytest.mark.parametrize(
    "step",
    [
        PCA(5, whiten=True, random_state=0),
        make_pipeline(StandardScaler(), TruncatedSVD(5, random_state=0)),
        StandardScaler(with_std=False),
    ],
)
def test_linear_steps_of_scikit_learn_are_modules(step, tiny_bert, texts, tmp_path):
    pipeline = make_pipeline(BertEncoder(tiny_bert), step).fit(texts)
    assert_equal_vectors(exported(pipeline, tmp_path).encode(texts), pipeline.transform(texts))


@pytest.mark.filterwarnings("ignore:The flow was fitted on fewer")
@pytest.mark.parametrize(
    ("params", "calibrator", "message"),
    [
        ({"layers": (0, 1), "layer_merge": "concat"}, None, "layers side by.*layer_merge='me"),
        ({"pooling": "max_own"}, None, r"pooling='max_own'\. Set pooling='mean'"),
        ({}, NormalizingFlow(), r"a normalizing flow.*Whitening\(power='auto'\)"),
        ({}, NeighborSmoothing(), "NeighborSmoothing, a search.*Leave .*; or use save_onnx"),
        ({}, Normalizer("max"), r"Normalizer\(norm='max'\) cannot be exported.*\('l2'\)"),
        ({}, MinMaxScaler(), r"MinMaxScaler\(\) cannot be exported.* Norm"),
    ],
)
def test_what_has_no_module_is_refused(params, calibrator, message, tiny_bert, texts, tmp_path):
    pipeline = make_pipeline(BertEncoder(tiny_bert, **params), calibrator).fit(texts)
    with pytest.raises((TypeError, ValueError), match=message):
        save_sentence_transformer(pipeline, tmp_path / "model")
    assert not list(tmp_path.iterdir())


def test_a_model_that_padding_changes_is_refused(save_family, texts, tmp_path):
    folder = save_family("FNet", hidden_size=16, num_hidden_layers=3, intermediate_size=32)
    with pytest.raises(ValueError, match=r"of this FNetModel does not give the .*: padding"):
        save_sentence_transformer(BertEncoder(folder).fit(texts), tmp_path / "model")
    assert not list(tmp_path.iterdir())


def test_a_decoder_without_special_tokens_gives_the_vectors_of_all_texts_with_a_token(
    tiny_sink_decoder, texts, tmp_path
):
    pipeline = make_pipeline(BertEncoder(tiny_sink_decoder), Whitening(power="auto")).fit(texts)
    save_sentence_transformer(pipeline, tmp_path / "model")
    package = pytest.importorskip("sentence_transformers")
    found = package.SentenceTransformer(str(tmp_path / "model"), device="cpu").encode(
        ["", *texts]
    )
    assert_equal_vectors(found[1:], pipeline.transform(texts))


def test_an_interrupt_leaves_nothing(tiny_bert, texts, tmp_path, monkeypatch):
    def save(self, target, **_):
        (tmp_path / "seen").write_text(target)
        raise KeyboardInterrupt

    monkeypatch.setattr(package.SentenceTransformer, "save", save)
    with pytest.raises(KeyboardInterrupt):
        save_sentence_transformer(BertEncoder(tiny_bert).fit(texts), tmp_path / "model")
    assert [path.name for path in tmp_path.iterdir()] == ["seen"]


@pytest.mark.filterwarnings("ignore:.*were cut off")
def test_autocast_does_not_reach_an_export(tiny_bert, texts, tmp_path):
    pipeline = make_pipeline(BertEncoder(tiny_bert), Whitening(power="auto")).fit(texts)
    with torch.autocast("cpu", torch.bfloat16):
        model = exported(pipeline, tmp_path)
    assert_equal_vectors(model.encode(texts), pipeline.transform(texts).astype(np.float32))
