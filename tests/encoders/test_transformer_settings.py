"""What a folder declares of its transformer is read, or refused by name."""

import json
import re

import numpy as np
import pytest
from exported import exported
from safetensors.numpy import load_file, save_file

from skcalib import BertEncoder

package = pytest.importorskip("sentence_transformers", minversion="6")

TEXTS = ["The Dog", "a CAT and the dog", "dog", "the cat dog " * 4, "a " * 30 + "dog House"]
FILE = "sentence_bert_config.json"
MODULES = ["Transformer", "Pooling"]
FORWARD = {"method": "forward", "method_output_name": "last_hidden_state"}


@pytest.fixture
def folder(tiny_bert_copy):
    """Return a function that writes files, as entries added to what is there, and modules."""
    folder = tiny_bert_copy()

    def write(files, modules=MODULES):
        listed = [
            {"path": f"{i}_{kind}" if i else "", "type": f"sentence_transformers.models.{kind}"}
            for i, kind in enumerate(modules)
        ]
        (folder / "1_Pooling").mkdir()
        (folder / "1_Pooling" / "config.json").write_text('{"word_embedding_dimension": 16}')
        (folder / "modules.json").write_text(
            json.dumps([{"idx": i, "name": str(i), **one} for i, one in enumerate(listed)])
        )
        for name, content in files.items():
            path = folder / name
            before = json.loads(path.read_text()) if path.exists() else {}
            path.write_text(json.dumps(before | content))
        return folder

    return write


def assert_as_theirs(vectors, folder):
    expected = package.SentenceTransformer(str(folder), device="cpu").encode(TEXTS)
    lengths = np.linalg.norm(vectors, axis=1) * np.linalg.norm(expected, axis=1)
    assert np.min(np.sum(vectors * expected, axis=1) / lengths) > 1 - 1e-4


pytestmark = pytest.mark.filterwarnings("ignore:.*cut off")


@pytest.mark.parametrize(
    "files",
    [
        {FILE: {"max_seq_length": 9}},
        {FILE: {"max_seq_length": 9, "do_lower_case": True}},
        {"sentence_xlm-roberta_config.json": {"max_seq_length": 9}},
        {"sentence_roberta_config.json": {"max_seq_length": 9, "do_lower_case": True}},
        {FILE: {"max_seq_length": 8}, "tokenizer_config.json": {"truncation_side": "left"}},
        {FILE: {"transformer_task": "feature-extraction", "unpad_inputs": False}},
        {
            FILE: {
                "modality_config": {"text": FORWARD},
                "module_output_name": "token_embeddings",
            }
        },
    ],
    ids=str,
)
def test_transformer_settings_are_read_as_theirs(folder, files):
    path = folder(files)
    assert_as_theirs(BertEncoder(path).fit_transform(TEXTS), path)


@pytest.mark.parametrize(
    ("entry", "named"),
    [
        ({"processing_kwargs": {"text": {"add_special_tokens": False}}}, "processing_kwargs"),
        ({"modality_config": {"text": {"method_output_name": "pooler_output"}}}, "modality"),
        ({"modality_config": {"text": FORWARD, "message": FORWARD}}, "modality_config"),
        ({"transformer_task": "fill-mask"}, "transformer_task"),
        ({"some_later_entry": 1}, "some_later_entry"),
    ],
    ids=str,
)
def test_transformer_settings_that_are_not_read_are_refused_by_name(folder, entry, named):
    path = folder({FILE: entry})
    with pytest.raises(ValueError, match=rf"{FILE}.* declares .*{re.escape(named)}"):
        BertEncoder(path).fit(TEXTS)


def test_lower_case_is_refused_for_a_tokenizer_of_both(folder, edit_json):
    path = folder({FILE: {"do_lower_case": True}})
    edit_json(path / "tokenizer.json", normalizer=None)
    with pytest.raises(ValueError, match="declares do_lower_case, but its tokenizer"):
        BertEncoder(path).fit(TEXTS)


@pytest.mark.parametrize("modules", [["Transformer"], ["Transformer", "Normalize"]])
def test_a_transformer_alone_is_pooled_by_the_mean(folder, modules):
    assert BertEncoder(folder({}, modules)).fit(TEXTS).pooling_ == "mean"


def test_truncation_side_keeps_the_end_of_a_long_text(tiny_bert, tmp_path):
    words = [f"{'dog cat a '[i % 3 * 4 : i % 3 * 4 + 3].strip()}" for i in range(40)]
    long, end = " ".join(words), " ".join(words[-6:])
    keeps = {"max_length": 8, "overflow": "cut_left"}
    encoder = BertEncoder(tiny_bert, **keeps)
    vectors = encoder.fit_transform([long])
    np.testing.assert_allclose(vectors, encoder.transform([end]), atol=1e-6)
    model = exported(encoder, tmp_path)
    np.testing.assert_allclose(model.encode([long]), vectors, atol=1e-5)


def test_quantized_weights_are_refused(tiny_bert_copy):
    path = tiny_bert_copy()
    file = path / "model.safetensors"
    quantized = {name: weight.astype(np.int8) for name, weight in load_file(file).items()}
    save_file(quantized, file, {"format": "pt"})
    with pytest.raises(ValueError, match="weights in I8"):
        BertEncoder(path).fit(TEXTS)
