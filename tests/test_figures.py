"""Figures that stand on several pages are the same on all of them, and links lead somewhere."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]

# README's columns, as the comparison names the steps.
STEPS = ["raw", "whitened", "whitened, smoothed", "centered", "`PCA(128)`"]
# README's rows: where the comparison has them, and the columns of e5 and MiniLM.
PLACES = [
    ("Texts of one intent or topic", 0),
    ("Pairs of one intent or topic", 0),
    ("Texts of one intent or topic", 2),
    ("Clusters", 0),
    ("Clusters", 2),
    ("Search and similarity", 0),
    ("Search and similarity", 2),
]


def table(page, heading):
    """Cells of the first table below a heading, by the name of the row."""
    text = (ROOT / page).read_text("utf-8").partition(f"# {heading}\n")[2]
    lines = re.search(r"(?:^\|.*\n)+", text, re.MULTILINE)[0].splitlines()[2:]
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
    return {name: cells for name, *cells in rows}


@pytest.fixture(scope="module")
def readme():
    return list(table("README.md", "What it brings").values())


@pytest.mark.parametrize(("row", "place"), list(enumerate(PLACES)))
def test_readme_has_the_scores_of_the_comparison(readme, row, place):
    heading, column = place
    scores = table("docs/comparison.md", heading)
    assert readme[row] == [scores[step][column] for step in STEPS]


def test_readme_has_the_gains_of_the_second_encoder():
    text = (ROOT / "README.md").read_text("utf-8")
    told = re.search(r"row by\s+row: ([^)]*)", text)[1]
    gains = []
    for heading, column in PLACES:
        scores = table("docs/comparison.md", heading)
        gains.append(float(scores["whitened"][column + 1]) - float(scores["raw"][column + 1]))
    # Rounded from what is not rounded, they may differ by one in the last digit.
    assert [float(gain) for gain in told.split(",")] == pytest.approx(gains, abs=0.11)


def test_the_front_page_has_the_scores_of_readme(readme):
    text = (ROOT / "docs" / "index.md").read_text("utf-8")
    for row in readme[:2]:
        assert {row[0], row[2]} <= set(re.findall(r"\d+\.\d", text))


@pytest.mark.parametrize("page", ["README.md", "CONTRIBUTING.md"])
def test_links_out_of_the_pages_that_sphinx_does_not_read(page):
    links = re.findall(
        r"\]\((?!https?:)([^)#]+)(?:#([^)]*))?\)", (ROOT / page).read_text("utf-8")
    )
    for file, anchor in links:
        target = ROOT / file
        assert target.exists(), file
        if anchor:
            headings = re.findall(r"^#+ (.*)$", target.read_text("utf-8"), re.MULTILINE)
            slugs = {re.sub(r"[^\w -]", "", h.lower()).replace(" ", "-") for h in headings}
            assert anchor in slugs, f"{file}#{anchor}"
