"""What a folder of sentence-transformers declares: how its model is meant to be used."""

import os
import re
from pathlib import Path
from typing import Any, NamedTuple

from skcalib.encoders.model.folder import (
    CONFIG,
    DECLARED,
    MODULES,
    TRANSFORMER,
    entries,
    unreadable,
)
from skcalib.encoders.recipe import POOLINGS

SETTINGS, *_ = DECLARED
NORMALIZE = "Normalize"
HARMLESS = {NORMALIZE, "Dropout"}  # they change no cosine
# What sentence-transformers writes of the transformer of a model of texts.
USUAL = {
    "transformer_task": "feature-extraction",
    "module_output_name": "token_embeddings",
    "modality_config": {
        "text": {"method": "forward", "method_output_name": "last_hidden_state"}
    },
}
# Types of the entries that are read.
OF_TRANSFORMER = {"max_seq_length": int, "do_lower_case": bool}
OF_SETTINGS = {"prompts": dict, "default_prompt_name": str, "truncate_dim": int}


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
    """Read the settings of a folder; one that cannot be read or followed is an error."""
    settings = _read(folder, SETTINGS, OF_SETTINGS)
    file = next((name for name in TRANSFORMER if entries(folder, name)), TRANSFORMER[0])
    transformer = _read(folder, file, OF_TRANSFORMER)
    for name, value in transformer.items():
        if value and name not in OF_TRANSFORMER and USUAL.get(name) != value:
            raise ValueError(
                f"{folder / file} declares {name}={value!r:.80}, which may change vectors, but "
                "BertEncoder does not support it. Delete the entry to encode without it, or "
                "wrap the SentenceTransformer in a TextEncoder."
            )
    prompts = settings.get("prompts") or {}
    return Declared(
        **_pooling(folder),
        prompts={name: prompt or "" for name, prompt in prompts.items()},
        default_prompt_name=settings.get("default_prompt_name"),
        max_length=transformer.get("max_seq_length"),
        lower_case=bool(transformer.get("do_lower_case")),
        truncate_dim=settings.get("truncate_dim"),
    )


def _read(folder: Path, name: str, kinds: dict[str, type]) -> dict[str, Any]:
    """Return the entries of a file; refuse those of another type."""
    content = entries(folder, name)
    for key, kind in kinds.items():
        value = content.get(key)
        if value is not None and type(value) is not kind:
            expected = f"{key}={value!r:.80}; expected a value of type {kind.__name__}"
            raise unreadable(folder / name, expected)
    return content


def wants_prompt(model: str | os.PathLike, config: dict[str, Any], settings: Declared) -> bool:
    """Whether a model is an e5, by its name or its configuration, and declares no prompt."""
    names = model, str(config.get("_name_or_path"))
    # Those with "instruct" want a description of the task, which only the user knows.
    e5 = re.compile(r"(?<![a-z0-9])e5(?![a-z0-9])(?!.*instruct)")
    return not any(settings.prompts.values()) and any(
        e5.search(Path(n).name.lower()) for n in names
    )


def _pooling(folder: Path) -> dict[str, Any]:
    """Return what the modules of a folder declare."""
    modules = entries(folder, MODULES, list)
    try:
        places = {_class_of(module["type"]): module["path"] for module in modules}
    except (TypeError, LookupError, AttributeError) as error:
        raise unreadable(folder / MODULES, repr(error)) from None
    if inner := next(iter(places.values()), ""):
        raise ValueError(
            f"{folder / MODULES} puts the model into the folder {inner!r}, as old versions of "
            "sentence-transformers did; BertEncoder reads it next to that file. Load and save "
            "it with a newer version; or give BertEncoder the inner folder, and its pooling."
        )
    places = places or {"Transformer": "", "Pooling": "1_Pooling"}
    names = [name for name in places if name not in HARMLESS]
    names = names[1:] if names[:1] == ["Transformer"] else names
    config = {}
    if "Pooling" in names:
        file = f"{places['Pooling']}/{CONFIG}"
        config = entries(folder, file)
        if modules and not config:
            raise unreadable(folder / file)
        names[names.index("Pooling")] = _mode(config)
    return {
        # The mean is the default for a transformer alone.
        "pooling": ", then ".join(names) or "mean",
        "declares_pooling": bool(config),
        "normalizes": NORMALIZE in places,
        "include_prompt": bool(config.get("include_prompt", True)),
    }


def _class_of(kind: str) -> str:
    """Name of a module's class, with its own module where the code comes with the model."""
    return kind.rpartition(".")[2] if kind.startswith("sentence_transformers.") else kind


def _mode(config: dict[str, Any]) -> str:
    """Return our name of the pooling of a module, or that of sentence-transformers."""
    former = [key[13:] for key in config if key.startswith("pooling_mode_") and config[key]]
    mode = config.get("pooling_mode", former or "mean")  # former versions had an entry for each
    modes = map(str, mode if isinstance(mode, list) else [mode])
    ours = {name: key for key, how in POOLINGS.items() for name in how.st_names or ()}
    return " and ".join(ours.get(name, name) for name in modes)
