"""Files of a model: found here or on the hub, checked before they are loaded, fingerprinted."""

from __future__ import annotations

import fnmatch
import hashlib
import json
import os
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

__all__ = ["fingerprint", "locate"]

# What a model is made of, or an adapter, which is refused. Nothing else is fetched from a hub
# or enters a fingerprint, and none of it can run code.
WEIGHTS = ("model.safetensors", "model-*.safetensors", "model.safetensors.index.json")
SETTINGS = (
    "config.json",
    "adapter_config.json",
    "tokenizer.json",
    "tokenizer_config.json",
    "special_tokens_map.json",
    "added_tokens.json",
    "vocab.txt",
    "vocab.json",
    "merges.txt",
    "spiece.model",
    "sentencepiece.bpe.model",
)
_OF_A_MODEL = re.compile("|".join(map(fnmatch.translate, WEIGHTS + SETTINGS))).match

_fingerprints: dict[tuple, str] = {}


def locate(model: str, revision: str | None = None) -> Path:
    """Folder of a model: a local one as it is, a hub id from the cache or the hub.

    A model in the cache is used without asking the hub, so that results do not change
    under a running study; pass another `revision` to move on.

    Raises
    ------
    OSError
        If there is no such model, here or on the hub.
    """
    folder = Path(model).expanduser()
    if not folder.is_dir():
        folder = Path(_snapshot(model, revision))
    if not (folder / "config.json").is_file():
        raise OSError(
            f"The folder {str(folder)!r} holds no config.json, so it is not a model. Give "
            "the folder that save_pretrained wrote."
        )
    return folder


def _check_files(folder: Path, files: Sequence[Path]) -> None:
    """Refuse a folder that would have other files read or other code run than its own.

    What is read is then what the fingerprint covers.
    """
    if not any(file.suffix == ".safetensors" for file in files):
        raise ValueError(
            f"The model in {str(folder)!r} has no *.safetensors weights. Other formats can "
            "run code when loaded and are refused; convert the weights with "
            "save_pretrained(..., safe_serialization=True)."
        )
    reason = None
    # A snapshot in the cache of the hub links to the files of its repository.
    home = folder.resolve()
    home = home.parent.parent if home.parent.name == "snapshots" else home
    for file in files:
        if file.is_symlink() and not file.resolve().is_relative_to(home):
            reason = f"{file.name} is a link out of it, to {file.resolve()}. Copy that file"
    shards = _entries(folder / "model.safetensors.index.json").get("weight_map", {})
    for name in sorted(set(shards.values() if isinstance(shards, dict) else [shards]), key=str):
        if not (isinstance(name, str) and re.fullmatch(r"model-[\w.-]*\.safetensors", name)):
            reason = (
                f"model.safetensors.index.json names the file {name!r}. Weights are read from "
                "model-*.safetensors beside it only; save the model again"
            )
    for name in ("config.json", "tokenizer_config.json"):
        if code := _entries(folder / name).get("auto_map"):
            reason = (
                f"{name} asks for code of the model's own (auto_map: {code!r:.60}), which is "
                "not run, and other code would make other vectors. If the class that "
                "transformers has for it is the same, delete the entry"
            )
    if folder / "adapter_config.json" in files:
        reason = "it is an adapter to another model. Merge the two and save them as one"
    if reason:
        raise ValueError(f"The model in {str(folder)!r} is refused: {reason}.")


def _entries(file: Path) -> dict:
    """Top level of a JSON file; what is none is left to those who load it."""
    try:
        content = json.loads(file.read_bytes())
    except (OSError, ValueError):
        return {}
    return content if isinstance(content, dict) else {}


def _files(folder: Path) -> list[Path]:
    with os.scandir(folder) as entries:
        names = sorted(e.name for e in entries if _OF_A_MODEL(e.name) and e.is_file())
    return [folder / name for name in names]


def _snapshot(model: str, revision: str | None) -> str:
    from huggingface_hub import constants, snapshot_download

    options: dict[str, Any] = {
        "revision": revision,
        "allow_patterns": [*WEIGHTS, *SETTINGS],
    }
    try:
        folder = snapshot_download(model, local_files_only=True, **options)
        if any(Path(folder).glob("*.safetensors")):
            return folder
    except (OSError, ValueError):
        pass  # not in the cache: ask the hub
    try:
        return snapshot_download(model, **options)
    except Exception as error:  # the hub's many: offline, no such id, no access, a bad id
        at = f" at revision {revision!r}" if revision else ""
        raise OSError(
            f"The model {model!r}{at} is neither a local folder nor in the cache "
            f"({constants.HF_HUB_CACHE}), and could not be fetched from the hub: "
            f"{type(error).__name__}. Check the name; to work offline, fetch it once with "
            f"`hf download {model}` on a machine with access and copy the cache or the "
            "folder, or pass the path of a folder written by save_pretrained."
        ) from error


def fingerprint(folder: Path) -> str:
    """SHA-256 over the content of a model's files, checked and read once per state of them.

    Raises
    ------
    ValueError
        If a model may not be loaded from these files.
    """
    files = _files(folder)
    # The time of the last change too, which no tool sets back as some do that of the content;
    # of a link and of what it leads to.
    key = tuple(
        (str(f), s.st_size, s.st_mtime_ns, s.st_ctime_ns, s.st_ino)
        for f in files
        for s in (f.lstat(), f.stat())
    )
    if key not in _fingerprints:
        _check_files(folder, files)
        total = hashlib.sha256()
        for file in files:
            total.update(json.dumps(file.name).encode() + _sha256(file))
        _fingerprints[key] = total.hexdigest()
    return _fingerprints[key]


def _sha256(file: Path) -> bytes:
    digest = hashlib.sha256()
    with file.open("rb") as stream:
        while piece := stream.read(2**20):
            digest.update(piece)
    return digest.digest()
