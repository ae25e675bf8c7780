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
GIT_LFS = b"version https://git-lfs.github.com/spec/v1\noid sha256:1"


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
    check_refused(folder, r"no weights in model\.safetensors .* may run code when loaded")


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


@pytest.mark.parametrize(
    ("entry", "value", "match"),
    [
        ("model_type", "evil", "cannot be used"),
        ("hidden_size", 24, "cannot be used in torch.float32 on cpu: RuntimeError"),
        ("hidden_act", "no such", "cannot be used in torch.float32 on cpu: KeyError"),
        ("num_hidden_layers", "many", "cannot be used"),
        ("num_hidden_layers", 100_000, "has 100000 layers; expected up to 1,000"),
        ("num_hidden_layers", 5, r"lack 32 tensors of BertModel, such as 'encoder\.layer"),
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
        ("config.json", {"text_config": {"attn_implementation": "someone/kernel"}}),
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
    past = {"special_tokens_map_file": "/home/map.json", "cache_implementation": "hybrid"}
    (folder / name).write_text(json.dumps(content | past))  # as old releases left behind
    BertEncoder(folder).fit(["dog"])
    (folder / name).write_text(json.dumps(content | entries))
    check_refused(
        folder, rf"{name} refers to other code or files.*(implem|{next(iter(entries))}).*delete"
    )


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


@pytest.mark.parametrize(
    ("name", "content", "match"),
    [
        ("config.json", GIT_LFS, "git lfs pull"),
        ("model.safetensors", GIT_LFS, "model.safetensors is a pointer.*git lfs pull"),
        ("tokenizer.json", GIT_LFS, "tokenizer.json is a pointer.*git lfs pull"),
        ("model.safetensors", None, "cut off or damaged"),
        ("model.safetensors.index.json", b'{"weight_map": {"x": "../x.safetensors"}}', "../x"),
        ("model.safetensors.index.json", b'{"weight_map": {"x": "inner/x"}}', "it lacks"),
    ],
)
def test_files_that_are_no_weights_or_elsewhere_are_refused(
    tiny_bert_copy, name, content, match
):
    folder = tiny_bert_copy()
    weights = (folder / "model.safetensors").read_bytes()
    if "index" in name:
        (folder / "model.safetensors").rename(folder / "model-1.safetensors")
    (folder / name).write_bytes(weights[:-100] if content is None else content)
    check_refused(folder, match)


def with_tensors(folder, names):
    """Add tensors to the weights of a folder."""
    tensors = load_file(folder / "model.safetensors") | {n: torch.ones(2, 2) for n in names}
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    return folder


@pytest.mark.parametrize(
    "name",
    ["encoder.layer.7.bias", "pooler.dense.weight_scale"],
)
def test_weights_that_nothing_reads_are_refused(tiny_bert_copy, name):
    folder = with_tensors(tiny_bert_copy(), [name])
    check_refused(folder, f"weights that BertModel .* does not read, such as .*{name[-9:]}")


def test_heads_and_buffers_are_left_out(tiny_bert, tiny_bert_copy):
    names = ["head.layer.7.output.dense.weight", "cls.predictions.bias", "lm_head.decoder.bias"]
    names += ["classifier.out_proj.weight", "score.weight", "embeddings.position_ids"]
    vectors = BertEncoder(with_tensors(tiny_bert_copy(), names)).fit_transform(["dog"])
    assert_array_equal(vectors, BertEncoder(tiny_bert).fit_transform(["dog"]))


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


def test_a_snapshot_that_cannot_be_completed_is_refused(hub):
    snapshot, asked = hub
    asked.append("down")
    (snapshot / "model.safetensors").unlink()
    message = r"nor complete in the cache .* did not give it: ConnectionError\. .*hf download"
    with pytest.raises(OSError, match=message):
        BertEncoder("someone/tiny").fit(["dog"])


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
    message = r"in torch.float16 on cpu: .* differ from those of the text alone in float32"
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
