"""Pipelines on the embedding layer as tables of word vectors."""

import numpy as np
import pytest
from exported import exported
from numpy.testing import assert_allclose
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import Normalizer, normalize

from skcalib import BertEncoder, BiEncoder, NeighborSmoothing, NormalizingFlow, Whitening
from skcalib.export import save_static

package = pytest.importorskip("sentence_transformers", minversion="6")

MEAN = {"layers": 0, "pooling": "mean_own"}
ZIPF = {"layers": 0, "pooling": "zipf"}
ODD = ["?", "!!", "zzz", "zzz."]  # tokens of which none has a weight in "zipf"


@pytest.fixture
def without_positions(tiny_bert_copy):
    """Folder of a BERT whose positions all have one embedding: none is lost."""
    from transformers import AutoModel

    folder = tiny_bert_copy()
    model = AutoModel.from_pretrained(folder)
    weight = model.embeddings.position_embeddings.weight
    weight.data[:] = weight.data[3].clone()
    model.save_pretrained(folder)
    return str(folder)


@pytest.mark.filterwarnings("ignore:.*were cut off")
@pytest.mark.parametrize("params", [MEAN, ZIPF | {"max_length": 7}], ids=str)
def test_vectors_are_the_pipelines_without_positions(
    params, without_positions, texts, tmp_path
):
    encoder = BertEncoder(without_positions, **params)
    pipeline = make_pipeline(encoder, Whitening(6, power="auto")).fit(texts)
    found = exported(pipeline, tmp_path, save_static).encode([*texts, *ODD])
    expected = pipeline.transform([*texts, *ODD])
    if params["pooling"] == "zipf":
        expected = normalize(expected)
    assert_allclose(found, expected, atol=1e-5 * np.abs(expected).max())


@pytest.mark.parametrize("params", [MEAN, ZIPF], ids=str)
def test_special_tokens_in_a_text_do_not_turn_its_vector(
    params, without_positions, texts, tmp_path
):
    pipeline = make_pipeline(
        BertEncoder(without_positions, **params), Whitening(6, power="auto")
    )
    marked = ["a dog [SEP] sleeps", "[MASK] the house"]
    expected = normalize(pipeline.fit(texts).transform(marked))
    found = exported(pipeline, tmp_path, save_static).encode(marked)
    assert_allclose(normalize(found), expected, atol=1e-5)


def test_a_table_that_comes_back_otherwise_is_refused(tiny_bert, texts, tmp_path, monkeypatch):
    encode = package.SentenceTransformer.encode
    other = lambda *args, **params: 1.01 * encode(*args, **params)  # noqa: E731
    monkeypatch.setattr(package.SentenceTransformer, "encode", other)
    with pytest.raises(ValueError, match=r"export of this BertModel does not give .*itself"):
        save_static(BertEncoder(tiny_bert, **ZIPF).fit(texts), tmp_path / "model")
    assert not list(tmp_path.iterdir())


def test_positions_are_averaged(tiny_bert, texts, tmp_path):
    pipeline = make_pipeline(BertEncoder(tiny_bert, **MEAN), Normalizer()).fit(texts)
    model = exported(BiEncoder(pipeline, similarity="dot").fit(texts), tmp_path, save_static)
    backbone = pipeline[0]._backbone()
    ids = backbone.tokens.tokenizer("dog " * 17, add_special_tokens=False, return_tensors="pt")
    states = backbone.module.embeddings(ids["input_ids"])[0, 1:]
    expected = normalize(states.mean(dim=0, keepdim=True).numpy())
    assert_allclose(model.encode(["dog"]), expected, atol=1e-6)
    assert model.similarity_fn_name == "dot"
    assert not model.encode("").any()


@pytest.mark.filterwarnings("ignore:The flow was fitted on fewer")
@pytest.mark.parametrize(
    ("params", "steps", "message"),
    [
        (ZIPF | {"layers": (0, 1)}, [], r"hold layers=\(0, 1\). Set layers=0"),
        (MEAN | {"pooling": "max"}, [], r"pooling='max'\. Set pooling='zipf'"),
        ({"layers": 0}, [], r"pooling='mean'\. Set pooling='zipf' or 'mean_own'"),
        (ZIPF | {"prompt": "the "}, [], r"the prompt 'the '. Set prompt=''"),
        (ZIPF, [NormalizingFlow()], r"a normalizing flow.*; or use save_onnx\."),
        (ZIPF, [NeighborSmoothing()], r"NeighborSmoothing, a search.*; or use save_onnx\."),
        (ZIPF, [Normalizer(), Whitening(power="auto")], r"before the last step"),
    ],
)
def test_what_is_no_mean_of_words_is_refused(
    params, steps, message, tiny_bert, texts, tmp_path
):
    pipeline = make_pipeline(BertEncoder(tiny_bert, **params), *steps).fit(texts)
    with pytest.raises(ValueError, match=message):
        save_static(pipeline, tmp_path / "model")
    assert not list(tmp_path.iterdir())
