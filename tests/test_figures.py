"""Figures of the pages come from the tables in docs/results, and links lead somewhere."""

import re

import pytest
from loading import ROOT, load

DOCS = ROOT / "docs"
PAGES = sorted(
    str(page.relative_to(DOCS))
    for folder in (DOCS, DOCS / "tasks", DOCS / "benchmarks")
    for page in folder.glob("*.md")
)
MEASURE = re.compile(
    r"nDCG|R-precision|NMI|mutual information|average precision|accuracy|rank correlation|"
    r"Spearman|\bpoints?\b",
    re.IGNORECASE,
)
# Not versions and names (1.5.2, v0.4), nor part of a word.
FIGURE = re.compile(r"(?<![\w.])[+-]?\d+\.\d+(?![\w.]\w)")


@pytest.fixture(scope="module")
def figures():
    pytest.importorskip("sphinx")
    return load("docs/figures.py")


def typed(text):
    """Sentences that name a measure and have a figure that no role brought."""
    blocks = re.DOTALL | re.MULTILINE
    text = re.sub(r"^(:::+)\{dropdown\}(.*?)^\1$", r"\2", text, flags=blocks)
    text = re.sub(r"^(:::+|```+).*?^\1$", "", text, flags=blocks)
    text = re.sub(r"^(\||    |:::).*$", "", text, flags=re.MULTILINE)
    text = re.sub(r"\{\w+\}`[^`]*`|`[^`]*`|\$[^$]*\$|\]\([^)]*\)", "", text)
    paragraphs = re.split(r"\n\s*\n|\n(?=- )", text)
    sentences = [
        sentence
        for paragraph in paragraphs
        for sentence in re.split(r"(?<=[.:;!?])\s+", " ".join(paragraph.split()))
    ]
    return [s for s in sentences if MEASURE.search(s) and FIGURE.search(s)]


@pytest.mark.parametrize(
    ("text", "n_found"),
    [
        ("R-precision rises to 45.2. Version 0.4 follows.", 1),
        ("It gains\n- +1.5 points\n- 2.5 points of NMI", 2),
        ("nDCG@10 is {figure}`comparison-e5/Cranfield/nDCG@10/raw`, 0.1 s later", 1),
        ("nDCG@10 is {figure}`comparison-e5/Cranfield/nDCG@10/raw`.", 0),
        ("| NMI | 45.2 |\n\n    NMI 45.2\n\n```python\nNMI = 45.2\n```\n", 0),
        (":::{dropdown} All\nNMI is 45.2.\n:::", 1),
        (":::{dropdown} All\n:::\n\nNMI is 45.2.\n\n:::{dropdown} Few\n:::", 1),
    ],
)
def test_a_typed_figure_is_found(text, n_found):
    assert len(typed(text)) == n_found


@pytest.mark.parametrize("page", PAGES)
def test_no_sentence_has_a_typed_figure_of_a_measure(page):
    assert not typed((DOCS / page).read_text("utf-8"))


def test_a_place_names_one_cell(figures):
    assert figures.figure("sts/mean/6/train/raw") == "78.9"
    with pytest.raises(ValueError, match=r"names 2 rows of results/sts\.csv"):
        figures.figure("sts/mean/6/raw")
    with pytest.raises(ValueError, match=r"names 0 rows .* or an empty cell"):
        figures.figure("sts/median/6/train/raw")


def test_a_table_of_scores_has_the_cells_of_the_files(figures):
    lines = figures.scores(["STS/Spearman"], steps=["whitened", "raw"])
    assert lines[0] == "| step | STS: e5 | STS: MiniLM |"
    places = (f"comparison-{encoder}/STS/Spearman/whitened" for encoder in ("e5", "minilm"))
    e5, minilm = map(figures.figure, places)
    assert lines[2] == f"| whitened | {e5} | {minilm} |"
    assert len(lines) == 4
    with_intervals = figures.scores(["STS/Spearman"], intervals=True)
    assert not any(line.startswith("| raw") for line in with_intervals)
    with pytest.raises(ValueError, match="has no 'STS/NMI'"):
        figures.scores(["STS/NMI"])


def test_every_figure_of_the_pages_is_in_a_table(figures):
    places = re.findall(
        r"\{figure\}`([^`]*)`", "".join((DOCS / page).read_text("utf-8") for page in PAGES)
    )
    assert places
    for place in places:
        float(figures.figure(" ".join(place.split())))


def test_readme_has_the_scores_of_the_comparison(figures):
    text = (ROOT / "README.md").read_text("utf-8")
    assert figures.filled(text) == text  # else run docs/figures.py
    last = re.compile(r"\d+\.\d (?=\|\n\n)")  # the last cell of the table
    assert figures.filled(last.sub("0 ", text)) == text


def test_the_text_beside_the_picture_has_its_figures(figures):
    text = (ROOT / "README.md").read_text("utf-8")
    caption = re.search(r"!\[(.*?)\]\(docs/_static/cosines\.svg\)", text)[1]
    raw, _, calibrated = caption.partition("Calibrated")
    for step, words in {"raw": raw, "whitened": calibrated}.items():
        for column in ("threshold", "related above", "unrelated mean"):
            assert figures.figure(f"cosines-e5/{step}/{column}") in words


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
