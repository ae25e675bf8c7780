"""JSON files in the folder of a model."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

CONFIG = "config.json"
MODULES = "modules.json"
COUNT = "a number, 1 or more"


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
    return ValueError(
        f"{file} is missing, incomplete or invalid. Download the model again, or save it again."
    )
