"""What a folder of sentence-transformers declares: how its model is meant to be used."""

import os
import re
from pathlib import Path
from typing import Any, NamedTuple

from skcalib.encoders.model.folder import (
    CONFIG,
    COUNT,
    DECLARED,
    MODULES,
    TRANSFORMER,
    checked,
    entries,
    is_count,
    refuse_inner,
    unreadable,
)
from skcalib.encoders.recipe import POOLINGS

SETTINGS, *_ = DECLARED
NORMALIZE = "Normalize"
HARMLESS = {NORMALIZE, "Dropout"}  # after the pooling: they change no cosine
# What sentence-transformers writes of the transformer of a model of texts.
USUAL = {
    "transformer_task": "feature-extraction",
    "module_output_name": "token_embeddings",
    "modality_config": {
        "text": {"method": "forward", "method_output_name": "last_hidden_state"}
    },
}


class Declared(NamedTuple):
    """Settings that a model's folder declares, with defaults for those that it does not."""

    pooling: str  # our name, or that of sentence-transformers if we have none
    declares_pooling: bool  # False if `pooling` is only the default
    normalizes: bool  # whether vectors are scaled to unit length, in the end
    include_prompt: bool  # whether the prompt's tokens are pooled too
    prompts: dict[str, str]  # by name
    default_prompt_name: str | None
    max_length: int | None  # most tokens of a text
    lower_case: bool  # whether texts are lowercased before they are tokenized
    truncate_dim: int | None  # leading dimensions that sentence-transformers returns

    def prompt(self, prompt: str | None) -> str:
        """Text to put before each text: the default prompt, a named one, or `prompt` itself."""
        name = self.default_prompt_name if prompt is None else prompt
        if name in self.prompts:
            return self.prompts[name]
        if prompt is None and name is not None:
            raise ValueError(
                f"The folder declares the default prompt {name!r}, but has only the prompts "
                f"{sorted(self.prompts)}. Pass prompt='' for none, or correct {SETTINGS}."
            )
        return prompt or ""


def declared(folder: Path) -> Declared:
    """Read the settings of a folder; a file that is there but cannot be read is an error."""
    before, pooling, after, normalizes = _pooling_module(folder)
    file, settings = folder / SETTINGS, entries(folder, SETTINGS)
    name = next((name for name in TRANSFORMER if entries(folder, name)), TRANSFORMER[0])
    transformer = _transformer(folder / name, entries(folder, name))
    prompts = checked(file, settings, "prompts", _are_texts, "an object of texts by name")
    default = checked(file, settings, "default_prompt_name", _is_name, "a name")
    return Declared(
        pooling=", then ".join(filter(None, [*before, _pooling(pooling), *after])),
        declares_pooling=bool(pooling),
        normalizes=normalizes,
        include_prompt=bool(pooling.get("include_prompt", True)),
        prompts={name: prompt or "" for name, prompt in (prompts or {}).items()},
        default_prompt_name=default,
        **transformer,
        truncate_dim=checked(file, settings, "truncate_dim", is_count, COUNT),
    )


def _transformer(file: Path, content: dict[str, Any]) -> dict[str, Any]:
    """Return what a file declares of the transformer; refuse an entry that is not read.

    Such an entry might change vectors, and most folders have none.
    """
    read = {name: content.get(name) for name in ("max_seq_length", "do_lower_case")}
    checked(file, read, "max_seq_length", is_count, COUNT)
    checked(file, read, "do_lower_case", lambda value: isinstance(value, bool), "a boolean")
    for name, value in content.items():
        if value and name not in read and USUAL.get(name) != value:
            raise ValueError(
                f"{file} declares {name}={value!r:.80}, which may change vectors, but "
                "BertEncoder does not support it. Delete the entry to encode without it, or "
                "wrap the SentenceTransformer in a TextEncoder."
            )
    return {"max_length": read["max_seq_length"], "lower_case": bool(read["do_lower_case"])}


def wants_prompt(model: str | os.PathLike, config: dict[str, Any], settings: Declared) -> bool:
    """Whether a model is an e5, by its name or its configuration, and declares no prompt."""
    names = model, str(config.get("_name_or_path"))
    # Those with "instruct" want a description of the task, which only the user knows.
    e5 = re.compile(r"(?<![a-z0-9])e5(?![a-z0-9])(?!.*instruct)")
    return not any(settings.prompts.values()) and any(
        e5.search(Path(n).name.lower()) for n in names
    )


def _pooling_module(folder: Path) -> tuple[list[str], dict, list[str], bool]:
    """Classes before the pooling, its settings, classes after it, and whether it normalizes."""
    modules = entries(folder, MODULES, list)
    try:
        classes = [_class_of(module["type"]) for module in modules]
        folders = [str(module["path"]) for module in modules]
    except (TypeError, LookupError, AttributeError):
        raise unreadable(folder / MODULES) from None
    if not modules:  # as in most folders
        classes, folders = ["Transformer", "Pooling"], ["", "1_Pooling"]
    refuse_inner(folder)
    first = [] if classes[0] == "Transformer" else classes[:1]
    if "Pooling" not in classes:
        # The mean is the default only for a transformer alone, not if modules change vectors.
        others = first + [name for name in classes[1:] if name not in HARMLESS]
        return others, {"pooling_mode": ""} if others else {}, [], NORMALIZE in classes
    i = classes.index("Pooling")
    config = entries(folder, f"{folders[i]}/{CONFIG}")
    # Without a mode it is the mean.
    modes = [config[key] for key in config if key.startswith("pooling_mode_")]
    mode = config.get("pooling_mode", "mean")
    named = isinstance(mode, str) or (isinstance(mode, list) and mode)
    if (modules and not config) or (modes and not any(modes)) or not named:
        raise unreadable(folder / folders[i] / CONFIG)
    after = [name for name in classes[i + 1 :] if name not in HARMLESS]
    return first + classes[1:i], config, after, NORMALIZE in classes[i:]


def _class_of(kind: str) -> str:
    """Name of a module's class, with its own module where the code comes with the model."""
    return kind.rpartition(".")[2] if kind.startswith("sentence_transformers.") else kind


def _is_name(value: Any) -> bool:
    return isinstance(value, str)


def _are_texts(value: Any) -> bool:
    return isinstance(value, dict) and all(isinstance(v, str | None) for v in value.values())


def _pooling(config: dict) -> str:
    mode = config.get("pooling_mode")
    if mode is None:  # before version 6: one entry per mode
        mode = [key[13:] for key in config if key.startswith("pooling_mode_") and config[key]]
    modes = [mode] if isinstance(mode, str) else list(map(str, mode))
    named = {name: ours for ours, how in POOLINGS.items() for name in how.st_names or ()}
    return " and ".join(named.get(name, name) for name in modes) if modes else "mean"
