"""
Calibrate a model without labels
================================

You have sentences and a model, and nobody has graded which sentences are similar.
:func:`~skcalib.calibrate` still chooses hidden states, pooling and
calibration: good vectors find one part of a text from another, among the parts of all texts.
This script calibrates a list of sentences, looks up similarities and nearest sentences, and at
last asks grades whether the choice was good.

It runs on the sentences that ship with the package, or, if the environment variable
``SKCALIB_DATA`` names a folder of benchmarks, on those of STS-B.
"""

# %%
# The input is a list of sentences: a few hundred or more, of the kind that will be compared.

import os
import tempfile
import time

import matplotlib.pyplot as plt
import numpy as np
from sklearn.frozen import FrozenEstimator
from sklearn.neighbors import NearestNeighbors

from skcalib import BertEncoder, BiEncoder, calibrate
from skcalib.datasets import fetch_sts, load_toy_sts, minilm_path
from skcalib.metrics import spearman

if os.environ.get("SKCALIB_DATA"):
    name = "STS-B"
    pairs, grades = fetch_sts("stsb", "dev", return_X_y=True)
else:
    name = "the toy set"
    pairs, grades = load_toy_sts(return_X_y=True)
sentences = np.unique(pairs.astype(str)).tolist()
print(f"{len(sentences)} sentences of {name}")

# %%
# The search tries every layer under four poolings, raw and whitened with a noise floor, and
# keeps the hidden state that the model was shipped with unless another one is clearly better.
# ``memory`` keeps what the model computes, so that each text goes through it once. The scores
# are mean reciprocal ranks (MRR) times 100: 100 if the right part always comes first. The
# score compares calibrations of one hidden state; the halves of a text, its odd and its even
# words, share no word and compare hidden states.

folder = tempfile.TemporaryDirectory(ignore_cleanup_errors=True)
memory = folder.name  # name a folder of your own, and it is kept
start = time.perf_counter()
pipeline = calibrate(minilm_path(), sentences, memory=memory)
print(f"Calibrated in {time.perf_counter() - start:.0f} s.\n")
print(pipeline.calibration_.table(8))

# %%
# The result is a fitted pipeline from texts to vectors. How similar are two sentences? A
# :class:`~skcalib.BiEncoder` says; ``FrozenEstimator`` tells it that nothing is to be fitted
# any more.

model = BiEncoder(FrozenEstimator(pipeline)).fit(sentences)
new_pairs = [
    ("A man is playing a flute.", "Somebody plays an instrument."),
    ("A man is playing a flute.", "Two dogs run across a meadow."),
]
for (left, right), cosine in zip(new_pairs, model.predict(new_pairs), strict=True):
    print(f"{cosine:5.2f}  {left} | {right}")

# %%
# And which sentences of the list are nearest to a new one?

search = NearestNeighbors(n_neighbors=3, metric="cosine").fit(pipeline.transform(sentences))
query = "Kids are playing in the sand by the sea."
distances, nearest = search.kneighbors(pipeline.transform([query]))
print(query)
for distance, i in zip(distances[0], nearest[0], strict=True):
    print(f"{1 - distance:5.2f}  {sentences[i]}")

# %%
# Was the choice good? These sentences come in pairs that people graded, and no grade was used
# so far. Spearman's rho between cosine and grade, times 100, for the model as shipped, and for
# what was chosen:

shipped, chosen = (
    100 * BiEncoder(FrozenEstimator(encoder)).fit(pairs).score(pairs, grades)
    for encoder in (BertEncoder(minilm_path(), memory=memory).fit(sentences), pipeline)
)
print(f"as shipped             {shipped:5.1f}")
print(f"chosen without labels  {chosen:5.1f}")
assert chosen > shipped - 0.3

# %%
# On the toy set the search sees no gain beyond chance, and keeps the model as it is. By grades
# whitening would gain about a point: with grades at hand, decide by them.
#
# The criterion also knows good hidden states from bad ones. Each point below is one of them,
# raw: the score of the search, and the score by grades. The best by one are the best by the
# other.

calibration = pipeline.calibration_
raw = [c for c in calibration.candidates if c.calibrator == "raw"]
rho = []
for candidate in raw:
    encoder = BertEncoder(
        minilm_path(), pooling=candidate.pooling, layers=candidate.layers, memory=memory
    )
    rho.append(100 * BiEncoder(encoder).fit(pairs).score(pairs, grades))
agreement = spearman(rho, [candidate.halves for candidate in raw])
print(f"{len(raw)} hidden states, rank correlation of MRR and rho {agreement:.2f}")
figure, axes = plt.subplots(figsize=(6, 4), layout="constrained")
axes.scatter([100 * c.halves for c in raw], rho, label="other hidden states, raw")
axes.scatter(100 * calibration.shipped.halves, shipped, label="as shipped")
axes.scatter(100 * calibration.chosen.halves, chosen, marker="*", s=120, label="chosen")
axes.set(
    xlabel="MRR x 100 of halves, without labels",
    ylabel="Spearman's rho x 100, by labels",
    title=f"Hidden states of MiniLM on {name}",
)
axes.legend()
figure.savefig("without_labels.png", dpi=150)
print("Saved without_labels.png")
