"""
Calibrate a model that was never trained for similarity
=======================================================

BERT, GPT or Llama as they are downloaded predict words, and their cosines say little about
meaning. Neither do those of the inner layers of any model. Calibration gains most on such
vectors, and this script shows how much, layer by layer.

The bundled model was trained for similarity, so its inner layers stand for an untrained model
here. Set the environment variable ``SKCALIB_RAW`` to the folder of a language model to use its
layers, and ``SKCALIB_DATA`` to a folder of benchmarks to use STS-B in place of the toy set.
"""

# %%
# In decoders, the first token attracts most of the attention and has massive activations. The
# pooling ``"mean_without_first"`` leaves it out, which does no harm in other models. With
# ``memory``, one pass of each text through the model serves all layers.

import os
import tempfile

import matplotlib.pyplot as plt
import numpy as np
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer

from skcalib import BertEncoder, BiEncoder, Whitening
from skcalib.datasets import fetch_sts, load_toy_sts

if os.environ.get("SKCALIB_DATA"):
    pairs, grades = fetch_sts("stsb", "dev", return_X_y=True)
else:
    pairs, grades = load_toy_sts(return_X_y=True)
folder = tempfile.TemporaryDirectory(ignore_cleanup_errors=True)
encoder = BertEncoder(
    os.environ.get("SKCALIB_RAW", "minilm"),
    pooling="mean_without_first",
    memory=folder.name,  # a folder of your own would be kept
)
[last] = encoder.fit([""]).layers_
layers = np.unique(np.linspace(0, last - 1, 6).astype(int)).tolist()

# %%
# ``power="auto"`` recognizes by the mean vector that these layers were not trained for cosines:
# it flattens the few directions that hold most of the variance. No grade is used in the fit.

STEPS = {
    "raw": FunctionTransformer(),
    "mean subtracted": Whitening(power=0),
    'Whitening(power="auto")': Whitening(power="auto"),
}
scores = {name: [] for name in STEPS}
for layer in layers:
    for name, step in STEPS.items():
        model = BiEncoder(make_pipeline(encoder.set_params(layers=layer), step)).fit(pairs)
        scores[name].append(100 * model.score(pairs, grades))
    print(layer, *(f"{name}: {values[-1]:.1f}" for name, values in scores.items()), sep="  ")

# %%
# If you know what you look for, specify it: ``n_groups="many"`` of
# :class:`~skcalib.Whitening` is for graded similarity with a language model, and a number is
# that of the topics or intents. A grid over layers and kept dimensions, as in :ref:`another
# example <sphx_glr_auto_examples_plot_grid_search.py>`, chooses by grades.

fig, ax = plt.subplots(figsize=(8, 5.6))
for name, values in scores.items():
    ax.plot(layers, values, marker="o", label=name)
ax.set(xlabel="layer", ylabel="Spearman's ρ x 100", xticks=layers)
ax.set_title("Similarity by layers that were not trained for it")
ax.legend()
plt.show()
