"""
Whiten with few samples
=======================

Whitening estimates a covariance, and with few samples most of that is noise. How many
sentences does it take? Exact whitening needs several for each dimension, and on a layer that
was tuned for similarity it does harm with any number. ``noise="auto"`` gains with fifty
sentences already, and does no harm at any size.

The script runs on the sentence pairs that ship with the package, or, if the environment
variable ``SKCALIB_DATA`` names a folder of benchmarks, on STS-B.
"""

# %%
# The vectors: means of MiniLM's hidden states, 384 dimensions. The last layer is the model as
# shipped, tuned for similarity; the embedding layer is not. ``memory`` keeps both, so the model
# reads each text once, ever.

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
encoder = BertEncoder(minilm_path(), memory=memory)
print(f"{len(pairs)} pairs of {name}, {encoder.fit_transform(pairs.ravel()).shape[1]} features")

# %%
# Spearman's rho against the number of pairs is a learning curve, and scikit-learn draws those
# of any estimator, such as a :class:`~skcalib.BiEncoder`. It is fitted on more and more pairs
# of the training part, without their grades, and scored on pairs that it has not seen, in
# five random splits.
#
# Exact whitening warns about fewer than five samples a dimension. The warning is silenced,
# because this example is about few samples.

calibrators = {
    "raw": "passthrough",
    "exact": Whitening(),
    "shrinkage='auto'": Whitening(shrinkage="auto"),
    "noise='auto'": Whitening(noise="auto"),
}
figure, axes = plt.subplots(1, 2, figsize=(7, 3.5), layout="constrained")
tables = {}
for label, layer, ax in zip(
    ("as shipped: the last layer", "the embedding layer"), (-1, 0), axes, strict=True
):
    curves = tables[label] = {}
    for calibration, calibrator in calibrators.items():
        pipeline = Pipeline([("encode", encoder), ("calibrate", calibrator)])
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message="n_samples=")
            curves[calibration] = LearningCurveDisplay.from_estimator(
                BiEncoder(pipeline).set_params(encoder__encode__layers=layer),
                pairs,
                grades,
                train_sizes=sizes,
                cv=ShuffleSplit(5, test_size=0.3, random_state=0),
                score_type="test",
                score_name="Spearman's rho",
                std_display_style=None,
                ax=ax,
            )
    ax.axvline(384 / 2, color="grey", linewidth=0.5)
    ax.set(xscale="log", xlabel="pairs fitted on", title=label)
    ax.set_xticks(sizes, [str(n) for n in sizes])
    ax.minorticks_off()
    ax.legend([display.lines_[0] for display in curves.values()], curves)
figure.suptitle(name)
figure.savefig("small_samples.png", dpi=150)
print("Saved small_samples.png")

# %%
# Exact whitening is at its worst up to the grey line, where there are as many sentences as
# dimensions: the weakest directions of such a sample are pure noise, and they are amplified
# most. Its scores also scatter most between the splits: the figure after ± is their standard
# deviation. More samples cure that, but not the tuned last layer, which exact whitening leaves
# two points worse on STS-B with 6,400 sentences. The estimate of Ledoit and Wolf,
# ``shrinkage="auto"``, corrects the sampling error alone, and vanishes as samples grow.
#
# ``noise="auto"`` is above raw vectors in every row of both layers. On the embedding layer
# shrinkage gains two or three points more on STS-B, but only labels could tell that.

for label, curves in tables.items():
    print(f"\n{label}\n{'pairs':>6}" + "".join(f"{name:>18}" for name in curves))
    for i, n in enumerate(sizes):
        scores = [100 * display.test_scores[i] for display in curves.values()]
        print(f"{n:>6}" + "".join(f"{s.mean():>11.1f} ±{s.std():>5.1f}" for s in scores))
