"""Pipelines as ONNX graphs, run by onnxruntime."""

import sys

import numpy as np
import pytest
from numpy.testing import assert_allclose
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import Normalizer

from skcalib import BertEncoder, BiEncoder, GroupErasure, NormalizingFlow, Whitening
from skcalib.export import save_onnx
from skcalib.export._parts import take_apart

ODD = ["", "?", "!!", "zzz", "zzz."]


@pytest.fixture
def runtime():
    """Return onnxruntime, or skip where the extra is missing."""
    for name in ("onnx", "onnxscript", "onnxruntime"):
        pytest.importorskip(name, reason=f"{name}, of the extra onnx, is not installed")
    return sys.modules["onnxruntime"]


def encode(runtime, path, encoder, texts):
    """Vectors of the graph; prompts and texts tokenised by the model's tokenizer alone."""
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(encoder.model)
    inputs = tokenizer(
        [encoder.prompt_ + text for text in texts],
        padding=True,
        truncation=True,
        max_length=encoder.max_length_,
        return_token_type_ids=False,
        return_tensors="np",
    )
    session = runtime.InferenceSession(path, providers=["CPUExecutionProvider"])
    assert [i.name for i in session.get_inputs()] == ["input_ids", "attention_mask"]
    return session.run(["sentence_embedding"], dict(inputs))[0]


def assert_equal_vectors(found, expected):
    """Equal to 1e-4 of a typical entry, the root mean square."""
    typical = np.sqrt(np.mean(np.square(expected, dtype=np.float64)))
    assert found.dtype == np.float32
    assert_allclose(found, expected, rtol=0, atol=1e-4 * typical)


@pytest.mark.filterwarnings("ignore:.*were cut off")
@pytest.mark.parametrize(
    "params",
    [
        {"pooling": "max", "special_tokens": False, "layers": (0, 2), "layer_merge": "concat"},
        {"pooling": "zipf", "layers": "first_last", "max_length": 7},
        {"pooling": "last", "prompt": "the dog "},
    ],
    ids=str,
)
def test_graph_gives_the_vectors_of_the_pipeline(
    params, runtime, tiny_bert, without_prompts, texts, tmp_path
):
    folder = without_prompts if "prompt" in params else tiny_bert
    encoder = BertEncoder(folder, **params)
    pipeline = make_pipeline(encoder, Whitening(6, noise="auto"), Normalizer()).fit(texts)
    save_onnx(pipeline, tmp_path / "model.onnx")
    assert [path.name for path in tmp_path.iterdir()] == ["model.onnx"]
    found = encode(runtime, tmp_path / "model.onnx", encoder, [*texts, *ODD])
    assert_equal_vectors(found, pipeline.transform([*texts, *ODD]))
    one = encode(runtime, tmp_path / "model.onnx", encoder, texts[:1])
    assert_equal_vectors(one, pipeline.transform(texts[:1]))


@pytest.mark.parametrize(
    "params",
    [
        {"pooling": "cls"},
        {"pooling": "last"},
        {"pooling": "weighted_mean"},
        {"pooling": "mean_sqrt_len", "special_tokens": False, "layers": 2},
        {"pooling": "zipf"},
        {"pooling": "max", "special_tokens": False},
    ],
    ids=lambda params: params["pooling"],
)
def test_tokens_of_a_prompt_are_not_pooled(params, without_prompts, texts):
    from skcalib.export._graph import PaddedPipeline

    encoder = BertEncoder(without_prompts, prompt="a red dog ", **params).fit(texts)
    parts = take_apart(encoder, "save_it")
    tokenizer = parts.backbone().tokenizer
    prompted = [encoder.prompt_ + text for text in [*texts, *ODD]]
    inputs = tokenizer(prompted, padding=True, return_tensors="pt")
    found = PaddedPipeline(parts)(inputs["input_ids"], inputs["attention_mask"])
    assert_equal_vectors(found.numpy(), encoder.transform([*texts, *ODD]))


def test_graph_holds_a_flow(runtime, tiny_bert, texts, tmp_path):
    params = {"coupling": "affine", "permutation": "lu", "noise": "auto"}
    flow = NormalizingFlow(max_epochs=3, random_state=0, **params)
    model = BiEncoder(make_pipeline(BertEncoder(tiny_bert), flow)).fit(texts)
    pipeline = model.encoder_
    save_onnx(model, tmp_path / "model.onnx")
    found = encode(runtime, tmp_path / "model.onnx", pipeline[0], [*texts, *ODD])
    assert_equal_vectors(found, pipeline.transform([*texts, *ODD]))


@pytest.mark.filterwarnings("ignore:.*groups have fewer than 20")
def test_graph_erases_groups(runtime, tiny_bert, texts, tmp_path):
    pipeline = make_pipeline(BertEncoder(tiny_bert, layers=1), GroupErasure(), Normalizer())
    pipeline.fit(texts, grouperasure__groups=["short", "long", "odd"] * 4)
    save_onnx(pipeline, tmp_path / "model.onnx")
    found = encode(runtime, tmp_path / "model.onnx", pipeline[0], [*texts, *ODD])
    assert_equal_vectors(found, pipeline.transform([*texts, *ODD]))


def test_a_graph_that_cannot_be_run_is_refused(runtime, save_family, texts, tmp_path):
    folder = save_family("FNet", hidden_size=16, num_hidden_layers=3, intermediate_size=32)
    with pytest.raises(ValueError, match=r"FNetModel could not be exported to ONNX: .*itself"):
        save_onnx(BertEncoder(folder).fit(texts), tmp_path / "model.onnx")
    assert not list(tmp_path.iterdir())


@pytest.mark.usefixtures("runtime")
def test_a_graph_that_gives_other_vectors_is_refused(tiny_bert, texts, tmp_path, monkeypatch):
    from skcalib.export._graph import PaddedPipeline

    monkeypatch.setattr(PaddedPipeline, "_pool", lambda self, hidden, *_: hidden[:, 0])
    with pytest.raises(ValueError, match="ONNX: other vectors"):
        save_onnx(BertEncoder(tiny_bert).fit(texts), tmp_path / "model.onnx")
    assert not list(tmp_path.iterdir())


def test_a_folder_is_no_file(runtime, tiny_bert, texts, tmp_path):
    with pytest.raises(IsADirectoryError, match=r"is a folder; save_onnx .* such as .*onnx"):
        save_onnx(BertEncoder(tiny_bert).fit(texts), tmp_path)


def test_missing_extra_is_named(tiny_bert, texts, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "onnx", None)
    with pytest.raises(ImportError, match=r"save_onnx needs.*pip install skcalib\[onnx\]"):
        save_onnx(BertEncoder(tiny_bert).fit(texts), tmp_path / "model.onnx")
