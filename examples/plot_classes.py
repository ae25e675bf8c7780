"""
Classify texts by the names of the classes
==========================================

No text has a label here. :class:`~skcalib.ZeroShotClassifier` gets the names of the classes and
the texts. It calibrates the vectors on the texts, and moves each class from its name to where
the texts are that are most similar to it.

The questions were written for this project (:func:`~skcalib.datasets.load_questions`).
"""

# %%
# The data are ten intents (what the customer wants), each in ten wordings.

import matplotlib.pyplot as plt
import numpy as np
from sklearn.metrics import ConfusionMatrixDisplay, accuracy_score

from skcalib import BertEncoder, ZeroShotClassifier
from skcalib.datasets import load_questions, minilm_path

intents = load_questions()
questions, names = intents.data.tolist(), intents.target_names.tolist()
truth = intents.target_names[intents.target]

# %%
# The nearest name by the cosine of raw vectors is the usual way.

encoder = BertEncoder(minilm_path())
texts = encoder.fit_transform(questions)
classes = encoder.transform(names)
texts, classes = (v / np.linalg.norm(v, axis=1, keepdims=True) for v in (texts, classes))
nearest = intents.target_names[(texts @ classes.T).argmax(axis=1)]

# %%
# The classifier takes the same names, and the questions without their labels.

model = ZeroShotClassifier(encoder, names).fit(questions)
predicted = {"nearest name": nearest, "ZeroShotClassifier": model.predict(questions)}

figure, axes = plt.subplots(1, 2, figsize=(10, 5.5), layout="constrained", sharey=True)
for ax, (title, labels) in zip(axes, predicted.items(), strict=True):
    ConfusionMatrixDisplay.from_predictions(
        truth, labels, ax=ax, colorbar=False, xticks_rotation="vertical"
    )
    ax.set(
        title=f"{title}, accuracy {accuracy_score(truth, labels):.2f}",
        xlabel="found",
        ylabel="",
    )
axes[0].set_ylabel("true intent")
figure.savefig("classes.png", dpi=150)
