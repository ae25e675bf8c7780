"""Draw which packages of skcalib import which, by floor: ``python docs/layout.py``.

The picture is ``docs/_static/layout.svg``, on the page for developers. Floors and arrows come
from the imports: a package stands one floor above the highest that it imports.
"""

import ast
from collections import defaultdict
from graphlib import TopologicalSorter
from pathlib import Path

import matplotlib.pyplot as plt

ROOT = Path(__file__).parents[1] / "skcalib"
GROUND = {"base", "compat", "cosines", "inputs", "markdown", "process", "statistics"}
PICTURE = Path(__file__).parent / "_static" / "layout.svg"


def imports():
    """Return the packages that each package imports; only the commands import all names."""
    found = defaultdict(set)
    for path in ROOT.rglob("*.py"):
        room = path.relative_to(ROOT).parts[0].removesuffix(".py")
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ImportFrom) and str(node.module).startswith("skcalib."):
                found[room].add(node.module.split(".")[1])
        found[room] -= {room}
    return {room: others for room, others in found.items() if room[:2] != "__"}


def floors(graph):
    """Return the packages of each floor, from below."""
    place = {}
    for room in TopologicalSorter(graph).static_order():
        place[room] = max((1 + place[other] for other in graph.get(room, ())), default=0)
    found = defaultdict(list)
    for room, floor in place.items():
        found[floor].append(room)
    return [sorted(found[floor]) for floor in sorted(found)]


def draw():
    """Draw the picture."""
    graph = imports()
    # Nearly all import the ground floor, whose arrows would hide the others.
    stories = [sorted(GROUND)]
    stories += floors(
        {room: others - GROUND for room, others in graph.items() if room not in GROUND}
    )
    at = {
        room: ((i + 0.5) / len(story), floor)
        for floor, story in enumerate(stories)
        for i, room in enumerate(story)
    }
    plt.rcParams["svg.hashsalt"] = "layout"
    figure, ax = plt.subplots(figsize=(7, 4.5), layout="constrained")
    for room, others in graph.items():
        for other in others - GROUND:
            ax.annotate(
                "",
                at[other],
                at[room],
                arrowprops={"arrowstyle": "->", "color": "0.6", "shrinkA": 12, "shrinkB": 12},
            )
    box = {"boxstyle": "round,pad=0.4", "facecolor": "white", "edgecolor": "0.3"}
    for room, place in at.items():
        ax.text(*place, room, ha="center", va="center", fontsize=9, bbox=box)
    ax.set(xlim=(0, 1), ylim=(-0.5, len(stories) - 0.5))
    ax.axis("off")
    figure.savefig(PICTURE, metadata={"Date": None})


if __name__ == "__main__":
    draw()
