"""Read figures and tables of the pages from the files in ``results``, so that none is typed.

The role ``{figure}`` shows one cell of a file: the name of the file, cells that only one of its
rows has, and the name of a column ("value" may be left out), with slashes between them::

    {figure}`comparison-e5/Banking77/R-precision/whitened/difference`

The directive ``{scores}`` shows scores of the comparison, a row for each step and a column for
each score and encoder. ``:intervals:`` shows the differences to raw vectors with their 95 %
intervals in place of the scores::

    ```{scores} Banking77/R-precision, news/R-precision
    :steps: raw, centered, whitened
    ```

README has no roles: ``python docs/figures.py`` writes the scores into its tables.
"""

import csv
import re
from functools import cache
from pathlib import Path

from docutils import nodes
from docutils.parsers.rst import directives
from sphinx.util.docutils import SphinxDirective, SphinxRole

RESULTS = Path(__file__).parent / "results"
README = Path(__file__).parents[1] / "README.md"
# The rows and columns of README's table, as the comparison names them.
README_ROWS = [
    *("Banking77/R-precision", "Banking77/average precision", "biomedical/R-precision"),
    *("news/R-precision", "news told/R-precision"),
    *("Banking77/NMI", "biomedical/NMI", "Cranfield/nDCG@10", "STS/Spearman"),
]
CLASSES_ROWS = {
    "names": ["raw", "ours", "PCA(128)", None],
    "3 labels": [
        *("nearest mean, raw", "ours, without names"),
        *("nearest mean, PCA(128)", "logistic regression, raw"),
    ],
}
TOLD_STEPS = ["raw", "told", "told and smoothed", "centered", "PCA(groups)"]
README_STEPS = ["raw", "whitened", "smoothed", "centered", "PCA(128)"]
ENCODERS = {"e5": "comparison-e5", "MiniLM": "comparison-minilm"}


@cache
def rows_of(name):
    """Rows of a file as dictionaries."""
    with open(RESULTS / f"{name}.csv", newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def figure(place):
    """Return the cell at a place such as "comparison-e5/STS/Spearman/raw"."""
    name, *cells = place.split("/")
    rows = rows_of(name)
    column = cells.pop() if cells[-1] in rows[0] else "value"
    found = [row[column] for row in rows if set(cells) <= set(row.values())]
    if len(found) != 1 or not found[0]:
        raise ValueError(
            f"{place!r} names {len(found)} rows of results/{name}.csv, or an empty cell; name "
            "cells that one row has, and a column."
        )
    return found[0]


def cell(row, intervals):
    if not intervals:
        return row["value"]
    ends = f" ({row['low']} to {row['high']})" if row["low"] else ""
    return row["difference"] + ends


def scores(places, steps=None, intervals=False):
    """Return the lines of a Markdown table of scores at places such as "STS/Spearman"."""
    columns, cells = [], {}
    for place in places:
        name = place.partition("/")[0]
        for encoder, file in ENCODERS.items():
            columns.append(f"{name}: {encoder}")
            found = [row for row in rows_of(file) if f"{row['data']}/{row['score']}" == place]
            for row in found:
                cells.setdefault(row["step"], {})[columns[-1]] = cell(row, intervals)
            if not found:
                raise ValueError(f"results/{file}.csv has no {place!r}.")
    names = steps or [name for name in cells if not (intervals and name == "raw")]
    lines = [["step", *columns], ["---"] + ["---:"] * len(columns)]
    lines += [[name, *(cells[name].get(column, "") for column in columns)] for name in names]
    return [f"| {' | '.join(line)} |" for line in lines]


def filled(readme):
    """Return the text of README with the scores of e5 in the tables of what it brings."""
    head, title, rest = readme.partition("## What it brings\n")
    parts = re.split(r"((?<=:\|\n)(?:\|.*\n)+)", rest, maxsplit=2)
    compared = []
    for place in README_ROWS:
        steps = TOLD_STEPS if " told/" in place else README_STEPS
        compared.append(
            [f"comparison-e5/{place.replace(' told', '')}/{step}" for step in steps]
        )
    classes = [
        [step and f"classes-e5/Banking77/{row}/{step}" for step in steps]
        for row, steps in CLASSES_ROWS.items()
    ]
    parts[1], parts[3] = _table(parts[1], compared), _table(parts[3], classes)
    return "".join([head, title, *parts])


def _table(rows, places):
    """Return rows of a table with their figures from these places."""
    lines = []
    for row, cells in zip(rows.splitlines(), places, strict=True):
        values = (figure(place) if place else "" for place in cells)
        lines.append(f"|{row.split('|')[1]}| {' | '.join(values)} |\n")
    return "".join(lines)


def listed(text):
    return [part.strip() for part in text.split(",")]


class Figure(SphinxRole):
    """One cell of a file."""

    def run(self):
        self.env.note_dependency(str(RESULTS / f"{self.text.partition('/')[0]}.csv"))
        return [nodes.Text(figure(self.text))], []


class Scores(SphinxDirective):
    """A table of scores."""

    required_arguments = 1
    final_argument_whitespace = True
    option_spec = {"steps": listed, "intervals": directives.flag}

    def run(self):
        for name in ENCODERS.values():
            self.env.note_dependency(str(RESULTS / f"{name}.csv"))
        options = self.options | {"intervals": "intervals" in self.options}
        lines = scores(listed(self.arguments[0]), **options)
        return self.parse_text_to_nodes("\n".join(lines))


def setup(app):
    app.add_role("figure", Figure())
    app.add_directive("scores", Scores)
    return {"parallel_read_safe": True}


if __name__ == "__main__":
    README.write_text(filled(README.read_text("utf-8")), "utf-8")
