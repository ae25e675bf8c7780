"""Run the blocks of Python in pages, and write what they print under them.

    python docs/outputs.py README.md docs/tasks/clustering.md

A block that prints something ends with its output as comments, and the tests compare the two.
"""

import contextlib
import io
import os
import re
import sys
import tempfile
from pathlib import Path

# Pages whose blocks run by themselves; those of all others use names of the blocks before.
ALONE = "comparison.md", "index.md"
BLOCK = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)
OUTPUT = re.compile(r"(?:^# ?.*\n)*\Z", re.MULTILINE)


def split(block):
    """Return the code of a block, and the output that stands under it."""
    start = OUTPUT.search(block).start()
    output = re.sub("^# ?", "", block[start:], flags=re.MULTILINE)
    return block[:start], output


def run(code, name, names):
    """Run code and return what it prints."""
    with contextlib.redirect_stdout(io.StringIO()) as printed:
        exec(compile(code, name, "exec"), names)
    lines = [line.rstrip() for line in printed.getvalue().strip("\n").split("\n")]
    return "\n".join(lines) + "\n" if any(lines) else ""


def rewritten(page, continued):
    """Return a page with the output of each block that has one, or prints something."""
    names = {}

    def with_output(found):
        nonlocal names
        names = names if continued else {}
        code, _ = split(found[1])
        printed = run(code, str(page), names).splitlines()
        comments = "".join(f"# {line}".rstrip() + "\n" for line in printed)
        return f"```python\n{code}{comments}```"

    return BLOCK.sub(with_output, page.read_text("utf-8"))


if __name__ == "__main__":
    pages = [Path(page).resolve() for page in sys.argv[1:]]
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        for page in pages:
            text = rewritten(page, continued=page.name not in ALONE)
            page.write_text(text, "utf-8")
