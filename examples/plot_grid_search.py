"""
Choose pooling, layers and calibration by grid search
=====================================================

A BERT has several layers. Its token vectors can be pooled into one vector in several ways, and
the result can be calibrated in several more. Which combination gives cosines that agree best
with human judgment? This is model selection, and scikit-learn does it, because everything here
is an estimator. The search needs pairs with grades; :ref:`another example
<sphx_glr_auto_examples_plot_without_labels.py>` works without them. The last part asks whether
the gain is more than chance, and which pairs changed.

The script uses the bundled toy set (:func:`~skcalib.datasets.load_toy_sts`). Set the
environment variable ``SKCALIB_DATA`` to a folder of benchmarks to use STS-B instead.
"""

# %%
# The data are pairs of sentences. People graded the similarity of each pair from 0 to 5.

import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import joblib
import matplotlib.pyplot as plt
import numpy as np
from scipy.stats import rankdata
from sklearn.model_selection import GridSearchCV, KFold, cross_val_predict
from sklearn.pipeline import Pipeline

from skcalib import BertEncoder, BiEncoder, NormalizingFlow, Whitening
from skcalib.datasets import fetch_sts, load_toy_sts
from skcalib.metrics import spearman

if os.environ.get("SKCALIB_DATA"):
    name = "STS-B dev"
    pairs, grades = fetch_sts("stsb", "dev", return_X_y=True)
else:
    name = "the toy set"
    pairs, grades = load_toy_sts(return_X_y=True)

# %%
# The model is a pipeline from texts to vectors. :class:`~skcalib.BiEncoder` wraps it and scores
# each pair by the cosine of its vectors. "minilm" is all-MiniLM-L6-v2, which comes with the
# ``demo`` extra. ``memory`` names a folder in which the encoder keeps its results. Each
# distinct text passes through the transformer once; the search below and later runs with the
# same folder read every pooling and layer from there.

folder = tempfile.TemporaryDirectory(ignore_cleanup_errors=True)
memory = folder.name  # a folder of your own would be kept
encoder = BertEncoder("minilm", memory=memory)
model = BiEncoder(Pipeline([("encode", encoder), ("calibrate", "passthrough")]))

start = time.perf_counter()
BertEncoder("minilm", memory=memory, verbose=True).fit_transform(pairs.ravel())
print(f"Encoded {len(pairs)} pairs of {name} in {time.perf_counter() - start:.1f} s.")

# %%
# The candidates are raw vectors, whitened vectors and, for two layers, a normalizing flow. The
# whitening varies in its regularization (``noise``: directions that are mostly noise fade) and
# in the number of dimensions that it keeps. A calibrator needs texts to fit, but no grades. The
# covariance of each training set is decomposed once for all values of ``noise`` and
# ``n_components``.

kept = [16, 32, 64, 128, 256]
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
        "encoder__calibrate": [Whitening()],
        "encoder__calibrate__n_components": kept,
        "encoder__calibrate__noise": [2.0, "auto"],
    },
]
flow = {
    "encoder__encode__pooling": ["mean"],
    "encoder__encode__layers": [0, "first_last"],
    "encoder__calibrate": [NormalizingFlow(random_state=0)],
}
grid = [layers | calibration for layers in layers_and_poolings for calibration in calibrations]
folds = KFold(5, shuffle=True, random_state=0)
start = time.perf_counter()
search = GridSearchCV(model, [*grid, flow], cv=folds, verbose=1).fit(pairs, grades)
print(f"Searched in {time.perf_counter() - start:.1f} s.")

# %%
# The table shows Spearman's rho (the rank correlation of cosine and grade) on held-out folds,
# times 100. The first row is the raw model: the mean of the last layer, which its authors
# trained for this purpose. Then follows the best candidate of each pooling, layer and
# calibrator, with its gain over the raw model and the standard error of the gain over the
# folds. Calibration raises the lower layers by several points, on STS-B by up to 28 ([CLS] of
# layer 3). The mean of the last layer gains a point or two on the toy set, and loses 0.3 points
# on STS-B.


def describe(params):
    """Pooling, layers, calibrator, dimensions and noise of a candidate, as text."""
    calibrator = params["encoder__calibrate"]
    return (
        params["encoder__encode__pooling"],
        str(params["encoder__encode__layers"]),
        "raw" if isinstance(calibrator, str) else type(calibrator).__name__,
        str(params.get("encoder__calibrate__n_components", "")),
        str(params.get("encoder__calibrate__noise", "")),
    )


candidates = [describe(params) for params in search.cv_results_["params"]]
splits = [f"split{i}_test_score" for i in range(folds.n_splits)]
scores = 100 * np.array([search.cv_results_[split] for split in splits])  # (folds, candidates)
raw = candidates.index(("mean", "-1", "raw", "", ""))
gains = scores - scores[:, [raw]]
errors = gains.std(axis=0, ddof=1) / np.sqrt(len(gains))

best_of = {candidates[raw][:3]: raw}
for i in np.argsort(-scores.mean(axis=0)):
    best_of.setdefault(candidates[i][:3], i)
row_format = "{:<8}{:<12}{:<18}{:>5}{:>7}{:>10}{:>16}"
header = ("pooling", "layers", "calibrator", "kept", "noise", "Spearman", "gain")
print("\n" + row_format.format(*header))
for i in best_of.values():
    gain = "" if i == raw else f"{gains[:, i].mean():+.1f} ± {errors[i]:.1f}"
    print(row_format.format(*candidates[i], f"{scores[:, i].mean():.1f}", gain))

# %%
# Is the gain real? The best of many candidates looks better than it is, because the same pairs
# selected it. So this test uses a candidate that nobody selected: the raw model followed by
# ``Whitening(noise="auto")``, which has no parameters to choose and sees no grades. A
# calibration scores each pair after a fit on the texts of the other folds. The bootstrap
# resamples the pairs 2,000 times, and uses the same pairs for both models.

calibrated = BiEncoder(Pipeline([("encode", encoder), ("calibrate", Whitening(noise="auto"))]))
before, after = (
    cross_val_predict(candidate, pairs, grades, cv=folds) for candidate in (model, calibrated)
)
rng = np.random.default_rng(0)
drawn = []
for _ in range(2000):
    rows = rng.integers(len(pairs), size=len(pairs))
    drawn.append(spearman(grades[rows], after[rows]) - spearman(grades[rows], before[rows]))
low, high = 100 * np.quantile(drawn, [0.025, 0.975])
rhos = [100 * spearman(grades, cosines) for cosines in (before, after)]
print(f"\nraw {rhos[0]:.1f}, calibrated {rhos[1]:.1f}")
print(f"gain {rhos[1] - rhos[0]:+.1f}, 95 % interval {low:+.1f} to {high:+.1f}")

# %%
# On the toy set the gain is small but more than chance: 0.9 points, with an interval of 0.3 to
# 1.6. On STS-B dev there is a small loss: -0.3, with an interval of -0.5 to -0.1.
# ``cross_val_predict(search, pairs, grades, cv=folds)`` repeats the search in each fold with
# the grades of the other folds, in a minute and a half. On the toy set the winners then gain
# nothing: -0.1, with an interval of -1.7 to 1.6. 240 pairs are too few to select by. An encoder
# whose raw cosines are all high gains more, see :doc:`/similarity`.

error_before, error_after = (
    np.abs(rankdata(cosines) - rankdata(grades)) for cosines in (before, after)
)
toward = np.argsort(error_after - error_before)
for title, rows in (("toward the grade", toward[:4]), ("away from it", toward[:-3:-1])):
    print(f"\n{title}: grade, raw cosine, calibrated cosine")
    for number, i in enumerate(rows, 1):
        cosines = f"{grades[i]:.1f}  {before[i]:.2f}  {after[i]:.2f}"
        print(f"{number}  {cosines}  {' | '.join(pairs[i])}")

# %%
# Left: the gain of the last layer over the raw model, by pooling and number of kept dimensions,
# with two standard errors over the folds. Right: the change of every pair's cosine by
# calibration. The numbers mark the pairs listed above that moved toward their grade.

figure, (left, right) = plt.subplots(1, 2, figsize=(9, 4), layout="constrained")
for pooling, shift in (("cls", 0.96), ("mean", 1), ("zipf", 1.04)):
    line = [candidates.index((pooling, "-1", "Whitening", str(k), "auto")) for k in kept]
    place, mean = shift * np.array(kept), gains[:, line].mean(axis=0)  # side by side
    left.errorbar(place, mean, 2 * errors[line], capsize=3, label=pooling)
left.axhline(0, color="black", linestyle="--", label="raw model")
left.set_xscale("log", base=2)
left.set_xticks(kept, [str(k) for k in kept])
left.set(xlabel="kept dimensions", ylabel="gain in Spearman's rho x 100")
left.set_title(f"Last layer, whitened, {name}")
points = right.scatter(before, after - before, c=grades, s=14, cmap="viridis")
right.axhline(0, color="black", linestyle="--")
for number, i in enumerate(toward[:4], 1):
    right.annotate(f" {number}", (before[i], after[i] - before[i]), va="bottom")
right.margins(y=0.1)  # room for the numbers
right.set(xlabel="raw cosine", ylabel="change by calibration", title="Held-out pairs")
figure.colorbar(points, label="grade")
figure.legend(loc="outside lower left", ncols=4)
figure.savefig("grid_search.png", dpi=150)
print("\nSaved grid_search.png")

# %%
# joblib can pickle the best pipeline. It gives the same vectors in a new process.

best = search.best_estimator_.encoder_
joblib.dump(best, "best_pipeline.joblib")
sentences = ["A man is playing a flute.", "Somebody plays an instrument."]
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
