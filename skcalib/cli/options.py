"""Options and files that the commands share."""

import argparse
import csv
import json
from collections.abc import Callable
from functools import partial
from itertools import zip_longest
from pathlib import Path
from typing import Any

from skcalib.encoders.bert_encoder import BertEncoder
from skcalib.utils.base import import_package
from skcalib.utils.texts import lines_of

LONGEST = 2**31 - 1  # characters of a field; by default the csv module has 131,072
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


def add_column(add: Callable[..., Any]) -> None:
    """Add the argument that chooses the texts of a table."""
    column = f"column of texts, for files that end with {', '.join(TABLES)}"
    add("--column", metavar="NAME", help=column)


def texts_in(file: str, column: str | None = None) -> list[str]:
    """Texts of a file with one text per line, or of a column of a table."""
    return _not_blank(_entries(file, column), file)


def with_groups(
    file: str, groups: str | None, *, column: str | None = None, every: bool = True
) -> tuple[list[str], list[str | None] | None]:
    """Texts of a file, and the group of each from the line of the same number, if any.

    A blank text is left out together with its group. Each text needs a line with its group. The
    line may be blank unless ``every`` text must have a group; the group is then None.
    """
    texts = _entries(file, column)
    found = _not_blank(texts, file)
    if groups is None:
        return found, None
    labels = _entries(groups, None)
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


def _entries(file: str, column: str | None) -> list[str]:
    """Lines of a file, or rows of a column of a table; blank ones are ""."""
    path = Path(file).expanduser()
    if path.is_dir():
        raise ValueError(f"{file!r} is a folder; give a file with one text per line.")
    if (kind := path.suffix.lower()) not in TABLES:
        return [line.strip() for _, line in lines_of(path, blank=True)]
    if not (rows := TABLES[kind](path)):
        raise ValueError(f"{file!r} has no rows; give a table with a text in each.")
    known = list(dict.fromkeys(name for row in rows for name in row if name is not None))
    if column is None:
        raise ValueError(
            f"{file!r} is a table. Set --column to its column of texts, one of "
            f"{', '.join(map(str, known))}; or give a file with one text per line."
        )
    if column not in known:
        raise ValueError(f"{file!r} has no column {column!r}. Choose from {', '.join(known)}.")
    texts = [row.get(column) for row in rows]
    for number, text in enumerate(texts, 1):
        if not isinstance(text, str | None):
            raise ValueError(
                f"{file!r} has {text!r:.60}, a {type(text).__name__}, in row {number} of the "
                f"column {column!r}; it expects texts. Choose another column, or convert it."
            )
    return [(text or "").strip() for text in texts]


def _csv(path: Path, delimiter: str = ",") -> list[dict[str, Any]]:
    limit = csv.field_size_limit(LONGEST)  # of the whole process
    lines = (f"{line}\n" for _, line in lines_of(path, blank=True))
    reader = csv.reader(lines, delimiter=delimiter, strict=True)
    header: list[str] = []
    rows = []
    try:
        for fields in filter(None, reader):
            if not header:
                header = fields
                continue
            if len(fields) != len(header):
                raise csv.Error(f"{len(fields)} fields, where the header has {len(header)}")
            rows.append(dict(zip(header, fields, strict=True)))
    except csv.Error as error:
        raise ValueError(
            f"{path}, up to line {reader.line_num}: {error}. Put a field that has "
            f"{delimiter!r}, a quote or a line break into quotes, and double quotes in it."
        ) from error
    finally:
        csv.field_size_limit(limit)
    if len({*header}) < len(header):
        raise ValueError(f"{path} has two columns of one name, of {header}. Rename one.")
    return rows


def _json_lines(path: Path) -> list[dict[str, Any]]:
    rows = []
    for place, line in lines_of(path):
        try:
            row = json.loads(line)
        except (ValueError, RecursionError) as error:
            raise ValueError(f"{place} is not JSON: {error}.") from error
        if not isinstance(row, dict):
            raise ValueError(f"{place} has a {type(row).__name__}; expected an object.")
        rows.append(row)
    return rows


def _parquet(path: Path) -> list[dict[str, Any]]:
    read = import_package("pyarrow", "pyarrow.parquet").read_table
    try:
        return read(path).to_pylist()
    except ValueError as error:
        raise ValueError(f"{path} cannot be read as Parquet: {error}") from error


TABLES: dict[str, Callable[[Path], list[dict[str, Any]]]] = {
    ".csv": _csv,
    ".tsv": partial(_csv, delimiter="\t"),
    ".jsonl": _json_lines,
    ".ndjson": _json_lines,
    ".parquet": _parquet,
}
