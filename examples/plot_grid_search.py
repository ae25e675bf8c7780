"""
Choose pooling, layers and calibration by grid search
=====================================================

A BERT has several layers. Its token vectors can be pooled into one vector in several ways, and
the result can be calibrated in several more. Which combination gives cosines that tell best
what belongs together? This is model selection, and scikit-learn does it, because everything
here is an estimator. The search needs pairs with grades; :ref:`another example
<sphx_glr_auto_examples_plot_without_labels.py>` works without them. The last part scores the
winner on texts that the search never saw.
"""

# %%
# The texts are sentences of scipy's documentation
# (:func:`~skcalib.datasets.load_docstrings`). They are split into six sets of texts. Within
# each set, every sentence is paired with one of the same part of scipy (grade 1) and with one
# of another part (grade 0). The last set is kept for the end.

import subprocess
import sys
import tempfile
import time
from pathlib import Path

import joblib
import matplotlib.pyplot as plt
import numpy as np
from sklearn.model_selection import GridSearchCV, PredefinedSplit, StratifiedKFold
from sklearn.pipeline import Pipeline

from skcalib import BertEncoder, BiEncoder, NeighborSmoothing, NormalizingFlow, Whitening
from skcalib.datasets import load_docstrings
from skcalib.metrics import spearman

texts, parts = load_docstrings(return_X_y=True)
n_parts = len(np.unique(parts))
rng = np.random.default_rng(0)
rows, grades, sets = [], [], []
six = StratifiedKFold(6, shuffle=True, random_state=0).split(texts, parts)
for number, (_, members) in enumerate(six):
    for one in members:
        for alike in (True, False):
            others = members[((parts[members] == parts[one]) == alike) & (members != one)]
            rows.append((one, rng.choice(others)))
            grades.append(float(alike))
            sets.append(number)
pairs, grades, sets = texts[np.array(rows)], np.array(grades), np.array(sets)
known, new = sets < 5, sets == 5

# %%
# The model is a pipeline from texts to vectors. :class:`~skcalib.BiEncoder` wraps it and scores
# each pair by the cosine of its vectors. "minilm" is all-MiniLM-L6-v2, which comes with the
# ``demo`` extra. ``memory`` names a folder in which the encoder keeps its results. Each
# distinct text passes through the transformer once; the search below and later runs with the
# same folder read every pooling and layer from there.

folder = tempfile.TemporaryDirectory(ignore_cleanup_errors=True)
memory = folder.name  # a folder of your own would be kept
encoder = BertEncoder("minilm", memory=memory)
steps = [("encode", encoder), ("calibrate", "passthrough"), ("smooth", "passthrough")]
model = BiEncoder(Pipeline(steps))

start = time.perf_counter()
BertEncoder("minilm", memory=memory, verbose=True).fit_transform(texts)
print(f"Encoded {len(texts)} texts in {time.perf_counter() - start:.1f} s.")

# %%
# The candidates are raw vectors, whitened vectors with and without neighbor smoothing, and, for
# two layers, a normalizing flow. The whitening varies in the number of dimensions that it
# keeps, and is told the number of parts or not. A calibrator needs texts to fit, but no grades.
# The covariance of each training set is decomposed once for all of these.

kept = [16, 32, 64, 128, None]
layers_and_poolings = [
    # At layer 0, [CLS] has the same vector in every text.
    {"encoder__encode__pooling": ["cls"], "encoder__encode__layers": [3, "first_last", -1]},
    {
        "encoder__encode__pooling": ["mean", "zipf"],
        "encoder__encode__layers": [0, 3, "first_last", -1],
    },
]
calibrations = [
    {"encoder__calibrate": ["passthrough"]},
    {
        "encoder__calibrate": [Whitening(noise="auto")],
        "encoder__calibrate__n_components": kept,
        "encoder__calibrate__n_groups": [None, n_parts],
        "encoder__smooth": ["passthrough", NeighborSmoothing()],
    },
]
flow = {
    "encoder__encode__pooling": ["mean"],
    "encoder__encode__layers": [0, "first_last"],
    "encoder__calibrate": [NormalizingFlow(random_state=0)],
}
grid = [layers | calibration for layers in layers_and_poolings for calibration in calibrations]
folds = PredefinedSplit(sets[known])
start = time.perf_counter()
search = GridSearchCV(model, [*grid, flow], cv=folds, verbose=1)
search.fit(pairs[known], grades[known])
print(f"Searched in {time.perf_counter() - start:.1f} s.")

# %%
# The table shows Spearman's rho (the rank correlation of cosine and grade) on held-out folds,
# times 100. The first row is the raw model: the mean of the last layer, which its authors
# trained for this purpose. Then follows the best candidate of each pooling and layer, with its
# gain over the raw model and the standard error of the gain over the folds.


def describe(params):
    """Pooling, layers, calibrator, dimensions and number of groups of a candidate, as text."""
    calibrator = params["encoder__calibrate"]
    name = "raw" if isinstance(calibrator, str) else type(calibrator).__name__
    smoothed = not isinstance(params.get("encoder__smooth", "passthrough"), str)
    return (
        params["encoder__encode__pooling"],
        str(params["encoder__encode__layers"]),
        name + ", smoothed" * smoothed,
        str(params.get("encoder__calibrate__n_components") or ""),
        str(params.get("encoder__calibrate__n_groups") or ""),
    )


candidates = [describe(params) for params in search.cv_results_["params"]]
splits = [f"split{i}_test_score" for i in range(folds.get_n_splits())]
scores = 100 * np.array([search.cv_results_[split] for split in splits])  # (folds, candidates)
raw = candidates.index(("mean", "-1", "raw", "", ""))
gains = scores - scores[:, [raw]]
errors = gains.std(axis=0, ddof=1) / np.sqrt(len(gains))

best_of = {"raw": raw}
for i in np.argsort(-scores.mean(axis=0)):
    best_of.setdefault(candidates[i][:2], i)
row_format = "{:<8}{:<12}{:<22}{:>5}{:>7}{:>10}{:>16}"
header = ("pooling", "layers", "calibrator", "kept", "told", "Spearman", "gain")
print("\n" + row_format.format(*header))
for i in best_of.values():
    gain = "" if i == raw else f"{gains[:, i].mean():+.1f} ± {errors[i]:.1f}"
    print(row_format.format(*candidates[i], f"{scores[:, i].mean():.1f}", gain))

# %%
# Is the gain real? The best of many candidates looks better than it is, because the same pairs
# selected it. So the winner and the raw model now score the pairs of the sixth set, whose texts
# no fit and no selection has seen. The bootstrap resamples these pairs 2,000 times, and uses
# the same pairs for both models.

before = model.fit(pairs[known]).predict(pairs[new])
after = search.predict(pairs[new])
drawn = []
for _ in range(2000):
    drawn_rows = rng.integers(new.sum(), size=new.sum())
    drawn_grades = grades[new][drawn_rows]
    rhos = [spearman(drawn_grades, cosines[drawn_rows]) for cosines in (before, after)]
    drawn.append(rhos[1] - rhos[0])
low, high = 100 * np.quantile(drawn, [0.025, 0.975])
rhos = [100 * spearman(grades[new], cosines) for cosines in (before, after)]
print(f"\nOn new texts: raw {rhos[0]:.1f}, chosen {rhos[1]:.1f}")
print(f"gain {rhos[1] - rhos[0]:+.1f}, 95 % interval {low:+.1f} to {high:+.1f}")

# %%
# Left: the gain of the last layer over the raw model, by pooling and number of kept dimensions,
# with two standard errors over the folds. Right: the cosines of the new pairs, raw and chosen.
# The further apart the two colors, the better the cosine tells what belongs together.

figure, (left, *right) = plt.subplots(1, 3, figsize=(11, 4), layout="constrained")
for pooling, shift in (("cls", 0.96), ("mean", 1), ("zipf", 1.04)):
    names = [(pooling, "-1", "Whitening, smoothed", str(k), str(n_parts)) for k in kept[:-1]]
    line = [candidates.index(name) for name in names]
    place, mean = shift * np.array(kept[:-1]), gains[:, line].mean(axis=0)  # side by side
    left.errorbar(place, mean, 2 * errors[line], capsize=3, label=pooling)
left.axhline(0, color="black", linestyle="--", label="raw model")
left.set_xscale("log", base=2)
left.set_xticks(kept[:-1], [str(k) for k in kept[:-1]])
left.set(xlabel="kept dimensions", ylabel="gain in Spearman's rho x 100")
left.set_title("Last layer, whitened, smoothed")
left.legend()
for axes, cosines, name in zip(right, (before, after), ("raw", "chosen"), strict=True):
    for grade, label in ((0, "other parts"), (1, "same part")):
        shown = cosines[grades[new] == grade]
        axes.hist(shown, bins=np.linspace(-0.6, 1, 41), alpha=0.6, label=label)
    axes.set(xlabel="cosine", ylabel="pairs", title=f"New texts, {name}")
right[-1].legend()
figure.savefig("grid_search.png", dpi=150)
print("\nSaved grid_search.png")

# %%
# joblib can pickle the best pipeline. It gives the same vectors in a new process.

best = search.best_estimator_.encoder_
joblib.dump(best, "best_pipeline.joblib")
sentences = ["Compute a determinant.", "Draw from a normal distribution."]
code = f"""
import joblib, numpy
vectors = joblib.load("best_pipeline.joblib").transform({sentences!r})
numpy.save("vectors_elsewhere.npy", vectors)
"""
subprocess.run([sys.executable, "-c", code], check=True)
elsewhere = np.load("vectors_elsewhere.npy")
Path("vectors_elsewhere.npy").unlink()
difference = np.abs(elsewhere - best.transform(sentences)).max()
assert difference < 1e-5
print(f"Saved best_pipeline.joblib; vectors from a new process differ by {difference:.0e}.")
