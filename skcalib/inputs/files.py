"""Files of texts, and the rows of tables in CSV, JSON and Parquet."""

import csv
import json
import sys
from collections.abc import Iterable, Iterator, Sequence
from io import StringIO
from pathlib import Path
from typing import Any

from skcalib.base import import_package

STDIN = Path("-")
SEPARATORS = {".csv": ",", ".tsv": "\t", ".tab": "\t"}
JSON = (".json", ".jsonl", ".ndjson")
TABLES = (*SEPARATORS, *JSON, ".parquet")
LONGEST = 2**31 - 1  # of a cell; by default the csv module accepts 131,072

Place = str  # such as "texts.csv, line 3"
Row = dict[str, Any]


def text_of(file: Path) -> str:
    """Return the text of a file in UTF-8; "-" is standard input. Lines end at line feeds."""
    content = sys.stdin.buffer.read() if file == STDIN else file.read_bytes()
    fault = content.find(b"\0")  # common in UTF-16
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        fault = error.start
    if fault >= 0:
        line = content.count(b"\n", 0, fault) + 1
        raise ValueError(
            f"{file}, line {line} is not UTF-8, or has a NUL character. Convert the file, for "
            "instance with: iconv -f latin1 -t utf-8, or -f utf-16; unpack it if it is "
            "compressed; save a spreadsheet as CSV."
        )
    return text.replace("\r\n", "\n").replace("\r", "\n")


def rows_of(file: Path, columns: Sequence[str] = ()) -> Iterator[tuple[Place, Row]]:
    """Yield the place of each row of a table, and its cells by column.

    The ending of the file determines its kind; without a known ending it is JSON if it begins
    with a bracket or a brace, and CSV otherwise. JSON is an array of objects, or an object per
    line. A ValueError says what is broken, or that a row lacks one of ``columns``.
    """
    ending = file.suffix.lower()
    rows: Iterable[tuple[Place, Row]] = ()
    if ending == ".parquet":
        table = import_package("pyarrow", "pyarrow.parquet").read_table(file)
        rows = ((f"{file}, row {i}", row) for i, row in enumerate(table.to_pylist(), 1))
    elif text := text_of(file).strip("\n"):
        is_json = ending in JSON or (ending not in SEPARATORS and text.lstrip()[0] in "[{")
        rows = _json(file, text) if is_json else _csv(file, text)
    is_empty = True
    for place, row in rows:
        for column in columns:
            if column not in row:
                names = ", ".join(map(repr, row))
                raise ValueError(f"{place} has no column {column!r}; its columns are {names}.")
        is_empty = False
        yield place, row
    if is_empty:
        raise ValueError(f"{file} has no rows; expected a table.")


def _csv(file: Path, text: str) -> Iterable[tuple[Place, Row]]:
    """Yield the rows of a table whose header shows what separates cells."""
    separators = dict.fromkeys([SEPARATORS.get(file.suffix.lower(), ","), *",\t;|"])
    separator = max(separators, key=text.partition("\n")[0].count)
    reader = csv.reader(StringIO(text), delimiter=separator, strict=True)
    limit = csv.field_size_limit(LONGEST)  # of the whole process
    try:
        header = next(reader)
        for cells in filter(None, reader):
            if len(cells) != len(header):
                raise csv.Error(f"{len(cells)} cells, where the header has {len(header)}")
            yield f"{file}, line {reader.line_num}", dict(zip(header, cells, strict=True))
    except csv.Error as error:
        raise ValueError(
            f"{file}, line {reader.line_num}: {error}. Put {separator!r} between cells, and a "
            "cell that has it, a quote or a line break into quotes, and double the quotes in "
            "it."
        ) from error
    finally:
        csv.field_size_limit(limit)


def _json(file: Path, text: str) -> Iterable[tuple[Place, Row]]:
    """Yield the objects of an array, or the object of each line."""
    is_array = text.lstrip()[0] == "["
    unit = "entry" if is_array else "line"
    for number, line in enumerate([text] if is_array else text.split("\n"), 1):
        if not line.strip():
            continue
        try:
            loaded = json.loads(line)
        except (ValueError, RecursionError) as error:
            raise ValueError(f"{file}, line {number} is not JSON: {error}.") from error
        for place, entry in enumerate(loaded if is_array else [loaded], number):
            if not isinstance(entry, dict):
                raise ValueError(
                    f"{file}, {unit} {place} has {entry!r:.60} of type {type(entry).__name__}; "
                    'expected an object, such as {"text": "..."}.'
                )
            yield f"{file}, {unit} {place}", entry
