"""Tables of the pages come from the files in docs/results."""

import pytest
from loading import load

tables = load("docs/tables.py")
SCORES = """data,step,value,low,high
news,raw,50.0,,
news,smoothed,60.5,58.0,62.0
"""


@pytest.fixture
def page(tmp_path, monkeypatch):
    (tmp_path / "tables").mkdir()
    monkeypatch.setattr(tables, "RESULTS", tmp_path)
    (tmp_path / "scores-a.csv").write_text(SCORES, "utf-8")
    (tmp_path / "scores-b.csv").write_text(SCORES.replace("60.5", "70.5"), "utf-8")
    return tmp_path / "page.md"


def table(page, description):
    """Return the lines of the table that a description has."""
    described = f"[one]\nfiles: {description}\n"
    (page.parent / "tables/page.txt").write_text(described, "utf-8")
    new = tables.rendered(page, "One.\n\n<!-- table: one -->\n\nTwo.\n")
    assert tables.rendered(page, new) == new
    head, rows = new.split("<!-- table: one -->\n")
    assert head == "One.\n\n"
    rows, tail = rows.split("\n\n")
    assert tail == "Two.\n"
    return rows.split("\n")


@pytest.mark.parametrize("page", tables.pages(), ids=lambda page: page.name)
def test_tables_of_a_page_are_those_of_the_results(page):
    text = page.read_text("utf-8")
    assert tables.rendered(page, text) == text, "run docs/tables.py"


def test_table_of_two_files(page):
    lines = table(
        page,
        "scores-a.csv scores-b.csv\ncells: news\n"
        "columns: step | scores-a as A | scores-b/{value} ({low} to {high}) as B\n"
        "rows:\n  smoothed/**{value}** as [ours](ours.md)\n  smoothed",
    )
    assert lines == [
        "| step | A | B |",
        "|---|---:|---:|",
        "| [ours](ours.md) | **60.5** | 70.5 (58.0 to 62.0) |",
        "| smoothed | 60.5 | 70.5 (58.0 to 62.0) |",
    ]


@pytest.mark.parametrize(
    ("description", "message"),
    [
        ("none.csv", r"there is no file none\.csv"),
        ("scores-a.csv\ncolumns: - | news\nrows: told", "'told/news' fits no row"),
        ("scores-a.csv\ncolumns: - | news\nrows: - as all", "'news' fits 2 rows"),
        ("scores-a.csv\ncolumns: - | {low}\nrows: raw", r"'low' is empty in the row news, raw"),
    ],
)
def test_table_error_names_page_file_and_fault(page, description, message):
    with pytest.raises(ValueError, match=rf"^page\.md, table one: .*{message}"):
        table(page, description)
