"""Link names of the API in the text of the pages, such as ``Whitening()``, to their page."""

import importlib
import re
from inspect import isclass, isfunction

from docutils import nodes
from sphinx import addnodes

MODULES = (
    *("skcalib", "skcalib.model_selection", "skcalib.export", "skcalib.metrics"),
    *("skcalib.datasets", "skcalib.evaluation", "skcalib.inspection"),
)
GENERATED = ("generated/", "auto_examples/", "api", "changelog")
CALLED = re.compile(r"(\w+(?:\.\w+)?)(?:\(.*\))?")


def public_names():
    """Map the name of each public class and function to where the API has it."""
    found = {}
    for path in MODULES:
        module = importlib.import_module(path)
        for name in module.__all__:
            if isclass(getattr(module, name)) or isfunction(getattr(module, name)):
                found.setdefault(name, f"{path}.{name}")
    return found


def link(app, doctree):
    """Link the first mention of each name in every section."""
    if app.env.docname.startswith(GENERATED):
        return
    names = public_names()
    for section in doctree.findall(nodes.section):
        linked = set()
        for literal in section.findall(nodes.literal):
            called = CALLED.fullmatch(literal.astext())
            name, _, attribute = called[1].partition(".") if called else ("", "", "")
            if name not in names or called[1] in linked or in_link_or_title(literal):
                continue
            linked.add(called[1])
            target = names[name] + (f".{attribute}" if attribute else "")
            reference = addnodes.pending_xref(
                refdomain="py", reftype="obj", reftarget=target, refdoc=app.env.docname
            )
            literal.replace_self(reference)
            reference += literal


def in_link_or_title(node):
    while (node := node.parent) is not None:
        if isinstance(node, (nodes.reference, addnodes.pending_xref, nodes.title)):
            return True
    return False


def setup(app):
    app.connect("doctree-read", link)
    return {"parallel_read_safe": True}
