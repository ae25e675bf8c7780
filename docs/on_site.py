"""Show on the site what a git host cannot, from pages that read well on both.

Pages link to a script of ``examples/`` and, in the reference, to the module of a name. The site
has pages of their own for these. What only the site has stands in comments, which a git host
hides: ``<!-- toctree: ... -->``, of pages or of ``Title <page>``, and ``<!-- code: FILE -->``.
"""

import re
from pathlib import Path

from reference import public_names

EXAMPLE = re.compile(r"\]\(((?:\.\./)*)\.\./examples/(plot_\w+)\.py\)")
TOCTREE = re.compile(r"<!-- toctree: (.*?) -->", re.DOTALL)
CODE = re.compile(r"<!-- code: (\S+) -->")
ENTRY = re.compile(r"\[`([\w.]+)`\]\(\.\./skcalib/[\w/]+\.py\)")
NAMES = Path(__file__).parent / "generated" / "names.rst"
FULL = public_names()


def toctree(comment):
    pages = re.findall(r"\w+ <\S+>|\S+", comment[1])
    glob = ":glob:\n" if any("*" in page for page in pages) else ""
    return "\n".join(["```{toctree}", f":hidden:\n{glob}", *pages, "```"])


def shown(app, name, text):
    """Replace what a git host shows by what the site has."""
    page = EXAMPLE.sub(r"](\1auto_examples/\2.rst)", text[0])
    page = TOCTREE.sub(toctree, page)
    page = CODE.sub("```{literalinclude} \\1\n:language: python\n```", page)
    if name == "api":
        page = ENTRY.sub(lambda entry: f"{{py:obj}}`{entry[1]} <{FULL[entry[1]]}>`", page)
    text[0] = page


def write_names():
    """Write the file from which autosummary makes a page for each public name."""
    lines = [
        ".. autosummary::",
        "   :toctree: .",
        "",
        *(f"   {name}" for name in FULL.values()),
    ]
    NAMES.parent.mkdir(exist_ok=True)
    NAMES.write_text("\n".join(lines) + "\n", "utf-8")


def setup(app):
    write_names()
    app.connect("source-read", shown)
    return {"parallel_read_safe": True}
