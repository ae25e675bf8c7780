"""Finding, checking and loading models."""

import json
import os
import pickle
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
import transformers
from numpy.testing import assert_array_equal
from safetensors.torch import load_file, save_file

from skcalib import BertEncoder

IS_OLD = int(transformers.__version__.partition(".")[0]) < 5
# Then all weights of the folder seem to lack that prefix, and the message names one of them.
by_prefix = pytest.mark.skipif(IS_OLD, reason="transformers 4 takes bert. for a prefix of all")


def check_refused(folder, match):
    with pytest.raises(ValueError, match=match):
        BertEncoder(folder).fit(["dog"])


def test_only_safetensors_are_loaded(tiny_bert_copy):
    folder = tiny_bert_copy()
    (folder / "model.safetensors").unlink()

    class Bomb:
        def __reduce__(self):
            return exec, ("raise SystemExit('code ran')",)

    (folder / "pytorch_model.bin").write_bytes(pickle.dumps(Bomb()))
    check_refused(folder, r"no weights in model\.safetensors .*, only in pytorch_model\.bin\. ")


def test_configs_of_odd_entries_are_read_or_refused_by_name(tiny_bert_copy, edit_json, texts):
    folder = tiny_bert_copy()
    expected = BertEncoder(folder).fit_transform(texts)
    edit_json(folder / "config.json", return_dict=False)
    assert_array_equal(BertEncoder(folder).fit_transform(texts), expected)
    edit_json(folder / "config.json", add_cross_attention=True)
    check_refused(folder, "config.json declares add_cross_attention")


@pytest.mark.parametrize(
    "name",
    [
        "model-1/../../x.safetensors",
        "weights.safetensors",  # which the fingerprint would not cover
        "model-1\n.safetensors",
        7,
    ],
)
def test_weights_elsewhere_are_refused(tiny_bert_copy, name):
    folder = tiny_bert_copy()
    (folder / "model.safetensors").rename(folder / "model-1.safetensors")
    index = folder / "model.safetensors.index.json"
    index.write_text(json.dumps({"metadata": {}, "weight_map": {"x": name}}))
    check_refused(folder, r"names the file .*in the same folder")


def test_weights_in_several_files_are_read(tiny_bert, tiny_bert_copy, texts):
    folder = tiny_bert_copy()
    tensors = load_file(folder / "model.safetensors")
    (folder / "model.safetensors").unlink()
    weight_map = {}
    for i, names in enumerate(np.array_split(sorted(tensors), 2), start=1):
        file = f"model-0000{i}-of-00002.safetensors"
        save_file({n: tensors[n] for n in names}, folder / file, metadata={"format": "pt"})
        weight_map |= dict.fromkeys(names.tolist(), file)
    index = {"metadata": {}, "weight_map": weight_map}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    vectors = BertEncoder(folder).fit_transform(texts)
    assert_array_equal(vectors, BertEncoder(tiny_bert).fit_transform(texts))


@pytest.mark.parametrize("name", ["model.safetensors", "config.json", "tokenizer.json"])
def test_a_link_out_of_the_folder_is_refused(tiny_bert_copy, tmp_path, name):
    folder = tiny_bert_copy()
    encoder = BertEncoder(folder).fit(["dog"])  # checked, which must not last
    (folder / name).rename(tmp_path / "elsewhere")
    (folder / name).symlink_to(tmp_path / "elsewhere")
    for use in (encoder.transform, encoder.fit):
        with pytest.raises(ValueError, match=rf"{name} links to .*Copy that file into it"):
            use(["dog"])
    link = tmp_path / "link"
    link.symlink_to(tiny_bert_copy())  # a link to the folder itself is no matter
    BertEncoder(link).fit(["dog"])


@pytest.mark.parametrize("name", ["adapter_config.json", "adapter_model.safetensors"])
def test_an_adapter_is_refused(tiny_bert_copy, name):
    folder = tiny_bert_copy()
    BertEncoder(folder).fit(["dog"])  # checked, which must not last
    (folder / name).write_text("{}")
    check_refused(folder, r"adapter to a model\. Merge the two")


def test_weights_that_are_not_read_are_refused(tiny_bert_copy):
    folder = tiny_bert_copy()
    whole, shard = folder / "model.safetensors", folder / "model-00001-of-00001.safetensors"
    shard.write_bytes(whole.read_bytes())
    check_refused(folder, r"not read, 'model-0.*, next to 'model\.safetensors'\. Delete")
    whole.unlink()
    check_refused(folder, r"not read, 'model-0.*, next to 'no index'\.")
    index = {"metadata": {}, "weight_map": dict.fromkeys(load_file(shard), shard.name)}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    BertEncoder(folder).fit(["dog"])
    (folder / "model-00002-of-00001.safetensors").write_bytes(shard.read_bytes())
    check_refused(folder, r"not read, 'model-00002.*, next to 'model-00001")


@pytest.mark.parametrize(
    ("entry", "value", "match"),
    [
        ("model_type", "evil", "cannot be used"),
        ("hidden_size", 24, "cannot be used in torch.float32 on cpu: RuntimeError"),
        ("hidden_act", "no such", "cannot be used in torch.float32 on cpu: KeyError"),
        ("num_hidden_layers", "many", "cannot be used"),
        ("num_hidden_layers", 5, r"lack 32 tensors of BertModel, such as 'encoder\.layer"),
        ("num_hidden_layers", 10**5, r"declares 100000 layers, but has \d+ tensors"),
    ],
)
def test_a_config_of_another_model_is_refused(tiny_bert_copy, edit_json, entry, value, match):
    folder = tiny_bert_copy()
    edit_json(folder / "config.json", **{entry: value})
    check_refused(folder, match)


@pytest.mark.parametrize("left", [(), ("tokenizer_config.json",), ("vocab.json",)])
def test_a_model_without_a_vocabulary_is_refused(tiny_bert_copy, edit_json, left):
    """transformers makes up a tokenizer of five tokens, to which all texts are alike."""
    folder = tiny_bert_copy()
    edit_json(folder / "tokenizer_config.json", tokenizer_class="RobertaTokenizer")
    (folder / "vocab.json").write_text('{"<unk>": 0, "dog": 1}')  # without merges.txt
    for file in folder.iterdir():
        if file.name not in ("model.safetensors", "config.json", *left):
            file.unlink()
    message = r"lacks the vocabulary of a \w+, .*(vocab|merges)\.txt"
    if IS_OLD:
        message = "cannot be used"  # old releases do not make one up
    check_refused(folder, message)


def test_a_vocabulary_of_another_size_is_refused(make_bert, tmp_path):
    folder = Path(make_bert(tmp_path / "new", words=[f"word{i}" for i in range(600)]))
    words = [*json.loads((folder / "tokenizer.json").read_text())["model"]["vocab"], "more"]
    (folder / "tokenizer.json").unlink()
    (folder / "tokenizer_config.json").write_text('{"tokenizer_class": "BertTokenizer"}')
    for n in (609, 609 - 128):  # rows that pad the table to a multiple are common
        (folder / "vocab.txt").write_text("\n".join(words[:n]))
        BertEncoder(folder).fit(["dog"])
    for n in (610, 300, 0):
        (folder / "vocab.txt").write_text("\n".join(words[:n]))
        check_refused(folder, rf"has {n or 5} tokens, but the model embeds 609")


def test_a_tokenizer_of_special_tokens_alone_is_refused(make_bert, tmp_path):
    folder = Path(make_bert(tmp_path / "new", words=["dog"]))
    content = json.loads((folder / "tokenizer.json").read_text())
    vocabulary = content["model"]["vocab"]
    content["model"]["vocab"] = {t: i for t, i in vocabulary.items() if t.startswith("[")}
    (folder / "tokenizer.json").write_text(json.dumps(content))
    check_refused(folder, "has no vocabulary")


def test_a_token_around_texts_that_the_model_lacks_is_refused(tiny_bert_copy):
    folder = tiny_bert_copy()
    content = json.loads((folder / "tokenizer.json").read_text())
    for token in content["post_processor"]["special_tokens"].values():
        token["ids"] = [90_000]
    (folder / "tokenizer.json").write_text(json.dumps(content))
    check_refused(folder, "puts the token number 90000 around each text")


@pytest.mark.parametrize("longest", [-5, "512", 2, float("nan")])
def test_a_longest_text_that_is_no_length_is_refused(tiny_bert_copy, edit_json, longest):
    folder = tiny_bert_copy()
    edit_json(folder / "tokenizer_config.json", model_max_length=longest)
    check_refused(folder, rf"model_max_length='?{longest}.*a number above 2")


@pytest.mark.parametrize(
    ("name", "entries"),
    [
        # A known architecture would be built from the library's own code, and be another model.
        ("config.json", {"auto_map": {"AutoModel": "evil.Model", "AutoConfig": "evil.C"}}),
        ("config.json", {"transformers_weights": "other.safetensors"}),
        ("config.json", {"attn_implementation": "someone/kernel"}),
        ("config.json", {"_attn_implementation": "someone/kernel"}),
        ("config.json", {"_attn_implementation": "flash_attention_2"}),  # a kernel of the hub
        ("config.json", {"_experts_implementation": {"": "someone/kernel"}}),
        ("tokenizer_config.json", {"auto_map": {"AutoTokenizer": [None, "evil.T"]}}),
        ("tokenizer_config.json", {"tokenizer_file": "../tokenizer.json"}),
        ("tokenizer_config.json", {"init_inputs": ["/elsewhere/vocab.txt"]}),
        ("tokenizer_config.json", {"vocab": "/elsewhere/vocab.txt"}),
        ("tokenizer_config.json", {"fast_tokenizer_files": ["../tokenizer.1.0.0.json"]}),
        ("special_tokens_map.json", {"entity_vocab_file": "/elsewhere/entities.json"}),
    ],
    ids=lambda value: next(iter(value)) if isinstance(value, dict) else "",
)
def test_entries_that_lead_elsewhere_are_refused(tiny_bert_copy, name, entries):
    folder = tiny_bert_copy()
    (folder / "evil.py").write_text("raise SystemExit('code ran')")
    content = json.loads((folder / name).read_text()) if (folder / name).exists() else {}
    past = {"special_tokens_map_file": "/home/someone/map.json"}
    (folder / name).write_text(json.dumps(content | past))  # as old releases left behind
    BertEncoder(folder).fit(["dog"])
    (folder / name).write_text(json.dumps(content | entries))
    check_refused(
        folder, rf"{name} refers to other code or files.*{next(iter(entries))}.*delete"
    )


@pytest.mark.parametrize("of_part", [{"text_config": {}}, {"parts": [{"deeper": {}}]}])
def test_a_kernel_in_the_configuration_of_a_part_is_refused(tiny_bert_copy, edit_json, of_part):
    folder = tiny_bert_copy()
    inner = of_part.get("text_config") if "text_config" in of_part else of_part["parts"][0]
    inner["attn_implementation"] = "sdpa"
    inner["cache_implementation"] = "hybrid"  # of generation, as Gemma 2 declares
    edit_json(folder / "config.json", cache_implementation="hybrid", **of_part)
    BertEncoder(folder).fit(["dog"])
    inner["attn_implementation"] = "someone/kernel"
    edit_json(folder / "config.json", **of_part)
    check_refused(folder, "config.json refers to other code.*attn_implementation: 'someone/")


@pytest.mark.parametrize("path", ["../pooling", "/etc", "..", "1_Pooling"])
def test_a_pooling_outside_the_folder_is_refused(tiny_bert_copy, path):
    folder = tiny_bert_copy()
    outside = folder.parent / "pooling"
    outside.mkdir()
    (outside / "config.json").write_text('{"pooling_mode": "cls"}')
    kind = "sentence_transformers.models."
    modules = [
        {"path": "", "type": kind + "Transformer"},
        {"path": path, "type": kind + "Pooling"},
    ]
    (folder / "modules.json").write_text(json.dumps(modules))
    if path == "1_Pooling":
        (folder / path).symlink_to(outside, target_is_directory=True)
    check_refused(folder, r"refused: .*config.json links to .*, outside it")


def test_a_link_that_leads_to_nothing_is_no_missing_file(tiny_bert_copy):
    folder = tiny_bert_copy()
    (folder / "config_sentence_transformers.json").symlink_to("nowhere.json")
    check_refused(folder, r"config_sentence_transformers.json is missing")


@pytest.mark.parametrize(
    ("content", "match"),
    [
        (b"", "model.safetensors is empty. Download"),
        (b"version https://git-lfs.github.com/spec/v1\noid sha256:1", "git lfs pull"),
        (b"<!DOCTYPE html><html></html>", "is a web page"),
        (None, "cut off or damaged"),
        (b"\x00" * 100, "cut off or damaged"),
    ],
)
def test_what_is_no_weights_is_named(tiny_bert_copy, content, match):
    weights = tiny_bert_copy() / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-100] if content is None else content)
    check_refused(weights.parent, match)


def with_tensor(folder, name, tensor):
    """Add a tensor to the weights of a folder."""
    tensors = load_file(folder / "model.safetensors") | {name: tensor}
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    return folder


@pytest.mark.parametrize(
    "name",
    [
        "encoder.layer.0.attention.self.distance_embedding.weight",
        pytest.param("bert.encoder.layer.7.output.dense.weight", marks=by_prefix),
        "other.encoder.layer.7.output.dense.weight",
        "head.encoder.layer.1.output.dense.weight",
        "generator.embeddings.word_embeddings.weight",
        "lm_head.embeddings.word_embeddings.weight",
        pytest.param("bert.norm.weight", marks=by_prefix),
    ],
)
def test_weights_that_nothing_reads_are_refused(tiny_bert_copy, name):
    folder = with_tensor(tiny_bert_copy(), name, torch.ones(2, 2))
    check_refused(folder, f"weights that BertModel .* does not read, such as .*{name[-9:]}")


@pytest.mark.parametrize(
    "name",
    [
        "head.layer.7.output.dense.weight",
        "cls.predictions.bias",
        "cls.seq_relationship.weight",
        "lm_head.decoder.weight",
        "classifier.out_proj.weight",
        "vocab_layer_norm.weight",
        "generator_lm_head.bias",
        "discriminator_predictions.dense.weight",
        "mask_predictions.LayerNorm.weight",
        "sequence_summary.summary.weight",
        "qa_outputs.weight",
        "splinter_qass.query_end_transform.dense.weight",
        "logits_proj.weight",
        "answer_class.dense_1.weight",
        "embed_out.weight",
        "score.weight",
        "linear.weight",
        "embeddings.position_ids",
        "other.position_ids",
    ],
)
def test_heads_and_buffers_are_left_out(tiny_bert_copy, name):
    folder = with_tensor(tiny_bert_copy(), name, torch.ones(2, 2))
    expected = BertEncoder(tiny_bert_copy()).fit_transform(["dog"])
    assert_array_equal(BertEncoder(folder).fit_transform(["dog"]), expected)


@pytest.mark.parametrize(
    ("name", "own"),
    [
        pytest.param(
            "bert.embeddings.word_embeddings.weight",
            "embeddings.word_embeddings.weight",
            marks=by_prefix,
        ),
        ("embeddings.LayerNorm.gamma", "embeddings.LayerNorm.weight"),
    ],
)
def test_two_tensors_for_one_weight_are_refused(tiny_bert_copy, name, own):
    folder = tiny_bert_copy()
    tensor = load_file(folder / "model.safetensors")[own] + 1
    check_refused(with_tensor(folder, name, tensor), "has two tensors for one weight")


@pytest.mark.parametrize("name", ["bpe.codes", "spm.model", "entity_vocab.json", "a.tokenizer"])
def test_every_file_that_may_be_read_is_in_the_fingerprint(tiny_bert_copy, name):
    folder = tiny_bert_copy()
    (folder / "README.md").write_text("of no matter")
    encoder = BertEncoder(folder).fit(["dog"])
    (folder / name).write_text("{}")
    with pytest.raises(ValueError, match="has fingerprint"):
        encoder.transform(["dog"])
    (folder / name).unlink()
    for other in ("README.md", "pytorch_model.bin", "modules.json", ".gitattributes"):
        (folder / other).write_text("of no matter, too")
    encoder.transform(["dog"])


def test_a_pipe_in_the_folder_is_not_opened(tiny_bert_copy):
    folder = tiny_bert_copy()
    pipe = folder / "special_tokens_map.json"
    pipe.unlink(missing_ok=True)  # old releases of transformers save one
    os.mkfifo(pipe)
    BertEncoder(folder).fit(["dog"])


def test_weights_that_change_under_the_name_are_noticed(tiny_bert_copy, texts):
    """In place, of the same size and with the time set back, as some copying tools do."""
    folder = tiny_bert_copy()
    encoder = BertEncoder(folder).fit(texts)
    weights = folder / "model.safetensors"
    before, content = weights.stat(), weights.read_bytes()
    with weights.open("r+b") as stream:
        stream.write(content[:-1] + bytes([content[-1] ^ 1]))
    os.utime(weights, ns=(before.st_atime_ns, before.st_mtime_ns))
    with pytest.raises(ValueError, match=r"has fingerprint .* but this encoder was fitted"):
        encoder.transform(texts)


def test_weights_that_change_while_they_are_read_are_refused(make_bert, tmp_path, monkeypatch):
    folder = Path(make_bert(tmp_path / "new", seed=77))
    read = transformers.AutoTokenizer.from_pretrained

    def slowly(*args, **options):
        result = read(*args, **options)
        (folder / "vocab.txt").write_text("late")
        return result

    monkeypatch.setattr(transformers.AutoTokenizer, "from_pretrained", slowly)
    check_refused(folder, r"changed while they were read\. Call again")


def test_a_snapshot_is_used_offline(tiny_bert, tiny_bert_copy, tmp_path, monkeypatch, texts):
    """A hub id resolves to what the cache holds, in links, without asking anybody."""
    from huggingface_hub import constants

    commit = "0" * 40
    repo = tmp_path / "models--someone--tiny"
    for part in ("blobs", f"snapshots/{commit}", "refs"):
        (repo / part).mkdir(parents=True)
    for i, file in enumerate(tiny_bert_copy().iterdir()):
        file.rename(repo / "blobs" / str(i))
        (repo / "snapshots" / commit / file.name).symlink_to(f"../../blobs/{i}")
    (repo / "refs" / "main").write_text(commit)
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path))
    # Old releases have a copy of the constant.
    copy = "huggingface_hub._snapshot_download.HF_HUB_CACHE"
    monkeypatch.setattr(copy, str(tmp_path), raising=False)
    vectors = BertEncoder("someone/tiny").fit_transform(texts)
    assert_array_equal(vectors, BertEncoder(tiny_bert).fit_transform(texts))


@pytest.fixture
def hub(tiny_bert_copy, tmp_path, monkeypatch):
    """Return a cached snapshot, and a list of what the hub is asked for; it may complete it."""
    import huggingface_hub

    snapshot, asked = Path(shutil.copytree(tiny_bert_copy(), tmp_path / "c0ffee")), []
    whole = shutil.copytree(snapshot, tmp_path / "whole")

    def download(model, local_files_only=False, **options):
        if not local_files_only:
            asked.append(options["revision"])
            if asked[0] == "down":
                raise ConnectionError
            shutil.copytree(whole, snapshot, dirs_exist_ok=True)
        return str(snapshot)

    monkeypatch.setattr(huggingface_hub, "snapshot_download", download)
    return snapshot, asked


@pytest.mark.parametrize("name", ["tokenizer.json", "model.safetensors", "config.json", None])
def test_a_snapshot_is_completed_before_use(hub, texts, tiny_bert, name):
    snapshot, asked = hub
    if name:
        (snapshot / name).unlink()
    vectors = BertEncoder("someone/tiny").fit_transform(texts)
    assert_array_equal(vectors, BertEncoder(tiny_bert).fit_transform(texts))
    assert asked == (["c0ffee"] if name else [])  # the rest of the same commit


@pytest.mark.parametrize(
    ("offline", "message"),
    [
        (False, r"download from the hub failed: ConnectionError.*and set HF_HUB_OFFLINE=1"),
        (True, r"HF_HUB_OFFLINE forbids to ask the hub\. Check.* Unset HF_HUB_OFFLINE to dow"),
    ],
)
def test_a_snapshot_that_cannot_be_completed_is_refused(hub, offline, message, monkeypatch):
    snapshot, asked = hub
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", offline)
    asked.append("down")
    for file in ("tokenizer.json", "model.safetensors"):
        (snapshot / file).unlink()
    with pytest.raises(OSError, match=f"nor complete in the cache .* {message}"):
        BertEncoder("someone/tiny").fit(["dog"])


def test_relative_positions_without_their_weights_are_refused(tiny_bert_copy, edit_json):
    folder = tiny_bert_copy()
    edit_json(folder / "config.json", position_embedding_type="relative_key")
    check_refused(folder, "position_embedding_type='relative_key', which this release|lack")


def test_loading_is_quiet(tiny_bert_copy, capfd, caplog):
    BertEncoder(str(tiny_bert_copy())).fit(["dog"])
    assert capfd.readouterr() == ("", "")
    assert not caplog.records


def test_a_model_that_overflows_the_precision_is_refused(tiny_bert_copy, texts):
    folder = tiny_bert_copy()
    weights = load_file(folder / "model.safetensors")
    for factor, name in ((1e6, "intermediate"), (1e-6, "output")):
        weights[f"encoder.layer.1.{name}.dense.weight"] *= factor
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    for dtype in ("float32", "bfloat16"):
        BertEncoder(folder, dtype=dtype, device="cpu").fit_transform(texts)
    message = r"in torch.float16 on cpu: .* differ from .* alone with dtype='float32'"
    with pytest.raises(ValueError, match=message):
        BertEncoder(folder, dtype="float16", device="cpu").fit(texts)


def test_the_four_models_used_last_stay_loaded(make_bert, tmp_path, loads):
    folders = [make_bert(tmp_path / str(i), seed=i, layers=1, width=4) for i in range(5)]
    for i in (0, 1, 2, 3, 0, 4, 0, 1):
        BertEncoder(folders[i]).fit(["dog"])
    assert loads == ["0", "1", "2", "3", "4", "1"]


def test_random_generator_of_torch_is_left_alone(tiny_bert, texts):
    import torch

    before = torch.get_rng_state()
    BertEncoder(tiny_bert).fit_transform(texts)
    assert np.array_equal(before, torch.get_rng_state())


@pytest.mark.parametrize("entry", [np.nan, np.inf])
def test_weights_that_are_not_finite_are_refused(tiny_bert_copy, entry):
    folder = tiny_bert_copy()
    weights = load_file(folder / "model.safetensors")
    name = next(name for name in weights if "attention.self.key.weight" in name)
    weights[name][0, 0] = entry
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    check_refused(folder, r"attention.self.key.weight' has entries that are not")


def test_a_config_that_is_a_pointer_of_git_lfs_is_named(tiny_bert_copy):
    folder = tiny_bert_copy()
    (folder / "config.json").write_bytes(b"version https://git-lfs.github.com/spec/v1\noid x")
    with pytest.raises(ValueError, match=r"config\.json is a pointer of git-lfs\. Run git lfs"):
        BertEncoder(folder).fit(["dog"])
