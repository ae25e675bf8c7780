"""Files of a model: found here or on the hub, checked before they are loaded, fingerprinted."""

from __future__ import annotations

import hashlib
import json
import re
from pathlib import Path
from typing import Any, NoReturn

__all__ = ["DECLARED", "entries", "fingerprint", "locate"]

WEIGHTS = ("model.safetensors", "model-*.safetensors")
VOCABULARIES = ("tokenizer.json", "*vocab.txt", "*vocab.json", "*.model")  # one or more

# What sentence-transformers declares beside a model. These files are fetched, too; they change
# how a model is used, and not what it is.
DECLARED = (
    "config_sentence_transformers.json",
    "sentence_bert_config.json",
    "modules.json",
    "*_Pooling/config.json",
)

MOVED = (
    "Where a fitted pipeline finds its model in another place, tell it: "
    "pipeline.set_params(bertencoder__model=folder)."
)

_fingerprints: dict[tuple, str] = {}


def locate(model: str, revision: str | None = None) -> Path:
    """Folder of a model: a local one as it is, a hub id from the cache or the hub, or "minilm".

    A model in the cache is used without asking the hub, so that results do not change
    under a running study; pass another `revision` to move on. An OSError says that there is no
    such model.
    """
    folder = Path(model).expanduser()
    if model == "minilm" and not folder.exists():
        from skcalib.datasets import minilm_path

        folder = Path(minilm_path())
    if not folder.is_dir():
        is_hub_id = re.fullmatch(r"\w[\w.-]*(/\w[\w.-]*)?", model)  # name, or owner/name
        if not is_hub_id or folder.exists():
            raise FileNotFoundError(
                f"There is no folder {str(folder)!r}. Give the folder of a model that "
                f"save_pretrained wrote, or the id of one on the hub. {MOVED}"
            )
        folder = Path(_snapshot(model, revision))
    if not (folder / "config.json").is_file():
        raise OSError(
            f"The folder {str(folder)!r} holds no config.json, so it is not a model. Give "
            "the folder that save_pretrained wrote."
        )
    return folder


def _check_files(folder: Path, names: list[str]) -> None:
    """Refuse a folder that would have files read that its fingerprint does not cover."""

    def refuse(reason: str) -> NoReturn:
        raise ValueError(f"The model in {str(folder)!r} is refused: {reason}.")

    if "adapter_config.json" in names:
        refuse("it is an adapter to another model. Merge the two and save them as one")
    for name in _shards(folder):
        if not (isinstance(name, str) and re.fullmatch(r"model-[\w.-]*\.safetensors", name)):
            refuse(
                f"model.safetensors.index.json names the file {name!r}. Weights are read from "
                "model-*.safetensors beside it only; save the model again"
            )
    # Entries, as key=value, that would make transformers read other files: by their names, as
    # first arguments of a tokenizer, or as code. special_tokens_map_file is harmless.
    tokenizers = r"(auto_map|init_inputs|vocab|merges|tokenizer_object)=.*"
    tokenizers += r"|(?!special_tokens_map_)\w*_file=.*|fast_tokenizer_files=.*[/\\].*"
    for name, pattern in {
        "config.json": r"(auto_map|transformers_weights)=.*|attn_implementation=.*/.*",
        "tokenizer_config.json": tokenizers,
        "special_tokens_map.json": tokenizers,
    }.items():
        for key, value in entries(folder / name).items() if name in names else ():
            if value and re.fullmatch(pattern, f"{key}={value}", re.DOTALL):
                refuse(
                    f"{name} asks for code or files of its own choice ({key}: {value!r:.60}), "
                    "which are not read, and others would make other vectors. If what "
                    "transformers has for this kind of model is the same, delete the entry"
                )


def entries(file: Path) -> dict:
    """Top level of a JSON file; of a file that holds no object, nothing."""
    try:
        content = json.loads(file.read_bytes())
    except (OSError, ValueError, RecursionError):
        return {}
    return content if isinstance(content, dict) else {}


def _shards(folder: Path) -> list[Any]:
    """Names of the files of weights in an index, if there is one; they may be anything."""
    names = entries(folder / "model.safetensors.index.json").get("weight_map", {})
    return list(names.values()) if isinstance(names, dict) else [names]


def _snapshot(model: str, revision: str | None) -> str:
    from huggingface_hub import constants, snapshot_download

    # None of these files can run code. An adapter is fetched to be refused.
    settings = ["config.json", "*token*.json", "merges.txt", "bpe.codes", "adapter_config.json"]
    settings += ["model.safetensors.index.json", *DECLARED]
    options: dict[str, Any] = {
        "revision": revision,
        "allow_patterns": [*WEIGHTS, *VOCABULARIES, *settings],
        "ignore_patterns": "[!0-9]*/*",  # of folders, those of modules
    }
    try:
        folder = snapshot_download(model, local_files_only=True, **options)
        if _is_whole(Path(folder)):
            return folder
        options["revision"] = Path(folder).name  # the rest of this one, and no newer one
    except (OSError, ValueError):
        pass  # not in the cache: ask the hub
    try:
        return snapshot_download(model, **options)
    except Exception as error:  # the hub's many: offline, no such id, no access, a bad id
        at = f" at revision {revision!r}" if revision else ""
        name = "" if "/" in model else f": in full it may be 'sentence-transformers/{model}'"
        raise OSError(
            f"The model {model!r}{at} is neither a local folder nor whole in the cache "
            f"({constants.HF_HUB_CACHE}), and could not be fetched from the hub: "
            f"{type(error).__name__}. Check the name{name}; to work offline, fetch it with `hf "
            f"download {model}` elsewhere and copy the cache, or pass a model's folder. {MOVED}"
        ) from error


def _is_whole(folder: Path) -> bool:
    """Whether no broken download, nor one of the model alone, has left a snapshot."""
    vocabularies = [file for name in VOCABULARIES for file in folder.glob(name)]
    return bool(vocabularies) and all(
        (folder / str(name)).is_file()
        for name in ("config.json", *(_shards(folder) or ["model.safetensors"]))
    )


def fingerprint(folder: Path) -> str:
    """SHA-256 over the content of a model's files, checked and read once per state of them."""
    # Pages, pictures, logs, code, other weights and settings of sentence-transformers are not
    # read when an encoder is loaded. Any other file may be read by a tokenizer.
    not_read = re.compile(
        r"\..*|(README|LICENSE|NOTICE).*|.*\.(md|py|jinja|log|csv|tsv|png|jpe?g|gif|svg|pdf|bin"
        r"|h5|ot|msgpack|onnx|gguf|tflite|ckpt|pt|pth|pkl)|modules\.json|data_config\.json"
        r"|(config_sentence_transformers|sentence_[\w-]+_config)\.json",
        re.DOTALL,
    ).fullmatch
    files = [f for f in folder.iterdir() if f.is_file() and not not_read(f.name)]
    files.sort(key=lambda file: file.name)
    # The time of the last change too, which no tool sets back as some do that of the content.
    stats = [(file, file.stat()) for file in files]
    key = tuple((f, s.st_size, s.st_mtime_ns, s.st_ctime_ns, s.st_ino) for f, s in stats)
    if key not in _fingerprints:
        _check_files(folder, [file.name for file in files])
        total = hashlib.sha256()
        for file in files:
            with file.open("rb") as stream:
                content = hashlib.file_digest(stream, "sha256").digest()
            total.update(json.dumps(file.name).encode() + content)
        _fingerprints[key] = total.hexdigest()
    return _fingerprints[key]
