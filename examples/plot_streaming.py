"""
Whiten a corpus that arrives in chunks
======================================

A corpus may be larger than memory, or may be spread over several machines. A whitening needs
only the mean and the covariance of a sample, and these can be added up. ``partial_fit`` adds
the vectors of one chunk after the other, and ``merge`` combines whitenings that were fitted
elsewhere. Up to rounding, the result equals one ``fit`` on everything.

The script uses the bundled toy set (:func:`~skcalib.datasets.load_toy_sts`). Set the
environment variable ``SKCALIB_DATA`` to a folder of benchmarks to use STS-B instead.
"""

# %%
# The corpus is a generator of lists of texts, as if read from files. The code below never holds
# more than one list.

import os
import tempfile
from itertools import islice

import matplotlib.pyplot as plt
import numpy as np

from skcalib import BertEncoder, Whitening
from skcalib.datasets import fetch_sts, load_toy_sts, minilm_path

if os.environ.get("SKCALIB_DATA"):
    sentences = fetch_sts("stsb", "train").data.ravel()
else:
    sentences = load_toy_sts().data.ravel()


def corpus(size):
    """Yield lists of ``size`` texts, the last one shorter."""
    texts = iter(sentences)
    while chunk := list(islice(texts, size)):
        yield chunk


# %%
# The loop encodes each chunk, adds it to the whitening, and drops it. Only the mean and a
# matrix of 384 by 384 stay in memory. Each step decomposes that matrix.

folder = tempfile.TemporaryDirectory(ignore_cleanup_errors=True)
memory = folder.name  # a folder of your own would be kept
encoder = BertEncoder(minilm_path(), layers=0, memory=memory).fit(sentences[:1])
streamed = Whitening(128, noise="auto")
for chunk in corpus(size=64):
    streamed.partial_fit(encoder.transform(chunk))
print(f"{streamed.n_samples_seen_} sentences seen")

# %%
# Each of two machines has one half of the corpus. Only fitted whitenings travel between them.

chunks = list(corpus(size=64))
here, there = Whitening(128, noise="auto"), Whitening(128, noise="auto")
for chunk in chunks[::2]:
    here.partial_fit(encoder.transform(chunk))
for chunk in chunks[1::2]:
    there.partial_fit(encoder.transform(chunk))
merged = here.merge(there)

# %%
# For comparison, this is a fit on all vectors at once. The printed number is the largest
# difference of a calibrated entry, relative to the largest entry.


def error(values, exact):
    """Largest difference, as a share of the largest entry."""
    return np.abs(values - exact).max() / np.abs(exact).max()


X = encoder.transform(sentences).astype(np.float64)
whole = Whitening(128, noise="auto").fit(X)
for name, other in (("streamed", streamed), ("merged", merged)):
    difference = error(other.transform(X), whole.transform(X))
    print(f"{name:10} differs by {difference:.0e}")
    assert difference < 1e-10

# %%
# The size of the chunks does not matter, down to one row at a time. Running sums of squares
# would also need only one pass. But they lose digits in proportion to the square of the mean,
# and BERT's vectors have a mean that is long compared with their spread. Here a constant is
# added to every vector. The error of :class:`~skcalib.Whitening` grows only in proportion to
# that constant, like the rounding error of the vectors themselves.

rows = X[:300, :32]  # each step decomposes the covariance, faster with few dimensions
added = 10.0 ** np.arange(0, 8)


def by_partial_fit(vectors, size):
    """Covariance after chunks of ``size`` rows."""
    whitening = Whitening(power=0)  # only the covariance matters here
    for start in range(0, len(vectors), size):
        whitening.partial_fit(vectors[start : start + size])
    return whitening.moments_.covariance()


def by_sums(vectors):
    """Covariance from a running sum and a running sum of squares."""
    n, mean = len(vectors), vectors.mean(axis=0)
    return (vectors.T @ vectors - n * np.outer(mean, mean)) / (n - 1)


curves = {"sums of squares": [], "chunks of 1": [], "chunks of 64": []}
for constant in added:
    vectors = rows + constant
    exact = np.cov(vectors - vectors.mean(axis=0), rowvar=False)
    curves["sums of squares"].append(error(by_sums(vectors), exact))
    curves["chunks of 1"].append(error(by_partial_fit(vectors, 1), exact))
    curves["chunks of 64"].append(error(by_partial_fit(vectors, 64), exact))

figure, axes = plt.subplots(figsize=(6, 4), layout="constrained")
for label, errors in curves.items():
    axes.plot(added, errors, marker="o", label=label)
axes.set(
    xscale="log",
    yscale="log",
    xlabel="constant added to every vector",
    ylabel="error of the covariance",
    title="One pass over 300 vectors in float64",
)
axes.legend()
figure.savefig("streaming.png", dpi=150)
print("Saved streaming.png")
