"""Link names of the API in the text of the pages, such as ``Whitening()``, to their page."""

import re

from docutils import nodes
from reference import public_names
from sphinx import addnodes

GENERATED = ("generated/", "auto_examples/", "api", "changelog")
CALLED = re.compile(r"(\w+(?:\.\w+)?)(?:\(.*\))?")


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
