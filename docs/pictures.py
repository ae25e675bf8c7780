"""Show the picture ``name-dark.svg`` in place of ``name.svg`` where a page is dark."""

from pathlib import Path

from docutils import nodes


def pair(app, doctree):
    folder = Path(app.env.doc2path(app.env.docname)).parent
    for light in list(doctree.findall(nodes.image)):
        path = Path(light["uri"])
        dark = path.with_stem(f"{path.stem}-dark")
        if path.suffix == ".svg" and (folder / dark).exists():
            twin = light.deepcopy()
            twin["uri"] = dark.as_posix()
            light["classes"].append("only-light")
            twin["classes"].append("only-dark")
            light.parent.insert(light.parent.index(light) + 1, twin)


def setup(app):
    # Before the files of images are collected.
    app.connect("doctree-read", pair, priority=100)
    return {"parallel_read_safe": True}
