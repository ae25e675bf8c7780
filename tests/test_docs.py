"""The blocks of Python in the pages run as they stand, each for itself."""

import re
from pathlib import Path

import pytest

DOCS = Path(__file__).parents[1] / "docs"


@pytest.mark.filterwarnings("ignore:n_samples=")  # the toy set is small
@pytest.mark.parametrize(
    "page", ["deployment.md", "index.md", "languages.md", "similarity.md", "vectors.md"]
)
def test_each_block_of_a_page_runs_by_itself(page, minilm, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)  # files of one block are there for the next, names are not
    text = (DOCS / page).read_text("utf-8")
    blocks = list(re.finditer(r"^```python\n(.*?)^```$", text, re.MULTILINE | re.DOTALL))
    assert blocks
    for block in blocks:
        code = "\n" * text[: block.start(1)].count("\n") + block[1]  # keeps the page's lines
        exec(compile(code, DOCS / page, "exec"), {})
