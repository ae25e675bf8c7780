"""Cosines of questions that want the same and of others, by step, and a picture of two steps.

The threshold is the cosine that 1 % of unrelated pairs reach, and "related above" the share of
related ones that reach it. The maps are fitted on 4,000 of Banking77's training questions, and
the pairs are those of its test questions. README and the front page show the picture of e5.
"""

import numpy as np
from contenders import steps
from data import labeled
from measures import codes_of, unit

UNRELATED, RELATED = "unrelated questions", "questions that want the same thing"
EDGES = np.linspace(-0.3, 1, 105)
histograms = {}  # by step and kind of pair, which the picture shows


def rows(encode, options):
    X = encode(labeled("Banking77", "train", 4000)[0])
    texts, labels = labeled("Banking77", "test", options.most)
    vectors, y = encode(texts), codes_of(labels)
    i, j = np.triu_indices(len(y), k=1)
    same = y[i] == y[j]
    for name, step in steps(y.max() + 1).items():
        units = unit(step.fit(X).transform(vectors))
        cosine = (units @ units.T)[i, j].astype(np.float32)
        threshold = np.quantile(cosine[~same], 0.99)
        histograms[name] = [np.histogram(cosine[k], bins=EDGES)[0] for k in (~same, same)]
        yield {
            "step": name,
            "threshold": f"{threshold:.2f}",
            "related above": f"{100 * np.mean(cosine[same] >= threshold):.0f}",
            "unrelated mean": f"{cosine[~same].mean():z.2f}",
            "related mean": f"{cosine[same].mean():z.2f}",
        }


def draw(rows, path):
    """Draw the cosines of both kinds before and after, for light and for dark pages."""
    import matplotlib.pyplot as plt

    # Text stays text, so that the file is small; nothing in it changes from run to run.
    plt.rcParams.update({"svg.fonttype": "none", "svg.hashsalt": "cosines", "font.size": 12})
    found = {row["step"]: row for row in rows}
    for ink, grey, suffix in (("black", "#8c8c8c", ""), ("white", "#7f8a99", "-dark")):
        inked = ("text.color", "axes.edgecolor", "axes.labelcolor", "axes.titlecolor")
        plt.rcParams.update(dict.fromkeys((*inked, "xtick.color"), ink))
        figure, axes = plt.subplots(2, sharex=True, figsize=(7, 4), layout="constrained")
        for ax, name, title in zip(
            axes, ("raw", "whitened"), ("raw", "calibrated"), strict=True
        ):
            kinds = (grey, UNRELATED), ("#d9570d", RELATED)
            for heights, (color, label) in zip(histograms[name], kinds, strict=True):
                shape = {"fill": True, "color": color, "alpha": 0.6, "label": label}
                ax.stairs(heights / heights.max(), EDGES, **shape)
            threshold, share = found[name]["threshold"], found[name]["related above"]
            ax.axvline(float(threshold), color=ink, linewidth=1.5)
            left = float(threshold) > 0.6
            ax.annotate(
                f"1 % of unrelated pairs exceed {threshold},\n"
                f"and {share} % of those that want the same",
                (float(threshold), 1.45),
                (-6 if left else 6, 0),
                textcoords="offset points",
                ha="right" if left else "left",
                va="top",
            )
            ax.set(title=title, yticks=[], ylim=(0, 1.5))
            ax.spines[["left", "right", "top"]].set_visible(False)
        axes[0].legend(loc="center left", frameon=False)
        axes[1].set(xlabel="cosine of two questions", xlim=(-0.3, 1))
        # Elsewhere than on these pages, the light one may stand on a dark ground.
        color = "none" if suffix else "white"
        kept = {"facecolor": color, "metadata": {"Date": None, "Creator": None}}
        figure.savefig(path.with_stem(path.stem + suffix), **kept)
        plt.close(figure)
