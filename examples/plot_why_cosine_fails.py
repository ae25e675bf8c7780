"""
Why raw cosine fails, and what whitening does
=============================================

The cosine of two sentence vectors should measure how similar the sentences are. For many layers
of a BERT it hardly does, because most of every vector is the same for all sentences. Whitening
removes that common part and gives the remaining directions equal weight. This script shows it
on the bundled toy set (:func:`~skcalib.datasets.load_toy_sts`).
"""

# %%
# The vectors are those of the [CLS] token after the first of MiniLM's six layers, one for each
# distinct sentence. Means over the tokens of inner layers show the same, less clearly. The last
# layer, which was fine-tuned for similarity, hardly shows it. ``memory`` stores the results of
# the model, so that each sentence passes through it once.

import tempfile
import warnings

import matplotlib.pyplot as plt
import numpy as np
from sklearn.model_selection import KFold, cross_val_score
from sklearn.pipeline import make_pipeline

from skcalib import BertEncoder, BiEncoder, Whitening
from skcalib.datasets import load_toy_sts, minilm_path
from skcalib.inspection import CosineDisplay, SpectrumDisplay
from skcalib.metrics import effective_rank, mean_cosine

pairs, grades = load_toy_sts(return_X_y=True)
sentences = np.unique(pairs.astype(str))
folder = tempfile.TemporaryDirectory(ignore_cleanup_errors=True)
memory = folder.name  # a folder of your own would be kept
encoder = BertEncoder(minilm_path(), pooling="cls", layers=1, memory=memory)
raw = encoder.fit_transform(sentences)
print(f"{len(raw)} sentences, {raw.shape[1]} dimensions")

# %%
# Here are two pairs. A person found that the sentences of the first mean the same, and that
# those of the second have nothing in common. Their cosines differ in the sixth digit.

model = BiEncoder(encoder).fit(sentences)
cosines = model.predict(pairs)
alike = np.flatnonzero(grades == grades.max())[1]
unrelated = np.flatnonzero(grades == grades.min())[1]
for i in (alike, unrelated):
    print(f"grade {grades[i]:.0f}, cosine {cosines[i]:.6f}: {' | '.join(pairs[i])}")

# %%
# The singular values show the reason. One direction, the common mean, carries nearly all of
# every vector, and the cosine of two vectors that share nearly everything is nearly 1. The
# other directions distinguish sentences, and among those a few outweigh the rest.
#
# Exact whitening, ``Whitening()``, subtracts the mean and scales every principal direction to
# variance 1. The spectrum becomes flat: every direction has the same weight. The whitening
# warns that so few sentences for 384 dimensions are not enough for similarity. The script
# silences the warning, because only the spectrum matters here.

warnings.filterwarnings("ignore", message="There are fewer than")
whitened = Whitening().fit_transform(raw)
figure, (left, right) = plt.subplots(1, 2, figsize=(7, 3.5), layout="constrained")
SpectrumDisplay.from_vectors(raw, name="raw", ax=left)
SpectrumDisplay.from_vectors(raw - raw.mean(axis=0), name="centered", ax=left)
SpectrumDisplay.from_vectors(whitened, name="whitened", ax=left)
left.set_title("Singular values")
left.set_ylim(1e-4, 2)
CosineDisplay.from_vectors(raw, name="raw", ax=right)
CosineDisplay.from_vectors(whitened, name="whitened", ax=right)
right.set_title("Cosines of different sentences")
right.set_yscale("log")  # the raw cosines fill a single bin
figure.suptitle("MiniLM, [CLS] of layer 1")
figure.savefig("why_cosine_fails.png", dpi=150)

print(f"{'':10}{'mean cosine':>12}{'effective rank':>16}")
for name, vectors in (("raw", raw), ("whitened", whitened)):
    print(f"{name:10}{mean_cosine(vectors):12.4f}{effective_rank(vectors):16.1f}")

# %%
# Does whitening help? The table shows Spearman's rho (the rank correlation of cosine and
# grade), times 100, on folds that the calibration has not seen. The first row is the raw model:
# the mean of the last layer. The second row has the raw vectors from above, and each row below
# it adds one step. No fit sees a grade.
#
# ``power=0`` only centers and rotates, and ``Whitening()`` whitens exactly. The weakest
# directions are mostly noise, which exact whitening amplifies. ``power="auto"``
# reduces the strong ones only. It is the one to use.

last_layer = BertEncoder(minilm_path(), memory=memory)
steps = {
    "last layer, raw": last_layer,
    "layer 1, raw": encoder,
    "layer 1, centered": make_pipeline(encoder, Whitening(power=0.0)),
    "layer 1, whitened": make_pipeline(encoder, Whitening()),
    "layer 1, power='auto'": make_pipeline(encoder, Whitening(power="auto")),
}
folds = KFold(5, shuffle=True, random_state=0)
for name, step in steps.items():
    scores = cross_val_score(BiEncoder(step), pairs, grades, cv=folds)
    print(f"{name:24}{100 * scores.mean():6.1f}")

# %%
# These are the same two pairs, calibrated. Now their cosines differ as their meanings do.

calibrated = BiEncoder(steps["layer 1, power='auto'"]).fit(sentences)
for i, cosine in zip(
    (alike, unrelated), calibrated.predict(pairs[[alike, unrelated]]), strict=True
):
    print(f"grade {grades[i]:.0f}, cosine {cosine:.2f}: {' | '.join(pairs[i])}")

# %%
# Calibration makes the most of a layer, but does not replace a better one. In the layer that
# was fine-tuned for similarity the vectors share little, and its cosines are the best from the
# start. It gains a little from ``power="auto"`` and loses from exact whitening, as
# :ref:`another example <sphx_glr_auto_examples_plot_when_not_to_calibrate.py>` shows.

print(f"mean cosine of the last layer: {mean_cosine(last_layer.fit_transform(sentences)):.4f}")
for name, whitening in (("whitened", Whitening()), ("power='auto'", Whitening(power="auto"))):
    step = make_pipeline(last_layer, whitening)
    scores = cross_val_score(BiEncoder(step), pairs, grades, cv=folds)
    print(f"last layer, {name:12}{100 * scores.mean():6.1f}")
