"""Tables of the pages come from the files in docs/results."""

import pytest
from loading import load

tables = load("docs/tables.py")


@pytest.mark.parametrize("page", tables.pages(), ids=lambda page: page.name)
def test_tables_of_a_page_are_those_of_the_results(page):
    text = page.read_text("utf-8")
    assert tables.rendered(page, text) == text, "run docs/tables.py"
