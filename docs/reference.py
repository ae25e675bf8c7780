"""Write the tables of the API reference, docs/api.md, from the docstrings.

    python docs/reference.py

Each public class and function has a row with the first line of its docstring. A test fails if
the page would change.
"""

import importlib
import inspect
import re
from pathlib import Path

import skcalib

PAGE = Path(__file__).parent / "api.md"
MODULES = (
    *("skcalib", "skcalib.model_selection", "skcalib.export", "skcalib.metrics"),
    *("skcalib.datasets", "skcalib.evaluation", "skcalib.inspection", "skcalib.monitoring"),
)
TABLE = re.compile(r"(<!-- names: ([\w.]+) -->\n)(?:\|.*\n)*")


def members(path):
    """Yield name and object of each public class and function of a module."""
    module = importlib.import_module(path)
    for name in module.__all__:
        member = getattr(module, name)
        if inspect.isclass(member) or inspect.isfunction(member):
            yield name, member


def public_names():
    """Map the name of each public class and function to where the API has it."""
    full = {}
    for path in MODULES:
        for name, _ in members(path):
            full.setdefault(name, f"{path}.{name}")
    return full


def rows(path):
    """Yield a row of the table for each public class and function of a module."""
    root = Path(skcalib.__file__).parents[1]
    for name, member in members(path):
        file = Path(inspect.getsourcefile(member)).relative_to(root).as_posix()
        summary = inspect.getdoc(member).partition("\n\n")[0].replace("\n", " ")
        yield f"| [`{name}`](../{file}) | {summary} |\n"


def rendered(text):
    """Return the page with its tables made again."""

    def table(found):
        return found[1] + "| name | what it does |\n|---|---|\n" + "".join(rows(found[2]))

    return TABLE.sub(table, text)


if __name__ == "__main__":
    PAGE.write_text(rendered(PAGE.read_text("utf-8")), "utf-8")
