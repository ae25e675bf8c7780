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
# Sentences to fit on, and graded pairs to judge by. No grade is used in a fit. With STS-B the
# sentences are those of the training set; the toy set is small, so that there they are its
# own: the transductive setting.

import os
import tempfile
import warnings
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np

from skcalib import BertEncoder, Whitening
from skcalib.datasets import fetch_sts, load_toy_sts, minilm_path
from skcalib.metrics import spearman

if os.environ.get("SKCALIB_DATA"):
    name = "STS-B test"
    texts = fetch_sts("stsb", "train", return_X_y=True)[0]
    pairs, grades = fetch_sts("stsb", "test", return_X_y=True)
else:
    name = "the toy set"
    pairs, grades = load_toy_sts(return_X_y=True)
    texts = pairs
texts = np.unique(texts.ravel().astype(str))

# %%
# The vectors: the mean of MiniLM's embedding layer, 384 dimensions, raw and far from
# isotropic. ``memory`` keeps them, so the model reads each text once, ever.

memory = Path(tempfile.gettempdir()) / "skcalib-example"
encoder = BertEncoder(minilm_path(), layers=0, memory=memory)
X = encoder.fit_transform(texts.tolist())
left, right = (encoder.transform(side.tolist()) for side in pairs.T)
print(f"{len(X)} sentences to fit on, {len(grades)} pairs of {name} to judge by.")


def score(transform):
    """Spearman's rho x 100 of cosine similarity with the grades."""
    a, b = (transform(side).astype(np.float64) for side in (left, right))
    cosine = np.sum(a * b, axis=1) / np.linalg.norm(a, axis=1) / np.linalg.norm(b, axis=1)
    return 100 * spearman(grades, cosine)


raw = score(lambda vectors: vectors)

# %%
# Fit on ever more sentences, three random choices of each number. Plain whitening below full
# rank warns, with n, d and the rank; here that is the point, so the warning is silenced.

doubled = [50 * 2**i for i in range(9)]
sizes = [*(n for n in doubled if n < len(X)), len(X)]
candidates = {
    "plain": Whitening(),
    "shrinkage='auto'": Whitening(shrinkage="auto"),
    "shrinkage=0.5": Whitening(shrinkage=0.5),
}
curves = {label: [] for label in candidates}
for n in sizes:
    for label, whitening in candidates.items():
        scores = []
        for seed in range(3):
            rows = np.random.default_rng(seed).permutation(len(X))[:n]
            with warnings.catch_warnings():
                warnings.filterwarnings("ignore", message=".*have rank")
                scores.append(score(whitening.fit(X[rows]).transform))
        curves[label].append(np.mean(scores))

# %%
# Plain whitening is worst where n is near d: the weakest directions of the sample are then
# pure noise, and they are amplified most. Shrinkage bounds the amplification.

print(f"\n{'n':>6}{'raw':>8}" + "".join(f"{label:>18}" for label in curves))
for i, n in enumerate(sizes):
    print(f"{n:>6}{raw:>8.1f}" + "".join(f"{curve[i]:>18.1f}" for curve in curves.values()))

figure, axes = plt.subplots(figsize=(6, 4), layout="constrained")
for label, curve in curves.items():
    axes.plot(sizes, curve, marker="o", label=label)
axes.axhline(raw, color="grey", linestyle="--", label="raw vectors")
axes.axvline(X.shape[1], color="grey", linewidth=0.5)
axes.set(
    xscale="log",
    xlabel="sentences fitted on",
    ylabel="Spearman's rho x 100",
    title=f"Whitening fitted on few sentences, {name}",
)
axes.legend()
figure.savefig("small_samples.png", dpi=150)
print("\nSaved small_samples.png")
