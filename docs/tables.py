"""Write the results into the tables of the pages, so that none is typed.

    python docs/tables.py

A table stands right below a comment with its name, ``<!-- table: steps -->``. The description
of that name stands in ``results/tables/``, in the file that has the name of the page::

    [steps]
    files: baselines.csv
    cells: groups known/Banking77
    columns: step | e5 | minilm as MiniLM
    rows: raw | PCA(groups) as `PCA(groups)` | skcalib/**{value}**

A description of files alone shows them as they are. Otherwise columns and rows say which cells
are shown.

Each entry is a place: cells that a row of the files has, with slashes between them, among them
the file's name without its ending. Together, ``cells``, the row and the column fit one row of
the files. What is shown of it stands in braces, such as ``{difference} ({low} to {high})``;
without braces it is ``{value}``. " as " gives an entry another label.

- The first entry of ``columns`` is the heading above the rows. "-" is an empty cell.
- Entries are separated by " | " or by the end of a line.
- A row ``{step}`` stands for all steps of the files, in their order.
- Further ``columns`` hold for the rows below them, and have no headings.
- Without ``rows``, each row of the files that fits ``cells`` is a row of the table.
"""

import csv
import re
from itertools import zip_longest
from pathlib import Path

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "docs/results"
TABLE = re.compile(r"^<!-- table: (\S+) -->\n(?:\|[^\n]*\n)*", re.M)
NAME = re.compile(r"^\[(\S+)\]\n", re.M)
KEY = re.compile(r"^(files|cells|columns|rows):", re.M)
NUMBER = re.compile(r"[*+-]*\d.*|")  # or an empty cell


def pages():
    """Return README and the pages, without what the site generates."""
    docs = ROOT / "docs"
    return [ROOT / "README.md", *sorted([*docs.glob("*.md"), *docs.glob("tasks/*.md")])]


def rendered(page, text):
    """Return the text of a page with its tables as the files of results have them."""
    path = RESULTS / f"tables/{page.stem}.txt"
    _, *parts = NAME.split(path.read_text("utf-8") if path.exists() else "")
    described = dict(zip(parts[::2], parts[1::2], strict=True))
    if len(described) < len(parts) / 2:
        raise ValueError(f"{path.name} describes one name twice.")
    names = []

    def table(found):
        names.append(found[1])
        try:
            lines = "\n".join(lines_of(described.get(found[1], "")))
        except ValueError as error:
            raise ValueError(f"{page.name}, table {found[1]}: {error}") from None
        return f"<!-- table: {found[1]} -->\n{lines}\n"

    new = TABLE.sub(table, text)
    if len(names) != text.count("<!-- table:"):
        raise ValueError(f"{page.name}: <!-- table: NAME --> is a line of its own.")
    if unused := described.keys() - names:
        raise ValueError(f"{path.name} describes {min(unused)}, which is not on the page.")
    return new


def lines_of(description):
    """Return the lines of the table that a description has."""
    _, *parts = KEY.split(description)
    if parts[:1] != ["files"]:
        raise ValueError("its description is missing, or does not begin with files.")
    records = [record for file in parts[1].split() for record in records_of(RESULTS / file)]
    cells, columns, table = "", None, []
    for key, text in zip(parts[2::2], parts[3::2], strict=True):
        if key == "cells":
            cells = text.strip()
        elif key == "columns":
            columns = entries(text)
            table = table or [[label for _, label in columns]]
            if len(columns) != len(table[0]):
                raise ValueError(f"{len(columns)} columns below {len(table[0])}.")
        else:
            if columns is None:
                raise ValueError("rows need columns above them.")
            for place, label in expanded(entries(text), cells, records):
                row = (cell([cells, place, column], records) for column, _ in columns[1:])
                table.append([label, *row])
    if "rows" not in parts:
        found = fitting(split(cells)[0], records)
        if columns is None:
            table = [[name for name in records[0] if name]]
            table += [[record[name] for name in table[0]] for record in found]
        else:
            table += [[filled(place, record) for place, _ in columns] for record in found]
    head, *rows = (f"| {' | '.join(line)} |" for line in table)
    bodies = zip(*table[1:], strict=True)
    sides = ["---:" if all(map(NUMBER.fullmatch, body)) else "---" for body in bodies]
    return [head, f"|{'|'.join(['---', *sides[1:]])}|", *rows]


def records_of(path):
    """Return the rows of a file as dictionaries, with its name at the key ""."""
    try:
        with open(path, newline="", encoding="utf-8") as file:
            names, *rows = csv.reader(file)
    except FileNotFoundError:
        raise ValueError(f"there is no file {path.name}.") from None
    if len(set(names)) < len(names) or any(len(row) > len(names) for row in rows):
        raise ValueError(f"each column of {path.name} needs a name of its own.")
    # A row that ends early has empty cells.
    return [dict(zip_longest(names, row, fillvalue="")) | {"": path.stem} for row in rows]


def entries(text):
    """Return place and label of each entry; "-" is neither."""
    pairs = []
    for entry in re.split(r"\n| \| ", text.strip()):
        place, _, label = entry.strip().partition(" as ")
        names, shown = split(place)
        label = label or "/".join(names) or re.sub(r"[{}]", "", "".join(shown))
        pairs.append(tuple("" if part == "-" else part for part in (place, label)))
    return pairs


def expanded(rows, cells, records):
    """Put a row for each value of a column in the place of its name in braces."""
    for place, label in rows:
        if re.fullmatch(r"\{[^{}]*\}", place):
            found = fitting(split(cells)[0], records)
            values = dict.fromkeys(filled(place, record) for record in found)
            yield from ((value, value) for value in values)
        else:
            yield place, label


def split(place):
    """Return the cells that a place names, and what of the row it shows."""
    parts = [part for part in re.split(r"(?<! )/(?! )", place) if part]
    shown = [part for part in parts if "{" in part]
    return [part for part in parts if part not in shown], shown


def fitting(names, records):
    """Return the rows that have these cells, at least one."""
    found = [record for record in records if set(names) <= set(record.values())]
    if not found:
        raise ValueError(f"{'/'.join(names)!r} fits no row.")
    return found


def cell(places, records):
    """Return what is shown of the row that places name together."""
    if not places[-1]:
        return ""
    named, shown = zip(*map(split, places), strict=True)
    names = [name for part in named for name in part]
    found = fitting(names, records)
    if len(found) > 1:
        raise ValueError(f"{'/'.join(names)!r} fits {len(found)} rows; it has to fit one.")
    return filled(["{value}", *(part for parts in shown for part in parts)][-1], found[0])


def filled(template, record):
    """Return a template such as "{low} to {high}" with the cells of a row."""

    def value(found):
        if found[1] not in record:
            raise ValueError(f"no column {found[1]!r} among {', '.join(filter(None, record))}.")
        if not record[found[1]]:
            row = ", ".join(filter(None, record.values()))
            raise ValueError(f"column {found[1]!r} is empty in the row {row}.")
        return record[found[1]]

    return re.sub(r"\{([^{}]*)\}", value, template)


if __name__ == "__main__":
    for page in pages():
        text = page.read_text("utf-8")
        if (new := rendered(page, text)) != text:
            page.write_text(new, "utf-8")
            print(page.relative_to(ROOT))
