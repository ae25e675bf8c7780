"""What the commands of the command line share."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from skcalib._texts import lines_of

__all__ = ["add_encoding", "layers", "names", "texts_in"]


def add_encoding(add: Callable[..., Any]) -> None:
    """Add the arguments that determine how texts are encoded."""
    add("--prompt", help="put before each text; default: what the model's folder declares")
    add("--query-prompt", help="put before each query; default: same as --prompt")
    add("--memory", help="folder that keeps vectors, so that each text is encoded only once")


def names(value: str) -> list[str]:
    """Names in a list separated by commas."""
    return [name.strip() for name in value.split(",")]


def layers(name: str) -> int | str | Sequence[int]:
    """Return the `layers` of `BertEncoder` for an int, a name, or ints joined by "+"."""
    try:
        indices = tuple(int(part) for part in name.split("+"))
    except ValueError:
        return name  # such as "first_last"; BertEncoder checks it
    return indices if len(indices) > 1 else indices[0]


def texts_in(file: str) -> list[str]:
    """Texts of a file with one text per line."""
    path = Path(file).expanduser()
    if path.is_dir():
        raise ValueError(f"{file!r} is a folder; give a file with one text per line.")
    if not (texts := [line.strip() for _, line in lines_of(path)]):
        raise ValueError(f"{file!r} has no text; give a file with one text per line.")
    return texts
