"""What the commands of the command line share."""

from collections.abc import Callable, Sequence
from itertools import zip_longest
from pathlib import Path
from typing import Any

from skcalib._texts import lines_of


def add_encoding(add: Callable[..., Any], *, queries: bool = True) -> None:
    """Add the arguments that determine how texts, and queries, are encoded."""
    add("--prompt", help="put before each text; default: what the model's folder declares")
    if queries:
        add("--query-prompt", help="put before each query; default: same as --prompt")
    whole = "cut texts off at the model's limit, or read them whole in windows; default: cut"
    add("--overflow", choices=("cut", "windows"), default="cut", help=whole)
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
    if not (texts := [line for line in lines_in(file) if line]):
        raise ValueError(f"{file!r} has no text; give a file with one text per line.")
    return texts


def with_groups(
    texts: str | Sequence[str], groups: str, *, every: bool = True
) -> tuple[list[str], list[str]]:
    """Texts, of a file or given, and the group of each from the line of the same number.

    A blank line of the file of texts is left out together with its group. Unless ``every`` text
    needs one, its group may be blank.
    """
    lines = lines_in(texts) if isinstance(texts, str) else texts
    labels = lines_in(groups)
    if any(labels[len(lines) :]):
        raise ValueError(
            f"{groups!r} has {len(labels)} lines for {len(lines)} lines of texts. Give one "
            "group per line, in the order of the texts."
        )
    found = []
    for number, (text, label) in enumerate(zip_longest(lines, labels, fillvalue=""), 1):
        if text and not label and every:
            raise ValueError(
                f"{groups!r} has no group in line {number}, for the text {text!r:.60}. Write "
                "the group there, or leave line and text blank in both files."
            )
        if text:
            found.append((text, label))
    if not found:
        raise ValueError(f"{texts!r} has no text; give a file with one text per line.")
    kept, of_kept = zip(*found, strict=True)
    return list(kept), list(of_kept)


def lines_in(file: str) -> list[str]:
    """Lines of a file, the blank ones empty."""
    path = Path(file).expanduser()
    if path.is_dir():
        raise ValueError(f"{file!r} is a folder; give a file with one text per line.")
    return [line.strip() for _, line in lines_of(path, blank=True)]
