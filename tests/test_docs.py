"""The blocks of Python in the pages run as they stand, each for itself."""

import re
from pathlib import Path

import pytest

DOCS = Path(__file__).parents[1] / "docs"


PAGES = "deployment.md index.md languages.md similarity.md tuning.md user_guide.md vectors.md"
PAGES += " tasks/search.md tasks/duplicates.md"
PAGES += " tasks/clustering.md tasks/classification.md"
# Whose blocks use names of those before.
CONTINUED = "../README.md"


def blocks(page):
    """Python blocks of a page, which keep its lines."""
    text = (DOCS / page).read_text("utf-8")
    found = list(re.finditer(r"^```python\n(.*?)^```$", text, re.MULTILINE | re.DOTALL))
    assert found
    return ["\n" * text[: block.start(1)].count("\n") + block[1] for block in found]


@pytest.mark.filterwarnings("ignore:n_samples=")  # the toy set is small
@pytest.mark.filterwarnings("ignore:.*unknown to this model")  # Chinese, as the page says
@pytest.mark.parametrize("page", PAGES.split())
def test_each_block_of_a_page_runs_by_itself(page, minilm, recent, tmp_path, monkeypatch):
    recent.bound = 2**28  # vectors stay in memory, as they do for a reader
    monkeypatch.chdir(tmp_path)  # files of one block are there for the next, names are not
    missing = []
    for code in blocks(page):
        try:
            exec(compile(code, DOCS / page, "exec"), {})
        except ImportError as error:  # of a package that old dependencies leave no room for
            if (error.name or "").startswith("skcalib"):
                raise
            missing.append(str(error))
    if missing:
        pytest.skip("; ".join(missing))


@pytest.mark.filterwarnings("ignore:n_samples=")
@pytest.mark.parametrize("page", CONTINUED.split())
def test_the_blocks_of_a_page_run_one_after_another(page, minilm, tmp_path, monkeypatch):
    pytest.importorskip("matplotlib")
    monkeypatch.chdir(tmp_path)
    names = {}
    for code in blocks(page):
        exec(compile(code, DOCS / page, "exec"), names)


def test_recipes_run_that_need_no_more_than_the_extra_for_tests(minilm, tmp_path, monkeypatch):
    pytest.importorskip("sentence_transformers", minversion="6")
    pytest.importorskip("skl2onnx")
    monkeypatch.chdir(tmp_path)
    names, ran = {}, set()
    for code in blocks("clients.md"):
        packages = set(re.findall(r"^(?:import|from) (\w+)", code, re.MULTILINE))
        if packages <= {"skcalib", "sklearn", "sentence_transformers", "skl2onnx"}:
            exec(compile(code, DOCS / "clients.md", "exec"), names)
            ran |= packages
    assert {"sentence_transformers", "skl2onnx"} <= ran
    assert not any(weights.requires_grad for weights in names["model"][2].parameters())
