"""
Choose pooling, layers and calibration by grid search
=====================================================

A BERT has several layers. Its token vectors can be pooled into one vector in several ways, and
the result can be calibrated in several more. With which combination do cosines best distinguish
what belongs together from what does not? This is model selection, and scikit-learn does it,
because everything here is an estimator. The search needs pairs with grades; :ref:`another
example <sphx_glr_auto_examples_plot_without_labels.py>` works without them. The last part
scores the winner on texts that the search never saw.
"""

# %%
# The texts are sentences of scipy's documentation
# (:func:`~skcalib.datasets.load_docstrings`). They are split into five sets of texts. Within
# each set, every sentence is paired with one of the same part of scipy (grade 1) and with one
# of another part (grade 0). The last set is kept for the end.

import tempfile
import time

import joblib
import matplotlib.pyplot as plt
import numpy as np
from sklearn.decomposition import PCA
from sklearn.model_selection import (
    GridSearchCV,
    ParameterGrid,
    PredefinedSplit,
    StratifiedKFold,
)
from sklearn.pipeline import Pipeline
from tqdm import tqdm

from skcalib import BertEncoder, BiEncoder, NeighborSmoothing, NormalizingFlow, Whitening
from skcalib.datasets import load_docstrings
from skcalib.metrics import spearman

texts, parts = load_docstrings(return_X_y=True)
rng = np.random.default_rng(0)
rows, grades, sets = [], [], []
five = StratifiedKFold(5, shuffle=True, random_state=0).split(texts, parts)
for number, (_, members) in enumerate(five):
    for one in members:
        for alike in (True, False):
            others = members[((parts[members] == parts[one]) == alike) & (members != one)]
            rows.append((one, rng.choice(others)))
            grades.append(float(alike))
            sets.append(number)
pairs, grades, sets = texts[np.array(rows)], np.array(grades), np.array(sets)
known, new = sets < 4, sets == 4

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
# A calibrator needs texts to fit, but no grades. The candidates are the raw vectors, the mean
# subtracted from them, a PCA, a whitening with and without neighbor smoothing, and a
# normalizing flow, on six combinations of pooling and layers. PCA and whitening also vary in
# the number of dimensions that they keep. A candidate's score is the rank correlation
# (Spearman's rho) of cosine and grade on pairs of texts that it was not fitted to: each of four
# sets is held out once. The scorer also moves a progress bar.

kept = [32, 64, 128]
poolings_and_layers = {
    "encoder__encode__pooling": ["mean", "zipf", "cls"],
    "encoder__encode__layers": ["first_last", -1],
}
calibrations = [
    {
        "encoder__calibrate": [
            "passthrough",
            Whitening(power=0),  # subtracts the mean
            NormalizingFlow(random_state=0),
        ]
    },
    {
        "encoder__calibrate": [PCA(random_state=0)],
        "encoder__calibrate__n_components": kept,
    },
    {
        "encoder__calibrate": [Whitening(power="auto")],
        "encoder__calibrate__n_components": [*kept, None],
        "encoder__smooth": ["passthrough", NeighborSmoothing()],
    },
]
grid = [poolings_and_layers | calibration for calibration in calibrations]
folds = PredefinedSplit(sets[known])
n_candidates = len(ParameterGrid(grid))
bar = tqdm(total=n_candidates * folds.get_n_splits(), desc="search", unit="fit")


def rank_correlation(fitted, pairs, grades):
    """Score a fitted candidate."""
    bar.update()
    return spearman(grades, fitted.predict(pairs))


start = time.perf_counter()
search = GridSearchCV(model, grid, cv=folds, scoring=rank_correlation)
search.fit(pairs[known], grades[known])
bar.close()
print(f"Searched {n_candidates} candidates in {time.perf_counter() - start:.1f} s.")

# %%
# The table has the best candidate of each calibrator. Its gain is over the model as shipped:
# the mean of the last layer, which its authors trained for this purpose. The normalizing flow
# makes all directions equal, as exact whitening does. On a raw language model this gains; on an
# output that was trained for similarity it loses.

names = {"str": "none (raw vectors)", "PCA": "PCA", "NormalizingFlow": "normalizing flow"}


def describe(params):
    """Calibrator, pooling, layers and number of dimensions of a candidate, as text."""
    calibrator = params["encoder__calibrate"]
    name = names.get(type(calibrator).__name__, "whitening")
    if name == "whitening" and calibrator.power == 0:
        name = "mean subtracted"
    if isinstance(params.get("encoder__smooth"), NeighborSmoothing):
        name += ", smoothed"
    return (
        name,
        params["encoder__encode__pooling"],
        str(params["encoder__encode__layers"]),
        str(params.get("encoder__calibrate__n_components") or "all"),
    )


candidates = [describe(params) for params in search.cv_results_["params"]]
splits = [f"split{i}_test_score" for i in range(folds.get_n_splits())]
scores = 100 * np.array([search.cv_results_[split] for split in splits])  # (folds, candidates)
shipped = candidates.index(("none (raw vectors)", "mean", "-1", "all"))
gains = scores - scores[:, [shipped]]
errors = gains.std(axis=0, ddof=1) / np.sqrt(len(gains))

best_of = {}
for i in np.argsort(-scores.mean(axis=0)):
    best_of.setdefault(candidates[i][0], i)
row_format = "{:<22}{:<9}{:<12}{:>10}{:>18}{:>14}"
header = ("calibrator", "pooling", "layers", "dimensions", "rank correlation", "gain")
print("\nThe best of each calibrator, on held-out texts:\n\n" + row_format.format(*header))
for i in best_of.values():
    gain = "" if i == shipped else f"{gains[:, i].mean():+.1f} ± {errors[i]:.1f}"
    print(row_format.format(*candidates[i], f"{scores[:, i].mean():.1f}", gain))
print(
    "\nRank correlation: Spearman's rho of cosine and grade x 100, mean of four folds.\n"
    f"Gain: over the model as shipped, {scores[:, shipped].mean():.1f}"
    " (raw, mean of the last layer), ± standard error over the folds."
)

# %%
# Is the gain real? The best of many candidates looks better than it is, because the same pairs
# selected it. So the winner and the model as shipped now score the pairs of the fifth set,
# whose texts no fit and no selection has seen. The bootstrap resamples these pairs 1,000 times,
# and uses the same pairs for both models.

before = model.fit(pairs[known]).predict(pairs[new])
after = search.predict(pairs[new])
drawn = []
for _ in range(1000):
    drawn_rows = rng.integers(new.sum(), size=new.sum())
    drawn_grades = grades[new][drawn_rows]
    rhos = [spearman(drawn_grades, cosines[drawn_rows]) for cosines in (before, after)]
    drawn.append(rhos[1] - rhos[0])
low, high = 100 * np.quantile(drawn, [0.025, 0.975])
rhos = [100 * spearman(grades[new], cosines) for cosines in (before, after)]
print(f"\nThe first row on new texts: {rhos[1]:.1f}, the model as shipped {rhos[0]:.1f}")
print(f"gain {rhos[1] - rhos[0]:+.1f}, 95 % interval {low:+.1f} to {high:+.1f}")

# %%
# Left: the gain of the last layer, whitened and smoothed, over the model as shipped, by pooling
# and number of kept dimensions, with two standard errors over the folds. Right: the cosines of
# the new pairs, raw and chosen. The further apart the two colors, the better the cosine
# distinguishes what belongs together.

figure, (left, *right) = plt.subplots(1, 3, figsize=(11, 4), layout="constrained")
for pooling, shift in (("cls", 0.96), ("mean", 1), ("zipf", 1.04)):
    line = [candidates.index(("whitening, smoothed", pooling, "-1", str(k))) for k in kept]
    place, mean = shift * np.array(kept), gains[:, line].mean(axis=0)  # side by side
    left.errorbar(place, mean, 2 * errors[line], capsize=3, label=pooling)
left.axhline(0, color="black", linestyle="--", label="as shipped")
left.set_xscale("log", base=2)
left.set_xticks(kept, [str(k) for k in kept])
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

# %%
# joblib can pickle the best pipeline, from texts to vectors, for another process. The pickle of
# a fitted encoder leaves its `memory` behind, so it writes nothing where it is loaded.

best = search.best_estimator_.encoder_
joblib.dump(best, "best_pipeline.joblib")
loaded = joblib.load("best_pipeline.joblib")
sentences = ["Compute a determinant.", "Draw from a normal distribution."]
assert np.allclose(loaded.transform(sentences), best.transform(sentences), atol=1e-5)
print("""
Saved in the current folder:
  grid_search.png       gain by number of dimensions, and cosines before and after
  best_pipeline.joblib  the pipeline of the first row, from texts to vectors
Try next:
  your own texts        joblib.load("best_pipeline.joblib").transform(["a text", "another"])
  without grades        skcalib compare minilm your_texts.txt --save pipeline.joblib
  each part, explained  docs/user_guide.md; by task: docs/index.md""")
