"""
Why raw cosine fails, and what whitening does
=============================================

The cosine of two sentence vectors should say how similar the sentences are. For many hidden
states of a BERT it says little, because most of every vector is the same for all sentences.
Whitening removes that common part and gives the remaining directions equal weight. This script
shows it on the sentence pairs that ship with the package.
"""

# %%
# The vectors are the states of the [CLS] token after the first of MiniLM's six layers, for each
# distinct sentence. Means over the tokens of inner layers show the same, less clearly. The last
# layer, which was tuned for similarity, hardly shows it.
# ``memory`` stores what the model computes, so that each sentence goes through it once.

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
memory = folder.name  # name a folder of your own, and it is kept
encoder = BertEncoder(minilm_path(), pooling="cls", layers=1, memory=memory)
raw = encoder.fit_transform(sentences)
print(f"{len(raw)} sentences, {raw.shape[1]} dimensions")

# %%
# Two pairs, one that a person found to mean the same and one to have nothing in common. Their
# cosines differ in the sixth digit.

model = BiEncoder(encoder).fit(sentences)
cosines = model.predict(pairs)
alike = np.flatnonzero(grades == grades.max())[1]
unrelated = np.flatnonzero(grades == grades.min())[1]
for i in (alike, unrelated):
    print(f"grade {grades[i]:.0f}, cosine {cosines[i]:.6f}: {' | '.join(pairs[i])}")

# %%
# The reason is in the singular values. One direction, the common mean, carries nearly all of
# every vector, and the cosine of two vectors that share nearly everything is nearly 1. What
# tells sentences apart lies in the other directions, and among those a few drown the rest.
#
# Exact whitening subtracts the mean and scales every principal direction to unit variance.
# The spectrum becomes flat: every direction has the same weight. It warns about so few
# sentences for 384 dimensions, which are too few for similarity. The warning is silenced,
# because only the spectrum matters here.

warnings.filterwarnings("ignore", message="n_samples=")
whitened = Whitening().fit_transform(raw)
figure, (left, right) = plt.subplots(1, 2, figsize=(7, 3.5), layout="constrained")
SpectrumDisplay.from_embeddings(raw, name="raw", ax=left)
SpectrumDisplay.from_embeddings(raw - raw.mean(axis=0), name="centred", ax=left)
SpectrumDisplay.from_embeddings(whitened, name="whitened", ax=left)
left.set_title("Singular values")
left.set_ylim(1e-4, 2)
CosineDisplay.from_embeddings(raw, name="raw", ax=right)
CosineDisplay.from_embeddings(whitened, name="whitened", ax=right)
right.set_title("Cosines of different sentences")
right.set_yscale("log")  # the raw ones fill a single bin
figure.suptitle("MiniLM, [CLS] of layer 1")
figure.savefig("why_cosine_fails.png", dpi=150)

print(f"{'':10}{'mean cosine':>12}{'effective rank':>16}")
for name, vectors in (("raw", raw), ("whitened", whitened)):
    print(f"{name:10}{mean_cosine(vectors):12.4f}{effective_rank(vectors):16.1f}")

# %%
# Does it help? The table has Spearman's rho between cosine and grade, on folds that the
# calibration has not seen. The first row is the model as shipped, the mean of its last layer.
# Each row below takes one more step from the raw vectors above. No step sees a grade while it
# is fitted.
#
# ``power=0`` only centres and rotates, ``Whitening()`` is exact. The weakest directions are
# mostly noise, which exact whitening amplifies. ``noise="auto"`` fades it, and is the one to
# use.

shipped = BertEncoder(minilm_path(), memory=memory)
steps = {
    "as shipped": shipped,
    "raw": encoder,
    "centred": make_pipeline(encoder, Whitening(power=0.0)),
    "whitened": make_pipeline(encoder, Whitening()),
    "noise='auto'": make_pipeline(encoder, Whitening(noise="auto")),
}
folds = KFold(5, shuffle=True, random_state=0)
for name, step in steps.items():
    scores = cross_val_score(BiEncoder(step), pairs, grades, cv=folds)
    print(f"{name:18}{100 * scores.mean():6.1f}")

# %%
# The same two pairs, calibrated: the distance between their cosines is now one of meaning.

calibrated = BiEncoder(steps["noise='auto'"]).fit(sentences)
for i, cosine in zip(
    (alike, unrelated), calibrated.predict(pairs[[alike, unrelated]]), strict=True
):
    print(f"grade {grades[i]:.0f}, cosine {cosine:.2f}: {' | '.join(pairs[i])}")

# %%
# Calibration makes the most of a layer, but does not replace a better one. The layer that was
# trained for similarity has no such cone, and the best cosines from the start. It gains a
# little by ``noise="auto"`` and loses by exact whitening, as :ref:`another example
# <sphx_glr_auto_examples_plot_when_not_to_calibrate.py>` shows.

print(f"mean cosine of the last layer: {mean_cosine(shipped.fit_transform(sentences)):.4f}")
for name, whitening in (("whitened", Whitening()), ("noise='auto'", Whitening(noise="auto"))):
    step = make_pipeline(shipped, whitening)
    scores = cross_val_score(BiEncoder(step), pairs, grades, cv=folds)
    print(f"as shipped, {name:14}{100 * scores.mean():5.1f}")
