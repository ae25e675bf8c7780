"""What the commands of the command line share."""

import argparse
from collections.abc import Callable
from itertools import zip_longest
from pathlib import Path
from typing import Any

from skcalib.encoders.bert_encoder import BertEncoder
from skcalib.utils.texts import lines_of

PARAMS = "prompt", "overflow", "max_length", "layer_merge"  # of `BertEncoder`


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


def layers(name: str) -> str | tuple[int, ...]:
    """Return the `layers` of `BertEncoder` for an int, ints joined by "+", or a name."""
    try:
        return tuple(map(int, name.split("+")))
    except ValueError:
        return name  # such as "first_last"; BertEncoder checks it


def encoder_of(options: argparse.Namespace, **params: Any) -> BertEncoder:
    """Return the encoder of the options, with some parameters that are not among them."""
    given = {name: value for name, value in vars(options).items() if name in PARAMS}
    return BertEncoder(options.model, **(given | params))


def texts_in(file: str) -> list[str]:
    """Texts of a file with one text per line."""
    return _not_blank(_lines(file), file)


def with_groups(
    file: str, groups: str | None, *, every: bool = True
) -> tuple[list[str], list[str | None] | None]:
    """Texts of a file, and the group of each from the line of the same number, if any.

    A blank text is left out together with its group. Each text needs a line with its group,
    which may be blank unless ``every`` text has one; it is then None.
    """
    texts = _lines(file)
    found = _not_blank(texts, file)
    if groups is None:
        return found, None
    labels = _lines(groups)
    lines = list(zip_longest(texts, labels, fillvalue=""))
    for number, (text, label) in enumerate(lines, 1):
        lacks = text and (number > len(labels) or (every and not label))
        if lacks or (label and number > len(texts)):
            raise ValueError(
                f"{groups!r} has {label!r:.60} in line {number}, and {file!r} has {text!r:.60} "
                "there. Give both files a line for each text, in the same order."
            )
    return found, [label or None for text, label in lines if text]


def _not_blank(lines: list[str], file: str) -> list[str]:
    if not (texts := [line for line in lines if line]):
        raise ValueError(f"{file!r} has no text; give a file with one text per line.")
    return texts


def _lines(file: str) -> list[str]:
    """Lines of a file, the blank ones empty."""
    path = Path(file).expanduser()
    if path.is_dir():
        raise ValueError(f"{file!r} is a folder; give a file with one text per line.")
    return [line.strip() for _, line in lines_of(path, blank=True)]
