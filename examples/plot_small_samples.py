"""
Whiten with few samples
=======================

Whitening estimates a covariance, and with few samples most of that is noise. How many
sentences does it take? With shrinkage, fifty are enough to beat raw vectors; without, the
result is a matter of luck until there are clearly more sentences than dimensions.

The script runs on the sentence pairs that ship with the package, or, if the environment
variable ``SKCALIB_DATA`` names a folder of benchmarks, on STS-B.
"""

# %%
# The vectors: the mean of MiniLM's embedding layer, 384 dimensions, raw and far from
# isotropic. ``memory`` keeps them, so the model reads each text once, ever.

import os
import tempfile
import warnings

import matplotlib.pyplot as plt
from sklearn.model_selection import LearningCurveDisplay, ShuffleSplit
from sklearn.pipeline import Pipeline

from skcalib import BertEncoder, BiEncoder, Whitening
from skcalib.datasets import fetch_sts, load_toy_sts, minilm_path

if os.environ.get("SKCALIB_DATA"):
    name = "STS-B train"
    pairs, grades = fetch_sts("stsb", "train", return_X_y=True)
    sizes = [25, 50, 100, 200, 400, 800, 1600, 3200]
else:
    name = "the toy set"
    pairs, grades = load_toy_sts(return_X_y=True)
    sizes = [25, 50, 100, 150, 200]
folder = tempfile.TemporaryDirectory(ignore_cleanup_errors=True)
memory = folder.name  # name a folder of your own, and it is kept
encoder = BertEncoder(minilm_path(), layers=0, memory=memory)
print(f"{len(pairs)} pairs of {name}, {encoder.fit_transform(pairs.ravel()).shape[1]} features")

# %%
# Spearman's rho against the number of pairs is a learning curve, and scikit-learn draws those
# of any estimator: a :class:`~skcalib.BiEncoder` is one. It is fitted on ever more pairs of
# the training part, each of them two sentences (no grade is used), and scored on pairs that it
# has not seen; five random splits.
#
# Plain whitening below full rank warns, with n, d and the rank; here that is the point, so the
# warning is silenced.

calibrators = {
    "raw": "passthrough",
    "plain": Whitening(),
    "shrinkage='auto'": Whitening(shrinkage="auto"),
    "shrinkage=0.5": Whitening(shrinkage=0.5),
}
figure, axes = plt.subplots(figsize=(6, 4), layout="constrained")
curves = {}
for label, calibrator in calibrators.items():
    model = BiEncoder(Pipeline([("encode", encoder), ("calibrate", calibrator)]))
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=".*have rank")
        curves[label] = LearningCurveDisplay.from_estimator(
            model,
            pairs,
            grades,
            train_sizes=sizes,
            cv=ShuffleSplit(5, test_size=0.3, random_state=0),
            score_type="test",
            score_name="Spearman's rho",
            std_display_style=None,
            ax=axes,
        )
axes.axvline(384 / 2, color="grey", linewidth=0.5)
axes.set(xscale="log", xlabel="pairs fitted on", title=f"Whitening fitted on few, {name}")
axes.set_xticks(sizes, [str(n) for n in sizes])
axes.minorticks_off()
axes.legend([display.lines_[0] for display in curves.values()], curves)
figure.savefig("small_samples.png", dpi=150)
print("Saved small_samples.png")

# %%
# Plain whitening is at its worst short of the grey line, where there are as many sentences as
# dimensions: the weakest directions of such a sample are pure noise, and they are amplified
# most. Its scores also scatter most between the splits: the figure after ± is their standard
# deviation. Shrinkage bounds the amplification, and the estimate of Ledoit and Wolf
# (``"auto"``) finds out how much it takes without any grade.

print(f"\n{'pairs':>6}" + "".join(f"{label:>18}" for label in curves))
for i, n in enumerate(sizes):
    scores = [100 * display.test_scores[i] for display in curves.values()]
    print(f"{n:>6}" + "".join(f"{s.mean():>11.1f} ±{s.std():>5.1f}" for s in scores))
