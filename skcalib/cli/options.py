"""Options of the command, and the files that it reads."""

import argparse
import contextlib
import csv
import json
from collections.abc import Callable, Iterable
from itertools import zip_longest
from pathlib import Path
from typing import Any

from skcalib.base import warn
from skcalib.encoders.bert_encoder import BertEncoder
from skcalib.inputs.files import STDIN, is_table, lines_of, rows_of

PARAMS = "prompt", "overflow", "max_length"  # of `BertEncoder`
OF_TEXTS = "a column of the table of TEXTS, or a file with a line for each text"


def add_state(add: Callable[..., Any]) -> None:
    """Add the arguments for one pooling and one layer, or several that are merged."""
    declared = "default: what the model's folder declares"
    add("--pooling", help=f"such as mean, cls, max or zipf; {declared}, else mean")
    several = "such as 3, 0+3 for the mean of two, or first_last; default: the last"
    add("--layers", type=layers, help=several)


def add_encoding(add: Callable[..., Any]) -> None:
    """Add the arguments that determine how texts are encoded."""
    words = "put before each text, or around {text}; default: what the model's folder declares"
    add("--prompt", help=words)
    whole = "cut texts off at the model's limit, or read all of them in windows; default: cut"
    add("--overflow", choices=("cut", "windows"), default="cut", help=whole)
    add("--max-length", type=int, help="tokens of a text or window; default: the model's limit")
    add("--memory", help="folder that keeps vectors, so that each text is encoded only once")


def layers(name: str) -> str | tuple[int, ...]:
    """Return the `layers` of `BertEncoder` for an int, ints joined by "+", or a name."""
    try:
        return tuple(map(int, name.split("+")))
    except ValueError:
        return name  # such as "first_last"; BertEncoder checks it


def encoder_of(options: argparse.Namespace, **params: Any) -> BertEncoder:
    """Return the encoder of the options, with some parameters that are not among them."""
    chosen = {name: value for name, value in vars(options).items() if name in PARAMS}
    return BertEncoder(options.model, **(chosen | params))


def state_of(options: argparse.Namespace) -> dict[str, Any]:
    """Return the pooling and layers of the options, as far as they are set."""
    chosen = {"pooling": options.pooling, "layers": options.layers}
    return {name: value for name, value in chosen.items() if value is not None}


def add_model_and_texts(add: Callable[..., Any], of_texts: str) -> None:
    """Add the arguments for a model, and for a file of texts or a column of a table."""
    add("model", metavar="MODEL", help="hub id, folder, or minilm (of the demo extra)")
    add("texts", metavar="TEXTS", help=f"UTF-8 file, a text per line or a table, or {of_texts}")
    column = "column of texts, if the file is a table: CSV, TSV, JSON, JSON lines or Parquet"
    add("--column", metavar="NAME", help=column)


def texts_in(file: str, column: str | None = None) -> list[str]:
    """Texts of a file with one text per line, or of a column of a table."""
    return _not_blank(_entries(file, column), file)


def with_labels(
    file: str, labels: str | None, *, column: str | None = None
) -> tuple[list[str], list[str | None] | None]:
    """Texts of a file, and the label of each, if any, from a file or a column of the table.

    A file of labels has that of each text in the line of the same number. A blank text is left
    out together with its label. A label may be blank; it is then None.
    """
    if labels is None:
        return texts_in(file, column), None
    if Path(labels).expanduser().is_file():
        pairs = _lines_beside(_entries(file, column), file, labels)
    elif column is not None:
        pairs = _of_columns(file, column, labels)
    else:
        raise ValueError(
            f"{labels!r} is no file. Give a file with a line for each text, or, if {file!r} is "
            "a table, set --column to its column of texts and name its column of labels here."
        )
    kept = [(text, label or None) for text, label in pairs if text]
    return _not_blank([text for text, _ in kept], file), [label for _, label in kept]


def _of_columns(file: str, column: str, labels: str) -> list[tuple[str, str]]:
    """Return the texts and labels in two columns of a table."""
    pairs = []
    for place, row in rows_of(Path(file).expanduser(), [column, labels]):
        text, label = _text(place, row[column], column), row[labels]
        pairs.append((text, "" if label is None else str(label).strip()))
    return pairs


def _lines_beside(texts: list[str], file: str, labels: str) -> list[tuple[str, str]]:
    """Return texts and the lines of the same number of a file of labels."""
    lines = _entries(labels, None)
    pairs = list(zip_longest(texts, lines, fillvalue=""))
    for number, (text, label) in enumerate(pairs, 1):
        if (text and number > len(lines)) or (label and number > len(texts)):
            raise ValueError(
                f"{labels!r} has {label!r:.60} in line {number}, and {file!r} has {text!r:.60} "
                "there. Give both files a line for each text, in the same order."
            )
    return pairs


def _not_blank(lines: list[str], file: str) -> list[str]:
    if not (texts := [line for line in lines if line]):
        raise ValueError(f"{file!r} has no text; give a file with one text per line.")
    return texts


def _entries(file: str, column: str | None) -> list[str]:
    """Lines of a file, or rows of a column of a table; blank ones are ""."""
    path = Path(file).expanduser()
    if path.is_dir() or (path != STDIN and not path.exists()):
        what = "is a folder" if path.is_dir() else "does not exist"
        raise ValueError(f"{file!r} {what}; give a file with one text per line.")
    if column is not None:
        return [_text(place, row.get(column), column) for place, row in rows_of(path, [column])]
    if is_table(path):
        _, row = next(rows_of(path))
        raise ValueError(_is_table(file, row))
    lines = [line for _, line in lines_of(path, blank=True)]
    if names := _columns_of([line for line in lines if line.strip()]):
        raise ValueError(_is_table(file, names))
    if _may_be_csv(lines):
        warn(
            f"{file!r} may be a table of {lines[0].strip()!r:.60}, but its lines are read as "
            "texts. Set --column to read a column of it."
        )
    return [line.strip() for line in lines]


def _columns_of(lines: list[str]) -> list[str]:
    """Return the names of columns if lines are those of a table, by JSON or by separators."""
    if lines and (start := lines[0].lstrip()[0]) in "{[":
        with contextlib.suppress(ValueError, LookupError):
            first = json.loads(lines[0]) if start == "{" else json.loads("".join(lines))[0]
            return [*first] if isinstance(first, dict) else []
    # Some texts have a separator each, but not the same number of them in many lines.
    for separator, least in (("\t", 2), ("|", 3), (";", 3)):
        counts = {line.count(separator) for line in lines}
        if len(lines) >= least and len(counts) == 1 and counts != {0}:
            return lines[0].split(separator)
    return []


def _may_be_csv(lines: list[str]) -> bool:
    """Whether commas separate as many cells in each line, not followed by a space."""
    try:
        rows = [row for row in csv.reader(lines) if row]
    except csv.Error:  # a very long line
        return False
    cells = {len(row) for row in rows}
    spaced = any(cell.startswith(" ") for row in rows for cell in row[1:])
    return len(rows) > 2 and len(cells) == 1 and cells != {1} and not spaced


def _text(place: str, cell: Any, column: str) -> str:
    if not isinstance(cell, str | None):
        raise ValueError(
            f"{place} has {cell!r:.60} of type {type(cell).__name__} in the column {column!r}; "
            "expected a text. Choose another column, or convert it."
        )
    return (cell or "").strip()


def _is_table(file: str, names: Iterable[str]) -> str:
    return (
        f"{file!r} is a table. Set --column to its column of texts, one of {', '.join(names)}; "
        "or give a file with one text per line."
    )
