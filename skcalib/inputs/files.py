"""Files of texts: their lines, and the rows of tables in CSV, JSON and Parquet."""

import csv
import json
import re
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from io import TextIOWrapper
from itertools import chain
from pathlib import Path
from typing import Any, TextIO

from skcalib.base import import_package

# Surrogates, to which Python decodes bytes that are not UTF-8, and NUL, common in UTF-16.
NOT_UTF8 = re.compile("[\0\udc80-\udcff]")
SURROGATE = re.compile("[\ud800-\udfff]")
STDIN = Path("-")
SEPARATORS = {".csv": ",", ".tsv": "\t", ".tab": "\t"}
JSON = (".json", ".jsonl", ".ndjson")
TABLES = (*SEPARATORS, *JSON, ".parquet")
HEADER = 100_000  # characters of it that show the separator
LONGEST = 2**31 - 1  # of a cell; by default the csv module accepts 131,072

Place = str  # such as "texts.csv, line 3"
Row = dict[str, Any]


def is_table(file: Path) -> bool:
    """Whether the ending of a file is that of a table."""
    return _ending(file) in TABLES


def lines_of(file: Path, *, blank: bool = False) -> Iterator[tuple[Place, str]]:
    """Yield the place and the text of each line of a file; blank lines only with ``blank``.

    "-" is standard input.
    """
    with _opened(file) as stream:
        # Lines end at line feeds and carriage returns; `splitlines` knows other ends, too.
        for number, line in enumerate(stream, 1):
            place = f"{_name(file)}, line {number}"
            if NOT_UTF8.search(line):
                raise ValueError(
                    f"{place} is not UTF-8, or has a NUL character. Convert the file, for "
                    "instance with: iconv -f latin1 -t utf-8, or -f utf-16; unpack it if it is "
                    "compressed; save a spreadsheet as CSV"
                )
            if blank or line.strip():
                yield place, line.rstrip("\n")


def rows_of(file: Path, columns: Sequence[str] = ()) -> Iterator[tuple[Place, Row]]:
    """Yield the place of each row of a table, and its cells by column.

    The ending of the file determines its kind; without a known ending it is JSON if it begins
    with a bracket or a brace, and CSV otherwise. JSON is an array of objects, or an object per
    line. In CSV, commas, tabs, semicolons or bars separate the cells. Other columns than
    ``columns`` may be left out. A ValueError says what is broken, or that the file lacks one of
    them.
    """
    is_empty = True
    for place, row in _rows_of(file, columns):
        if is_empty:
            _require(columns, row, file)
        for column in columns:
            _check_cell(place, row, column)
        is_empty = False
        yield place, row
    if is_empty:
        raise ValueError(f"{_name(file)} has no rows; expected a table.")


def _check_cell(place: Place, row: Row, column: str) -> None:
    """Refuse a row of JSON that lacks a column, or a text that no model can read."""
    if column not in row:
        raise ValueError(
            f"{place} has no {column!r}, only {', '.join(map(repr, row))}. Add it, or null for "
            "a row to leave out."
        )
    if isinstance(row[column], str) and SURROGATE.search(row[column]):
        raise ValueError(
            f"{place} has half of a surrogate pair in {column!r}, which is no character. "
            "Correct the text where it was written."
        )


def _rows_of(file: Path, columns: Sequence[str]) -> Iterator[tuple[Place, Row]]:
    ending = _ending(file)
    if ending == ".parquet":
        return _parquet(file, columns)
    lines = lines_of(file, blank=True)
    first = next(((place, line) for place, line in lines if line.strip()), None)
    if first is None:
        return iter(())
    lines, line = chain([first], lines), first[1]
    if line.lstrip()[0] in "[{" if not ending else ending in JSON:
        return _array(file, lines) if line.lstrip()[0] == "[" else _objects(lines)
    # The separator that gives the columns, then the one that gives the most.
    separators = dict.fromkeys([SEPARATORS.get(ending, ","), *",\t;|"])
    names = {s: next(csv.reader([line[:HEADER]], delimiter=s)) for s in separators}
    separator = max(names, key=lambda s: ({*columns} <= {*names[s]}, len(names[s])))
    return _delimited(file, lines, separator, columns)


def _delimited(
    file: Path, lines: Iterable[tuple[Place, str]], separator: str, columns: Sequence[str]
) -> Iterator[tuple[Place, Row]]:
    place = _name(file)

    def stream() -> Iterator[str]:
        nonlocal place
        for place, line in lines:  # noqa: B007, where a row ends
            yield f"{line}\n"

    limit = csv.field_size_limit(LONGEST)  # of the whole process
    try:
        rows = filter(None, csv.reader(stream(), delimiter=separator, strict=True))
        header = next(rows)
        if len({*header}) < len(header):
            raise csv.Error(f"two columns have one name, of {header}")
        _require(columns, header, file)
        for cells in rows:
            if len(cells) != len(header):
                raise csv.Error(f"{len(cells)} cells, where the header has {len(header)}")
            yield place, dict(zip(header, cells, strict=True))
    except csv.Error as error:
        raise ValueError(
            f"{place}: {error}. Put {separator!r} between cells, and a cell that has it, a "
            "quote or a line break into quotes, and double the quotes in it."
        ) from error
    finally:
        csv.field_size_limit(limit)


def _objects(lines: Iterable[tuple[Place, str]]) -> Iterator[tuple[Place, Row]]:
    """Yield the JSON object of each line."""
    for place, line in lines:
        if line.strip():
            yield place, _object(place, _json(place, line))


def _array(file: Path, lines: Iterable[tuple[Place, str]]) -> Iterator[tuple[Place, Row]]:
    """Yield the objects of a JSON array."""
    text, name = "\n".join(line for _, line in lines), _name(file)
    for number, entry in enumerate(_json(name, text), 1):
        place = f"{name}, entry {number}"
        yield place, _object(place, entry)


def _json(place: Place, text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{place} is not JSON: {error}.") from error


def _object(place: Place, entry: Any) -> Row:
    if not isinstance(entry, dict):
        raise ValueError(
            f"{place} has {entry!r:.60} of type {type(entry).__name__}; expected an object, "
            'such as {"text": "..."}. Or give a file with one text per line.'
        )
    return entry


def _parquet(file: Path, columns: Sequence[str]) -> Iterator[tuple[Place, Row]]:
    parquet = import_package("pyarrow", "pyarrow.parquet")
    try:
        with parquet.ParquetFile(file) as table:
            known = table.schema_arrow.names
            read = [name for name in columns if name in known] or None
            batches = [*table.iter_batches(columns=read)]
    except ValueError as error:
        raise ValueError(f"{file} cannot be read as Parquet: {error}") from error
    rows = chain.from_iterable(batch.to_pylist() for batch in batches)
    return ((f"{file}, row {number}", row) for number, row in enumerate(rows, 1))


def _require(columns: Iterable[str], known: Iterable[str], file: Path) -> None:
    for column in columns:
        if column not in known:
            raise ValueError(
                f"{_name(file)} has no column {column!r}; its columns are "
                f"{', '.join(map(repr, known))}."
            )


@contextmanager
def _opened(file: Path) -> Iterator[TextIO]:
    encoding: dict[str, Any] = {"encoding": "utf-8-sig", "errors": "surrogateescape"}
    if file == STDIN:
        stream = TextIOWrapper(sys.stdin.buffer, **encoding)
        try:
            yield stream
        finally:
            stream.detach()  # or it would close standard input
    else:
        with file.open(**encoding) as stream:
            yield stream


def _name(file: Path) -> str:
    return "standard input" if file == STDIN else str(file)


def _ending(file: Path) -> str:
    """Return the ending of a file if it is one of `TABLES`."""
    ending = file.suffix.lower()
    return ending if ending in TABLES else ""
