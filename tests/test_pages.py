"""Pages read the same on a git host as on the site."""

import re
from functools import cache
from pathlib import Path

import pytest
from loading import ROOT, load

import skcalib

PACKAGE = Path(skcalib.__file__).parent
PAGES = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/*.md"), *ROOT.glob("docs/tasks/*.md")])
ON_THE_SITE = ROOT / "docs" / "index.md"  # the front page of the site, as README is of the host
LINK = re.compile(r"\]\((?!https?:|mailto:)([^)\s#]*)(?:#([^)\s]+))?\)")
FENCE = re.compile(r"^```.*?^```", re.DOTALL | re.MULTILINE)


@cache
def anchors(path):
    """Anchors of the headings of a page, as a git host makes them."""
    text = FENCE.sub("", path.read_text("utf-8"))
    titles = re.findall(r"^#{1,3} (.*)$", text, re.MULTILINE)
    plain = (re.sub(r"\]\([^)]*\)", "", title) for title in titles)
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in plain}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_to_files_and_headings(page):
    links = LINK.findall(FENCE.sub("", page.read_text("utf-8")))
    dead = []
    for name, anchor in links:
        target = (page.parent / name).resolve() if name else page
        if target.is_relative_to(ROOT / "skcalib"):  # which may be installed elsewhere
            target = PACKAGE / target.relative_to(ROOT / "skcalib")
        if not target.exists() or (anchor and anchor not in anchors(target)):
            dead.append(f"{name}#{anchor}")
    if page == ON_THE_SITE:
        dead = [link for link in dead if not link.startswith("auto_examples/")]
    assert not dead


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_no_page_shows_a_directive_in_place_of_content(page):
    if page == ON_THE_SITE:
        pytest.skip("only the site shows it")
    assert not re.findall(r"^(?:```|:::+)\{.*$", page.read_text("utf-8"), re.MULTILINE)


def test_the_reference_has_the_first_line_of_each_docstring():
    reference = load("docs/reference.py")
    text = reference.PAGE.read_text("utf-8")
    assert reference.rendered(text) == text
