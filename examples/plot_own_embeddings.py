"""
Calibrate vectors that you already have
=======================================

Calibrators accept vectors of any origin: from an embedding service, from word2vec, or from a
model that runs elsewhere. A ``.npy`` file is enough. This script calibrates such a file, and
exports the result as a torch module, which does not need scikit-learn.

The script uses the bundled toy set (:func:`~skcalib.datasets.load_toy_sts`). Set the
environment variable ``SKCALIB_DATA`` to a folder of benchmarks to use STS-B instead.
"""

# %%
# First, other code turns sentences into vectors and saves them in a file. Here it averages the
# static vectors of the words in a sentence, as is usual with GloVe. No BERT runs.

import os
import tempfile
import warnings
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import torch
from sklearn.feature_extraction.text import CountVectorizer
from transformers import AutoModel, AutoTokenizer

from skcalib import Whitening
from skcalib.datasets import fetch_sts, load_toy_sts, minilm_path
from skcalib.export import to_torch
from skcalib.inspection import CosineDisplay
from skcalib.metrics import spearman

if os.environ.get("SKCALIB_DATA"):
    pairs, grades = fetch_sts("stsb", "dev", return_X_y=True)
else:
    pairs, grades = load_toy_sts(return_X_y=True)

model = AutoModel.from_pretrained(minilm_path())
word_vectors = model.get_input_embeddings().weight.detach().numpy()
vocabulary = AutoTokenizer.from_pretrained(minilm_path()).get_vocab()
rows = {word: row for word, row in vocabulary.items() if word.isalpha()}  # no pieces
counts = CountVectorizer(vocabulary=list(rows)).transform(pairs.ravel())
averages = counts @ word_vectors[list(rows.values())] / np.maximum(counts.sum(axis=1), 1)
folder = tempfile.TemporaryDirectory(ignore_cleanup_errors=True)
path = Path(folder.name) / "vectors.npy"
np.save(path, np.asarray(averages, dtype=np.float32))

# %%
# From here on the script uses only the file. A memory map allows a file that is larger than
# memory, and a whitening reads it once. The rows alternate between the left and the right
# sentence of each pair.

X = np.load(path, mmap_mode="r")
print(f"{X.shape[0]} vectors of {X.shape[1]} dimensions, {X.dtype}")
candidates = {
    "power='auto'": Whitening(power="auto"),
    "power='auto', 128 dims": Whitening(128, power="auto"),
    "exact": Whitening(),  # no regularization
}
warnings.filterwarnings("ignore", message="There are fewer than")  # the exact one warns


def score(vectors):
    """Spearman's rho x 100 between the cosine of each pair and its grade."""
    unit = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
    return 100 * spearman(grades, np.sum(unit[::2] * unit[1::2], axis=1))


print(f"{'raw':24}{score(X):5.1f}")
for name, whitening in candidates.items():
    print(f"{name:24}{score(whitening.fit_transform(X)):5.1f}")

# %%
# The fit uses the sentences that are scored, without their grades; the papers call this setting
# transductive. Averages of word vectors have the same problem as a BERT's layers, to a lesser
# degree: all sentences share a common part, which makes nearly every cosine positive.
# ``power="auto"``, whitening with automatic regularization, gains five points. Exact whitening
# gains six with the 2,900 sentences of STS-B, and loses one with the 600 of the toy set.
# Without grades you could not know which case is yours.

whitening = candidates["power='auto', 128 dims"]
figure, axes = plt.subplots(figsize=(6, 4), layout="constrained")
CosineDisplay.from_vectors(X, name="raw", ax=axes)
CosineDisplay.from_vectors(whitening.transform(X), name="whitened", ax=axes)
axes.set_title("Cosines of different sentences, means of word vectors")
figure.savefig("own_embeddings.png", dpi=150)
print("Saved own_embeddings.png")

# %%
# The torch module holds the mean and the matrix. It moves to a device together with the model
# that contains it, is saved with that model, and gives the same vectors as the estimator.

module = to_torch(whitening)
print(module)
model = torch.nn.Sequential(module, torch.nn.Linear(128, 1))
print("saved with a model:", [name for name in model.state_dict() if name.startswith("0.")])
by_module = module(torch.tensor(X)).numpy()
difference = np.abs(by_module - whitening.transform(X)).max()
print(f"module and estimator differ by {difference:.0e}")
assert difference < 1e-5
