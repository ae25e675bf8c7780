"""Where a model is looked for, and what is said where there is none."""

import shutil
from pathlib import Path

import numpy as np
import pytest
from sklearn.pipeline import make_pipeline

from skcalib import BertEncoder, Whitening


@pytest.mark.parametrize(
    "model", ["/no/such/folder", "./file", "../model", "~/no/such/model", "a/b/c", "a b", "."]
)
def test_a_path_without_a_model_is_no_hub_id(model, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("file").touch()
    with pytest.raises(
        FileNotFoundError, match=r"is not a folder with a config\.json"
    ) as caught:
        BertEncoder(model).fit(["a"])
    assert "hf download" not in str(caught.value)
    assert "~" not in str(caught.value)


@pytest.mark.parametrize("model", ["bert-base-nowhere", "nobody/no-such-model"])
def test_a_hub_id_that_is_not_there_says_how_to_work_offline(model):
    message = f"'{model}' at revision 'v2' is neither a local folder nor complete in the cache"
    message += f"(?s:.*)hf download {model}"
    with pytest.raises(OSError, match=message) as caught:
        BertEncoder(f"{model}@v2").fit(["a"])
    in_full = "which may need its owner in front, as in sentence-transformers/all-MiniLM-L6-v2"
    assert (in_full in str(caught.value)) == ("/" not in model)


def test_minilm_is_the_embedded_model_unless_a_folder_has_that_name(
    minilm, tiny_bert, tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    for folder in (minilm, tiny_bert):
        if folder == tiny_bert:
            shutil.copytree(tiny_bert, "minilm")
        expected = BertEncoder(folder).fit_transform(["dog"])
        np.testing.assert_array_equal(BertEncoder("minilm").fit_transform(["dog"]), expected)


def test_the_home_folder_may_be_written_as_a_tilde(tiny_bert, monkeypatch):
    monkeypatch.setenv("HOME", str(Path(tiny_bert).parent))
    vectors = BertEncoder(f"~/{Path(tiny_bert).name}").fit_transform(["dog"])
    np.testing.assert_array_equal(vectors, BertEncoder(tiny_bert).fit_transform(["dog"]))


def test_a_pipeline_is_told_where_its_model_went(tiny_bert_copy, texts, tmp_path):
    folder = tiny_bert_copy()
    pipeline = make_pipeline(BertEncoder(folder), Whitening(power="auto")).fit(texts)
    expected = pipeline.transform(texts)
    moved = shutil.move(folder, tmp_path / "moved")
    with pytest.raises(OSError, match=r"set_params\(bertencoder__model=folder\)"):
        pipeline.transform(texts)
    pipeline.set_params(bertencoder__model=moved)
    assert (pipeline.transform(texts) == expected).all()
