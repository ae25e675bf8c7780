"""Finding, checking and loading models."""

import pickle

import numpy as np
import pytest
from numpy.testing import assert_array_equal

from skcalib import BertEncoder


@pytest.mark.parametrize("model", ["no-such/model", "no such model", "./not-there", "a/b/c"])
def test_missing_model_names_id_cache_and_remedy(model):
    with pytest.raises(
        OSError, match=rf"(?s){model}.*neither a local folder nor in the cache.*offline"
    ):
        BertEncoder(model).fit(["dog"])


def test_missing_revision_is_named():
    with pytest.raises(OSError, match="'no-such/model' at revision 'v2'"):
        BertEncoder("no-such/model", revision="v2").fit(["dog"])


def test_folder_without_config_is_no_model(tmp_path):
    with pytest.raises(OSError, match=r"holds no config\.json.*save_pretrained"):
        BertEncoder(str(tmp_path)).fit(["dog"])


def test_only_safetensors_are_loaded(tiny_bert_copy):
    folder = tiny_bert_copy()
    (folder / "model.safetensors").unlink()

    class Bomb:
        def __reduce__(self):
            return exec, ("raise SystemExit('code ran')",)

    (folder / "pytorch_model.bin").write_bytes(pickle.dumps(Bomb()))
    with pytest.raises(ValueError, match=r"no \*\.safetensors weights.*can run code"):
        BertEncoder(str(folder)).fit(["dog"])


def test_remote_code_never_runs(tiny_bert_copy, edit_json):
    folder = tiny_bert_copy()
    (folder / "evil.py").write_text("raise SystemExit('code ran')")
    auto_map = {"AutoModel": "evil.Model", "AutoConfig": "evil.Config"}
    edit_json(folder / "config.json", auto_map=auto_map)
    edit_json(folder / "tokenizer_config.json", auto_map={"AutoTokenizer": [None, "evil.T"]})
    # A known architecture is built from the library's own code, whatever the folder says.
    BertEncoder(str(folder)).fit_transform(["dog"])
    edit_json(folder / "config.json", model_type="evil")
    with pytest.raises(ValueError, match=r"could not be loaded"):
        BertEncoder(str(folder)).fit(["dog"])


def test_weights_that_do_not_fill_the_model_are_refused(tiny_bert_copy, edit_json):
    folder = tiny_bert_copy()
    edit_json(folder / "config.json", num_hidden_layers=5)
    with pytest.raises(
        ValueError, match=r"lack 32 tensors of BertModel, such as 'encoder\.layer"
    ):
        BertEncoder(str(folder)).fit(["dog"])


@pytest.mark.parametrize("content", [b"", b"\x00" * 100, b'{"half": '])
def test_broken_weights_are_refused(tiny_bert_copy, content):
    folder = tiny_bert_copy()
    (folder / "model.safetensors").write_bytes(content)
    with pytest.raises(ValueError, match="could not be loaded"):
        BertEncoder(str(folder)).fit(["dog"])


def test_cached_snapshot_is_used_offline(tiny_bert_copy, tmp_path, monkeypatch, texts):
    """A hub id resolves to what the cache holds, without asking anybody."""
    from huggingface_hub import constants

    commit = "0" * 40
    repo = tmp_path / "models--someone--tiny"
    (repo / "snapshots").mkdir(parents=True)
    folder = tiny_bert_copy()
    folder.rename(repo / "snapshots" / commit)
    (repo / "refs").mkdir()
    (repo / "refs" / "main").write_text(commit)
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path))
    vectors = BertEncoder("someone/tiny").fit_transform(texts)
    local = BertEncoder(str(repo / "snapshots" / commit)).fit_transform(texts)
    assert_array_equal(vectors, local)


def test_loading_is_quiet(tiny_bert_copy, capfd, caplog):
    BertEncoder(str(tiny_bert_copy())).fit(["dog"])
    assert capfd.readouterr() == ("", "")
    assert not caplog.records


def test_fingerprint_follows_content_not_place(tiny_bert, tiny_bert_copy):
    here = BertEncoder(tiny_bert).fit(["dog"]).fingerprint_
    folder = tiny_bert_copy()
    assert BertEncoder(folder).fit(["dog"]).fingerprint_ == here
    vocabulary = folder / "tokenizer.json"
    vocabulary.write_text(vocabulary.read_text().replace('"dog"', '"hound"'))
    assert BertEncoder(folder).fit(["dog"]).fingerprint_ != here


def test_registry_is_bounded(make_bert, tmp_path, monkeypatch):
    import skcalib._backbone as backbone

    monkeypatch.setattr(backbone, "MAX_LOADED", 2)
    monkeypatch.setattr(backbone, "_loaded", type(backbone._loaded)())
    for seed in range(4):
        folder = make_bert(tmp_path / str(seed), seed=seed, layers=1, width=4)
        BertEncoder(folder).fit_transform(["dog"])
    assert len(backbone._loaded) == 2


def test_random_generator_of_torch_is_left_alone(tiny_bert, texts):
    import torch

    before = torch.get_rng_state()
    BertEncoder(tiny_bert).fit_transform(texts)
    assert np.array_equal(before, torch.get_rng_state())
