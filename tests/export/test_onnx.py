"""Pipelines as ONNX graphs, run by onnxruntime."""

import sys
from itertools import product
from pathlib import Path

import numpy as np
import pytest
import torch
from exported import assert_equal_vectors
from sklearn.frozen import FrozenEstimator
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import Normalizer

from skcalib import BertEncoder, NeighborSmoothing, NormalizingFlow, Whitening
from skcalib.encoders.recipe import POOLINGS
from skcalib.export import save_onnx
from skcalib.export._modules import PaddedPipeline
from skcalib.export._parts import take_apart

ODD = ["", "?", "!!", "zzz", "zzz.", "dog", "dog dog dog", "the " * 99, "\U0001f600"]

# torch takes some 7 s for a graph of one layer. So each graph here shows several things.
# One of the texts is longer than the model takes.
pytestmark = pytest.mark.filterwarnings("ignore:.*were cut off")


@pytest.fixture
def one_layer(make_bert, tmp_path_factory):
    """Folder of a BERT of one layer, whose prompts are not pooled."""
    folder = Path(make_bert(tmp_path_factory.mktemp("models") / "one", layers=1, width=8))
    (folder / "1_Pooling").mkdir()
    (folder / "1_Pooling" / "config.json").write_text('{"include_prompt": false}')
    return str(folder)


@pytest.fixture
def runtime():
    """Return onnxruntime, or skip where the extra is missing."""
    for name in ("onnx", "onnxscript", "onnxruntime"):
        pytest.importorskip(name, reason=f"{name}, of the extra onnx, is not installed")
    return sys.modules["onnxruntime"]


def tokenized(encoder, texts):
    """Ids and mask of texts in their prompts, by the model's tokenizer alone."""
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(encoder.model)
    before, _, after = encoder.prompt_.partition("{text}")
    most, n_before = encoder.max_length_, 1 + len(before.split())
    n_after, is_left = 1 + len(after.split()), encoder.overflow == "cut_left"
    rows = []
    for ids in tokenizer([before + text + after for text in texts], verbose=False)["input_ids"]:
        if len(ids) > most:
            stop = n_before if is_left else most - n_after
            ids = ids[:stop] + ids[len(ids) - most + stop :]
        rows.append({"input_ids": ids})
    return tokenizer.pad(rows, return_tensors="np")


def encode(runtime, path, encoder, texts):
    """Vectors of the graph."""
    inputs = tokenized(encoder, texts)
    session = runtime.InferenceSession(path, providers=["CPUExecutionProvider"])
    assert [i.name for i in session.get_inputs()] == ["input_ids", "attention_mask"]
    return session.run(["sentence_embedding"], dict(inputs))[0]


ZIPF = {"pooling": "zipf", "layers": (0, 1), "layer_merge": "concat", "max_length": 7}
ZIPF |= {"truncate_dim": 6}
MAX = {"pooling": "max_own", "prompt": "a red {text} dog", "max_length": 12}
MAX |= {"overflow": "cut_left"}
FLOW = {"depth": 1}


@pytest.mark.parametrize(
    "pooling",
    [name for name in POOLINGS if name != "zipf"],
)
@pytest.mark.parametrize("prompt", ["", "a red dog ", "a red {text} dog is"])
def test_what_becomes_a_graph_pools_padded_texts(pooling, prompt, without_prompts, texts):
    """Without torch's export, which takes long."""
    settings = {"pooling": pooling, "prompt": prompt}
    encoder = BertEncoder(without_prompts, layers=(1, -1), **settings).fit(texts)
    graph = PaddedPipeline(take_apart(encoder)).eval()
    with torch.inference_mode():
        found = graph(*map(torch.from_numpy, tokenized(encoder, [*texts, *ODD]).values()))
    assert_equal_vectors(found.numpy(), encoder.transform([*texts, *ODD]))


def test_a_text_of_one_token_is_that_token(tiny_sink_decoder):
    texts = ["dog", "dog cat", "d"]
    encoder = BertEncoder(tiny_sink_decoder, pooling="mean_without_first", layers=1).fit(texts)
    graph = PaddedPipeline(take_apart(encoder)).eval()
    ids = [[7, 7], [9, 0]]
    with torch.inference_mode():
        found = graph(torch.tensor(ids), torch.tensor([[1, 1], [1, 0]])).numpy()
    tokenizer = take_apart(encoder).backbone().tokens.tokenizer
    assert_equal_vectors(
        found, encoder.transform([tokenizer.decode(ids[0]), tokenizer.decode(9)])
    )


@pytest.mark.parametrize("pooling", ["mean", "last", "mean_without_first"])
def test_an_empty_text_without_special_tokens_has_the_vector_of_the_pipeline(
    pooling, tiny_sink_decoder
):
    encoder = BertEncoder(tiny_sink_decoder, pooling=pooling).fit(["dog"])
    graph = PaddedPipeline(take_apart(encoder)).eval()
    inputs = tokenized(encoder, texts := ["", "dog", "a cat"])
    assert inputs["attention_mask"][0].sum() == 0
    with torch.inference_mode():
        found = graph(*map(torch.from_numpy, inputs.values())).numpy()
    assert_equal_vectors(found, encoder.transform(texts))


@pytest.mark.filterwarnings("ignore:The flow was fitted on fewer")
def test_graph_gives_the_vectors_of_the_pipeline(runtime, one_layer, texts, tmp_path):
    path = tmp_path / "model.onnx"
    texts = [*texts, *texts[:3], *ODD[:5]]
    steps = BertEncoder(one_layer, **MAX), NormalizingFlow(random_state=0, **FLOW)
    pipeline = make_pipeline(*steps).fit(texts)
    save_onnx(pipeline, path)
    assert [*tmp_path.iterdir()] == [path]
    for some in [*texts, *ODD], texts[:1]:
        assert_equal_vectors(encode(runtime, path, pipeline[0], some), pipeline.transform(some))
    written = runtime.InferenceSession(path).get_modelmeta().custom_metadata_map
    assert written["prompt"] == "a red {text} dog"
    assert (written["tokens_before"], written["tokens_after"]) == ("3", "2")


def test_smoothed_vectors_are_right_and_others_are_refused(
    runtime, one_layer, other_bert, texts, tmp_path, monkeypatch
):
    export, programs = torch.onnx.export, []

    def of_the_first(*args, **params):
        programs[:] = programs or [export(*args, **params)]
        return programs[0]

    monkeypatch.setattr(torch.onnx, "export", of_the_first)
    encoder, path = BertEncoder(one_layer, **ZIPF), tmp_path / "model.onnx"
    steps = encoder, Whitening(6, power="auto"), Normalizer()
    front = make_pipeline(*steps).fit([*texts, *ODD[:5]])
    entries = np.array([*product([-0.5, 0, 0.5], repeat=6)])
    known = entries[(entries != 0).sum(axis=1) == 4]
    smoothing = NeighborSmoothing(4).fit(known), NeighborSmoothing(99, weight=0.5).fit(known)
    pipeline = make_pipeline(FrozenEstimator(front), *smoothing)
    save_onnx(pipeline, path)
    for some in [*texts, *ODD], texts[:1]:
        assert_equal_vectors(encode(runtime, path, encoder, some), pipeline.transform(some))
    with pytest.raises(ValueError, match=r"The export .* vectors: padding changes"):
        save_onnx(BertEncoder(other_bert, truncate_dim=6).fit(texts), tmp_path / "other.onnx")
    assert not (tmp_path / "other.onnx").exists()


def test_a_graph_that_cannot_be_run_is_refused(runtime, save_family, texts, tmp_path):
    folder = save_family("FNet", hidden_size=16, num_hidden_layers=1, intermediate_size=32)
    with pytest.raises(ValueError, match=r"The export of this FNetModel .*itself"):
        save_onnx(BertEncoder(folder).fit(texts), tmp_path / "model.onnx")
    assert not list(tmp_path.iterdir())


@pytest.mark.filterwarnings("ignore")  # of torch and transformers, about what is slow
def test_a_graph_of_one_length_is_refused(runtime, save_family, texts, tmp_path):
    folder = save_family("Mamba", hidden_size=16, num_hidden_layers=1, state_size=4)
    with pytest.raises(ValueError, match=r"of the shape \['n_texts', 40\] only\. Encode with"):
        save_onnx(BertEncoder(folder, pooling="mean").fit(texts), tmp_path / "model.onnx")
    assert not list(tmp_path.iterdir())


def test_a_folder_is_no_file(runtime, tiny_bert, texts, tmp_path):
    with pytest.raises(FileExistsError, match=r"exists already\. Give a new path"):
        save_onnx(BertEncoder(tiny_bert).fit(texts), tmp_path)
