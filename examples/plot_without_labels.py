"""
Calibrate a model without labels
================================

You have sentences and a model, but nobody has graded which sentences are similar.
:class:`~skcalib.CalibrationSearch` still chooses layer, pooling and calibration. It uses the
fact that with good vectors one part of a text finds the other part among the parts of all
texts. This script calibrates a list of sentences, computes similarities, finds the nearest
sentences, and finally checks the choice against grades.

The script uses the bundled toy set (:func:`~skcalib.datasets.load_toy_sts`). Set the
environment variable ``SKCALIB_DATA`` to a folder of benchmarks to use STS-B instead.
"""

# %%
# The input is a list of sentences: a few hundred or more, of the kind that you will compare.

import os
import tempfile
import time

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from sklearn.frozen import FrozenEstimator
from sklearn.neighbors import NearestNeighbors

from skcalib import BertEncoder, BiEncoder, CalibrationSearch
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
# The folder of this model declares its pooling, so the model was fine-tuned for it, and
# the search would keep its layer and pooling. We ask for others, as it asks itself for a
# model that declares nothing: it then tries every layer with four poolings, raw and calibrated.
# It keeps the model as it is unless another choice is better by both kinds of the score, where
# the best of many must lead by more than the chance of many. ``memory`` keeps the results of
# the model, so that each text passes through it once. The scores are mean reciprocal ranks
# (MRR): 1 means that the right part always comes first. For ``halves``, the split-half score,
# the odd words of a text must find its even words. For ``thinned``, a copy that lost most of
# its words must find the text.

folder = tempfile.TemporaryDirectory(ignore_cleanup_errors=True)
memory = folder.name  # a folder of your own would be kept
start = time.perf_counter()
poolings = ["mean", "cls", "max", "zipf"]
encoder = BertEncoder(minilm_path(), memory=memory)
search = CalibrationSearch(encoder, pooling=poolings).fit(sentences)
print(f"Calibrated in {time.perf_counter() - start:.0f} s.\n")
results = pd.DataFrame(search.cv_results_)
shown = ["pooling", "layers", "candidate", "halves", "thinned"]
print(results.sort_values("halves", ascending=False)[shown].head(8).round(3))
print(f"\n{search.reason_}\n{search.best_estimator_['calibrate']}")

# %%
# The fitted search maps texts to vectors. How similar are two sentences? A
# :class:`~skcalib.BiEncoder` answers that. ``FrozenEstimator`` prevents it from searching once
# more.

model = BiEncoder(FrozenEstimator(search)).fit(sentences)
new_pairs = [
    ("A man is playing a flute.", "Somebody plays an instrument."),
    ("A man is playing a flute.", "Two dogs run across a meadow."),
]
for (left, right), cosine in zip(new_pairs, model.predict(new_pairs), strict=True):
    print(f"{cosine:5.2f}  {left} | {right}")

# %%
# Which sentences of the list are nearest to a new one?

index = NearestNeighbors(n_neighbors=3, metric="cosine").fit(search.transform(sentences))
query = "Kids are playing in the sand by the sea."
distances, nearest = index.kneighbors(search.transform([query]))
print(query)
for distance, i in zip(distances[0], nearest[0], strict=True):
    print(f"{1 - distance:5.2f}  {sentences[i]}")

# %%
# Was the choice good? These sentences come in pairs that people graded, and nothing so far used
# the grades. This is Spearman's rho (the rank correlation of cosine and grade), times 100, of
# the raw model and of the choice:

raw, chosen = (
    100 * BiEncoder(FrozenEstimator(encoder)).fit(pairs).score(pairs, grades)
    for encoder in (encoder.fit(sentences), search)
)
print(f"raw                    {raw:5.1f}")
print(f"chosen without labels  {chosen:5.1f}")
assert chosen > raw - 0.3

# %%
# The search sees no gain, and keeps the raw model. If you have grades, use them to decide.
#
# The split-half score also separates good layers and poolings from bad ones. Each point below
# is one combination of layer and pooling, with raw vectors: its split-half score, and its score
# by grades.

uncalibrated = results[results["candidate"] == "raw"]
rho = []
for candidate in uncalibrated.itertuples():
    encoder.set_params(pooling=candidate.pooling, layers=candidate.layers)
    rho.append(100 * BiEncoder(encoder).fit(pairs).score(pairs, grades))
agreement = spearman(rho, uncalibrated["halves"])
print(f"{len(rho)} layers and poolings, rank correlation of both scores {agreement:.2f}")
figure, axes = plt.subplots(figsize=(6, 4), layout="constrained")
axes.scatter(100 * uncalibrated["halves"], rho, label="layers and poolings, raw")
halves = 100 * results["halves"]
axes.scatter(halves[0], raw, label="raw model")
axes.scatter(halves[search.best_index_], chosen, marker="*", s=120, label="chosen")
axes.set(
    xlabel="split-half score, without labels",
    ylabel="Spearman's rho x 100, with labels",
    title=f"Layers and poolings of MiniLM on {name}",
)
figure.legend(loc="outside lower center", ncols=3)
figure.savefig("without_labels.png", dpi=150)
print("Saved without_labels.png")
