"""
Bring questions with the same meaning together
==============================================

Where many texts ask the same thing in other words, the nearest neighbors of a text show its
meaning better than the text itself. :class:`~skcalib.NeighborSmoothing` moves each vector
toward its nearest neighbors. This does harm where similar texts must stay apart, as in graded
similarity (STS: pairs of sentences that people scored from 0 to 5).

The questions were written for this project (:func:`~skcalib.datasets.load_questions`).
"""

# %%
# The data are ten intents (what the customer wants), each in ten wordings.

import matplotlib.pyplot as plt
import numpy as np
from sklearn.cluster import KMeans
from sklearn.metrics import normalized_mutual_info_score
from sklearn.pipeline import make_pipeline

from skcalib import BertEncoder, NeighborSmoothing, Whitening
from skcalib.datasets import load_questions, minilm_path
from skcalib.evaluation import evaluate_labeled

intents = load_questions()
questions, labels = intents.data.tolist(), intents.target

# %%
# The smoothing follows the whitening. It learns from vectors without labels; the labels here
# serve only for the scores. A text does not count among its own neighbors.

encoder = BertEncoder(minilm_path())
calibrated = make_pipeline(encoder, Whitening(power="auto"))
smoothed = make_pipeline(encoder, Whitening(power="auto"), NeighborSmoothing())
rows = {"raw": encoder, "calibrated": calibrated, "smoothed": smoothed}
print(evaluate_labeled(rows, questions, labels))

# %%
# The cosines show the effect: questions of one intent become similar, and questions of
# different intents stay apart.

figure, axes = plt.subplots(1, 2, figsize=(8, 4), layout="constrained", sharey=True)
for ax, (name, pipeline) in zip(axes, list(rows.items())[1:], strict=True):
    vectors = pipeline.fit_transform(questions)
    unit = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
    image = ax.imshow(unit @ unit.T, vmin=-0.2, vmax=1, cmap="viridis")
    clusters = KMeans(10, n_init=3, random_state=0).fit_predict(unit)
    nmi = 100 * normalized_mutual_info_score(labels, clusters)
    ax.set(title=f"{name}, k-means NMI {nmi:.0f}", xlabel="question")
axes[0].set_ylabel("question")
figure.colorbar(image, ax=axes, label="cosine")
figure.savefig("smoothing.png", dpi=150)

# %%
# Where smoothing does harm
# -------------------------
# Differences between the questions of one intent fade. A question about a lost card and one
# about a card that was found again become similar, though they need different answers.

some = [questions.index(q) for q in ("I lost my wallet with the card in it",
                                     "I found my card again, can you unblock it?")]  # fmt: skip
for name, pipeline in rows.items():
    lost, found = pipeline.fit_transform(questions)[some]
    cosine = lost @ found / np.linalg.norm(lost) / np.linalg.norm(found)
    print(f"{name:12}{cosine:.2f}")

# %%
# So the task decides. Search for the same topic, classes and clusters gain, and so does a
# search in which a query has several answers. Where each query has a single answer there is
# less to gain. Graded similarity loses 7 points (scores are times 100; `search
# <../tasks/search.html>`_).
