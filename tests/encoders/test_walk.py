"""A text takes the path through the package that the page for developers describes."""

import re
import sys
from pathlib import Path

import skcalib
from skcalib import BertEncoder

PAGE = Path(__file__).parents[2] / "docs" / "developers.md"
ROOT = Path(skcalib.__file__).parent


def trace(function):
    """List the functions of skcalib that another one calls."""
    called = []

    def note(frame, event, argument):
        path = Path(frame.f_code.co_filename)
        if event == "call" and path.is_relative_to(ROOT):
            module = ".".join(path.relative_to(ROOT).with_suffix("").parts)
            called.append(f"{module}:{frame.f_code.co_qualname}")

    before = sys.getprofile()
    sys.setprofile(note)
    try:
        function()
    finally:
        sys.setprofile(before)
    return called


def test_a_text_with_memory_takes_the_stops_of_the_page(tiny_bert, tmp_path, recent):
    recent.bound = 2**20  # as outside the tests
    section = PAGE.read_text(encoding="utf-8").partition("## The path of a text\n")[2]
    section = section.partition("\n## ")[0]
    stops = re.findall(r"^\d+\. `([\w.]+:[\w.]+)`", section, re.MULTILINE)
    others = re.findall(r"`([\w.]+)`", section.partition("Other modules help")[2])
    modules = {stop.partition(":")[0] for stop in stops}
    assert 8 <= len(stops) <= 12
    assert len(modules) <= 8
    encoder = BertEncoder(tiny_bert, memory=tmp_path).fit(["dog"])
    encoder.transform(["dog"])
    called = trace(lambda: encoder.transform(["a cat"]))
    assert [name for name in dict.fromkeys(called) if name in stops] == stops
    visited = {name.partition(":")[0] for name in called}
    assert modules <= visited <= modules | set(others)
    known = trace(lambda: encoder.transform(["a cat"]))
    assert stops[3] in known  # memory
    assert not set(stops[5:]) & set(known)
