"""The blocks of Python in the pages run as they stand, and print what stands under them.

Those of README always, the others where the extra for the documentation is installed.
"""

import re
from importlib.metadata import version

import pytest
from loading import ROOT, load

DOCS = ROOT / "docs"
outputs = load("docs/outputs.py")

# Encoding the 1,541 texts of the bundled corpus takes some 10 s, for all pages once: let a page
# use them, not other texts. Each graph of MiniLM takes 15 s, so only one page exports any.
CONTINUED = "change_model.md deployment.md encoders.md flow.md similarity.md tuning.md"
CONTINUED += " user_guide.md tasks/answers.md tasks/classification.md tasks/clustering.md"
CONTINUED += " tasks/duplicates.md tasks/matches.md tasks/search.md"
NUMBER = re.compile(r"-?\d+(?:\.\d+)?")


def blocks(page):
    """Code of each block of a page, which keeps its lines, and the output under it."""
    text = (DOCS / page).read_text("utf-8")
    found = list(outputs.BLOCK.finditer(text))
    assert found
    for block in found:
        code, output = outputs.split(block[1])
        yield "\n" * text[: block.start(1)].count("\n") + code, output


def pinned():
    """Tell whether the texts, and what computes with them, have the pages' versions."""
    pins = dict(re.findall(r"^([\w-]+)==(\S+)", (ROOT / "constraints.txt").read_text(), re.M))
    packages = "numpy", "scipy", "scikit-learn", "torch", "transformers"
    return all(version(name).partition("+")[0] == pins[name] for name in packages)


def check(printed, output):
    """Compare what a block prints with its page: words exactly, numbers to rounding."""
    assert NUMBER.sub("#", printed) == NUMBER.sub("#", output)
    numbers = [[float(number) for number in NUMBER.findall(t)] for t in (printed, output)]
    assert numbers[0] == pytest.approx(numbers[1], rel=0.01, abs=0.011)


@pytest.fixture
def reader(minilm, remembered, tmp_path, tmp_path_factory, monkeypatch):
    """Work in a new folder; pages share vectors, in memory and in the folder "vectors"."""
    vectors = tmp_path_factory.getbasetemp() / "vectors-of-pages"
    vectors.mkdir(exist_ok=True)
    (tmp_path / "vectors").symlink_to(vectors, target_is_directory=True)
    monkeypatch.chdir(tmp_path)  # files of one block are there for the next


def run(page, shared=None):
    pytest.importorskip("sphinx", reason="pages are tested with the extra docs")
    pairs = list(blocks(page))
    held = any(output for _, output in pairs) and pinned()
    missing = []
    for code, output in pairs:
        try:
            printed = outputs.run(code, DOCS / page, {} if shared is None else shared)
        except ImportError as error:  # of an extra, or what old dependencies leave no room for
            if (error.name or "").startswith("skcalib"):
                raise
            missing.append(str(error))
            if shared is not None:
                break  # the blocks below may continue this one
        else:
            if held:
                check(printed, output)
    if missing:
        pytest.skip("; ".join(missing))


@pytest.mark.filterwarnings("ignore:There are fewer than 5 samples")  # the toy set is small
@pytest.mark.parametrize("page", outputs.ALONE)
@pytest.mark.usefixtures("reader")
def test_each_block_of_a_page_runs_by_itself(page):
    run(page)


@pytest.mark.filterwarnings("ignore:There are fewer than 5 samples")
@pytest.mark.parametrize("page", CONTINUED.split())
@pytest.mark.usefixtures("reader")
def test_blocks_of_a_page_run_one_after_another(page):
    pytest.importorskip("matplotlib")
    run(page, {})


@pytest.mark.filterwarnings("ignore:There are fewer than 5 samples")
@pytest.mark.usefixtures("reader")
def test_each_block_of_readme_runs_alone_or_names_what_it_continues():
    pytest.importorskip("matplotlib")
    code_of, output_of = zip(*blocks("../README.md"), strict=True)
    needed = {}
    for number, code in enumerate(code_of):
        if "# continues the first block" in code:
            lines = [0, number]
        elif "# continues the block before" in code:
            lines = [*needed[number - 1], number]
        else:
            lines = [number]
        needed[number], names = lines, {}
        for i in lines:
            printed = outputs.run(code_of[i], DOCS / "../README.md", names)
        if pinned():
            check(printed, output_of[number])


@pytest.mark.usefixtures("reader")
def test_calibration_follows_the_pooling_of_a_folder():
    library = pytest.importorskip("sentence_transformers", minversion="6")
    (code, _), *_ = blocks("deployment.md")
    outputs.run(code, "deployment.md", {})
    pooling, *calibration = list(library.SentenceTransformer("calibrated"))[1:]
    assert type(pooling).__name__ == "Pooling"  # and what is frozen in a fine-tuning follows it
    assert calibration
