"""What a folder of sentence-transformers declares: how its model is meant to be used."""

import json
import os
import re
from pathlib import Path
from typing import Any, NamedTuple

from skcalib._encoder.model_files import DECLARED, entries
from skcalib._store.poolings import POOLINGS

SETTINGS, LENGTH, MODULES, _ = DECLARED
CONFIG = "config.json"
HARMLESS = {"Normalize", "Dropout"}  # behind the pooling: no cosine changes


class Declared(NamedTuple):
    """Settings that a model's folder declares, with defaults for those that it does not."""

    pooling: str  # our name, or theirs if we have none
    declares_pooling: bool  # False if `pooling` is only the default
    include_prompt: bool  # whether the prompt's tokens are pooled too
    prompts: dict[str, str]  # by name
    default_prompt_name: str | None
    max_length: int | None  # most tokens of a text
    similarity: str | None  # for which the model was trained
    truncate_dim: int | None  # leading dimensions that sentence-transformers returns
    matryoshka_dims: tuple[int, ...] | None  # trained to be cut to these; () to any

    def prompt(self, asked: str | None) -> str:
        """Text to put before each text: the default prompt, a named one, or `asked` itself."""
        name = self.default_prompt_name if asked is None else asked
        if name in self.prompts:
            return self.prompts[name]
        if asked is None and name is not None:
            raise ValueError(
                f"The folder declares the default prompt {name!r}, but has only the prompts "
                f"{sorted(self.prompts)}. Pass prompt='' for none, or correct {SETTINGS}."
            )
        return asked or ""


def declared(folder: Path) -> Declared:
    """Read the settings of a folder; a file that is there but cannot be read is an error."""
    settings, (before, pooling, after) = _written(folder / SETTINGS), _pooling_module(folder)
    prompts, similarity = settings.get("prompts"), settings.get("similarity_fn_name")
    prompts = prompts if isinstance(prompts, dict) else {}
    if not isinstance(similarity, str | None):
        raise _wrong(folder / SETTINGS, "similarity_fn_name", similarity, "a name")
    return Declared(
        pooling=", then ".join([*before, _pooling(pooling), *after]),
        declares_pooling=bool(pooling),
        include_prompt=pooling.get("include_prompt") is not False,
        prompts={name: str(prompt or "") for name, prompt in prompts.items()},
        default_prompt_name=settings.get("default_prompt_name"),
        max_length=_count(folder / LENGTH, "max_seq_length", _written(folder / LENGTH)),
        similarity=similarity,
        truncate_dim=_count(folder / SETTINGS, "truncate_dim", settings),
        matryoshka_dims=_matryoshka(folder / CONFIG),
    )


def wants_prompt(model: str | os.PathLike, folder: Path, told: Declared) -> bool:
    """Whether a model is an e5, by its name or its configuration, and declares no prompt."""
    names = model, str(entries(folder / CONFIG).get("_name_or_path"))
    # Those with "instruct" want a description of the task, which only the user knows.
    e5 = re.compile(r"(?<![a-z0-9])e5(?![a-z0-9])(?!.*instruct)")
    return not any(told.prompts.values()) and any(
        e5.search(Path(n).name.lower()) for n in names
    )


def _pooling_module(folder: Path) -> tuple[list[str], dict, list[str]]:
    """Classes of the modules before the pooling, its settings, and classes that follow it."""
    path = folder / MODULES
    if not path.is_file():  # as in most folders
        pooling = folder / "1_Pooling" / "config.json"
        return [], _checked(pooling) if pooling.is_file() else {}, []
    try:
        modules = [
            (module["type"].rpartition(".")[2], Path(module["path"]).name)
            for module in json.loads(path.read_bytes())
        ]
    except (OSError, ValueError, RecursionError, TypeError, LookupError, AttributeError):
        raise _unreadable(path) from None
    if not modules:
        raise _unreadable(path)
    classes = [name for name, _ in modules]
    if "Pooling" not in classes:
        return [], {}, []
    i = classes.index("Pooling")
    after = [name for name in classes[i + 1 :] if name not in HARMLESS]
    return classes[1:i], _checked(folder / modules[i][1] / "config.json"), after


def _checked(path: Path) -> dict:
    """Return the settings of a pooling, which has some; without a mode it is the mean."""
    config = _written(path)
    modes = [config[key] for key in config if key.startswith("pooling_mode_")]
    if not config or (modes and not any(modes)):
        raise _unreadable(path)
    return config


def _written(path: Path) -> dict:
    """Entries of a file; none if there is no such file."""
    try:
        content = json.loads(path.read_bytes())
    except FileNotFoundError:
        return {}
    except (OSError, ValueError, RecursionError):
        content = None
    if not isinstance(content, dict):
        raise _unreadable(path)
    return content


def _count(path: Path, name: str, settings: dict) -> int | None:
    """Return a declared number of tokens or dimensions, or None."""
    count = settings.get(name)
    if count is None or (isinstance(count, int) and count >= 1 and count is not True):
        return count
    raise _wrong(path, name, count, "a number, 1 or more")


def _matryoshka(path: Path) -> tuple[int, ...] | None:
    """Dimensions that a model was trained to be cut to; () for any, None if it says nothing."""
    config, name = entries(path), "matryoshka_dimensions"  # where servers of models look
    dims = config.get(name)
    if dims is None:
        return () if config.get("is_matryoshka") else None
    if not isinstance(dims, list) or not all(type(n) is int and n > 0 for n in dims):
        raise _wrong(path, name, dims, "a list of numbers, 1 or more")
    return tuple(dims)


def _wrong(path: Path, name: str, value: Any, expected: str) -> ValueError:
    return ValueError(
        f"{path} declares {name}={value!r:.80}; it should be {expected}. Correct it, or "
        "download the model again."
    )


def _unreadable(path: Path) -> ValueError:
    return ValueError(
        f"{path} is missing, incomplete, or declares nothing that can be read. Download the "
        "model again; or, if the folder is to declare nothing, remove modules.json as well."
    )


def _pooling(config: dict) -> str:
    mode = config.get("pooling_mode")
    if mode is None:  # before version 6: one entry per mode
        mode = [key[13:] for key in config if key.startswith("pooling_mode_") and config[key]]
    modes = [mode] if isinstance(mode, str) else list(map(str, mode))
    named = {name: ours for ours, how in POOLINGS.items() for name in how.theirs or ()}
    return " and ".join(named.get(name, name) for name in modes) or "mean"
