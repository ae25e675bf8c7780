"""Draw the pictures of the pages: ``python docs/draw.py``.

Those of files of results are written twice, for light pages and, with "-dark" in their names,
for dark ones.
"""

import contextlib
import re
import tempfile
from pathlib import Path

import matplotlib as mpl
import numpy as np
import outputs
from matplotlib import pyplot as plt
from tables import RESULTS, records_of

PICTURES = Path(__file__).parent / "_static"
INKED = "text.color", "axes.edgecolor", "axes.labelcolor", "axes.titlecolor"
INKED += "xtick.color", "ytick.color"
# Text stays text, so that the files are small; nothing in them changes from run to run.
STYLE = {"svg.fonttype": "none", "svg.hashsalt": "skcalib", "font.size": 12}
STYLE |= {
    "axes.facecolor": "none",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "legend.frameon": False,
}
METADATA = {"Date": None, "Creator": None}
UNRELATED, RELATED = {"black": "#8c8c8c", "white": "#7f8a99"}, "#d9570d"
MODELS = {"smollm2": "SmolLM2", "minilm": "MiniLM"}
KINDS = {"unrelated": "different intents", "related": "the same intent"}


def numbered(row, name):
    """Return the cells of the columns that have this name and a number, by the number."""
    found = ((re.fullmatch(rf"{name} (-?\d.*)", column), row[column]) for column in row)
    return {float(column[1]): float(cell) for column, cell in found if column}


def cosines(ink):
    """Cosines of a raw language model and of an encoder, before and after."""
    figure, axes = plt.subplots(4, sharex=True, figsize=(7, 4.3), layout="constrained")
    for ax, row in zip(axes, records_of(RESULTS / "cosines.csv"), strict=True):
        for kind, label in KINDS.items():
            bins = numbered(row, kind)
            heights = np.array([*bins.values()])
            color = RELATED if kind == "related" else UNRELATED[ink]
            shape = {"fill": True, "color": color, "alpha": 0.6, "label": label}
            ax.stairs(heights / heights.max(), [*bins, 1], **shape)
        threshold = float(row["threshold"])
        ax.axvline(threshold, color=ink, linewidth=1.5)
        shares = f"1 % of different,\n{row['related above']} % of the same"
        side = (-6, "right") if threshold > 0.6 else (6, "left")
        place = {"xytext": (side[0], 0), "textcoords": "offset points", "ha": side[1]}
        ax.annotate(f"above {threshold:.2f}: {shares}", (threshold, 1.95), va="top", **place)
        ax.set(yticks=[], ylim=(0, 1.95), xlim=(-0.4, 1))
        ax.set_title(f"{row['model']}, {row['step']}", loc="left", y=0.68, weight="bold")
        ax.spines["left"].set_visible(False)
    axes[0].legend(loc="lower left", labelspacing=0.1)
    ax.set(xlabel="cosine of two questions")
    return figure


def spectrum(ink):
    """Singular values of the same vectors, relative to the largest."""
    figure, axes = plt.subplots(1, 2, sharey=True, figsize=(9.2, 3.2), layout="constrained")
    rows = records_of(RESULTS / "cosines.csv")
    for ax, model in zip(axes, dict.fromkeys(row["model"] for row in rows), strict=True):
        for row in (row for row in rows if row["model"] == model):
            values = numbered(row, "singular value")
            color = UNRELATED[ink] if row["step"] == "raw" else RELATED
            ax.plot([*values], [*values.values()], marker="o", color=color, label=row["step"])
        ax.set(title=model, xscale="log", yscale="log", xlabel="number of the direction")
        ax.set_xticks([*values], [f"{rank:.0f}" for rank in values])
        ax.set_yticks([1, 0.1, 0.01], ["1", "0.1", "0.01"])
        ax.minorticks_off()
    axes[0].set(ylabel="length / the longest")
    axes[0].legend()
    return figure


def words(ink):
    """First two principal coordinates of embeddings of words, by rank of frequency."""
    figure, axes = plt.subplots(1, 2, figsize=(9.2, 3.6), layout="constrained")
    for ax, (encoder, model) in zip(axes, MODELS.items(), strict=True):
        drawn = [row for row in records_of(RESULTS / f"anisotropy-{encoder}.csv") if row["x"]]
        ranks = dict.fromkeys(row["measure"] for row in drawn)
        shades = (0.05, 0.85) if ink == "black" else (0.3, 0.95)
        colors = mpl.colormaps["plasma"](np.linspace(*shades, len(ranks)))
        for rank, color in zip(ranks, colors, strict=True):
            points = [(row["x"], row["y"]) for row in drawn if row["measure"] == rank]
            ax.scatter(*np.array(points, float).T, s=9, color=color, label=rank)
        ax.set(title=model, xticks=[], yticks=[])
    handles = axes[0].get_legend_handles_labels()
    figure.legend(*handles, loc="outside right", title="rank", markerscale=2)
    return figure


def clusters():
    """Write the map that the blocks of a page draw."""
    page, names = Path(__file__).parent / "tasks/clustering.md", {}
    with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):
        for block in outputs.BLOCK.finditer(page.read_text("utf-8")):
            outputs.run(block[1], page.name, names)
            if "figure" in names:
                break
    names["figure"].savefig(PICTURES / "clusters.svg", metadata=METADATA)
    plt.close(names["figure"])


def main():
    mpl.use("svg")
    with plt.rc_context(STYLE):
        clusters()
    for draw in (cosines, spectrum, words):
        for ink, suffix in (("black", ""), ("white", "-dark")):
            with plt.rc_context(STYLE | dict.fromkeys(INKED, ink)):
                figure = draw(ink)
                # Elsewhere than on these pages, the light one may stand on a dark ground.
                ground = "white" if ink == "black" else "none"
                path = PICTURES / f"{draw.__name__}{suffix}.svg"
                figure.savefig(path, facecolor=ground, metadata=METADATA)
                plt.close(figure)


if __name__ == "__main__":
    main()
