"""
Density and samples of a normalizing flow
=========================================

A :class:`~skcalib.NormalizingFlow` is fitted by maximum likelihood. So it gives not only
calibrated vectors, but also a probability density, which integrates to one, and samples. In two
dimensions you can see both. Papers report the loss in bits per dimension, and it is often
negative. This script shows why that is not an error.
"""

# %%
# The data are two interleaved half circles. No linear map turns them into a Gaussian. Two
# dimensions leave room for one level only, and the flow needs more steps than for the vectors
# of a BERT.

import matplotlib.pyplot as plt
import numpy as np
from sklearn.base import clone
from sklearn.datasets import make_moons

from skcalib import NormalizingFlow, Whitening

X, half = make_moons(1000, noise=0.08, random_state=0)
flow = NormalizingFlow(n_levels=1, depth=8, max_epochs=60, random_state=0).fit(X)
Z = flow.transform(X)
print(f"back and forth: {np.abs(flow.inverse_transform(Z) - X).max():.0e}")

# %%
# The density, summed over a fine grid that is wide enough for its tails, has a total of one.

step = 0.03
x, y = np.meshgrid(np.arange(-10, 10, step), np.arange(-10, 10, step))
density = np.exp(flow.score_samples(np.column_stack([x.ravel(), y.ravel()])))
print(f"integral: {density.sum() * step**2:.4f}")

# %%
# Samples are drawn from a standard normal distribution and mapped back. Most of them lie where
# the data lie, and a few lie between the half circles: a flow is continuous, so it cannot tear
# the one cloud that it starts from in two.

figure, axes = plt.subplots(2, 2, figsize=(6, 5), layout="constrained")
colors = {"c": half, "cmap": "coolwarm", "s": 2}
axes[0, 0].scatter(*X.T, **colors)
axes[0, 0].set_title("data")
axes[0, 1].pcolormesh(x, y, density.reshape(x.shape), cmap="viridis")
axes[0, 1].set_title("density")
axes[1, 0].scatter(*flow.sample(1000).T, s=2, color="black")
axes[1, 0].set_title("samples")
axes[1, 1].scatter(*Z.T, **colors)
axes[1, 1].set_title("data, mapped to z")
for panel in axes.ravel()[:3]:
    panel.set(xlim=(-1.6, 2.6), ylim=(-1.3, 1.8), aspect="equal")
axes[1, 1].set(xlim=(-5, 5), ylim=(-3.7, 3.7), aspect="equal")
figure.savefig("flow_density.png", dpi=150)
print("Saved flow_density.png")

# %%
# After whitening the two coordinates are uncorrelated, but the data are still two half circles.
# How far are the outputs of whitening and flow from a standard normal distribution? The higher
# the average log density, in nats per point, the better the map explains the data. The density
# that belongs to a whitening is the Gaussian with the mean and covariance of the data.

whitening = Whitening().fit(X)
log_determinant = -0.5 * np.linalg.slogdet(np.cov(X, rowvar=False))[1]
normal = -0.5 * np.sum(whitening.transform(X) ** 2, axis=1) - np.log(2 * np.pi)
print(f"whitening {np.mean(normal) + log_determinant:6.2f} nats")
print(f"flow      {flow.score(X):6.2f} nats")

# %%
# Bits per dimension are the negative of that average, divided by the number of dimensions and
# by log 2. A density is not a probability. Where it is concentrated on a small area, it exceeds
# one, its logarithm is positive, and the bits are negative. Halving all vectors takes off one
# bit per dimension, though nothing else about the data has changed. The entries of BERT's
# vectors are far below one, which explains the negative losses. Compare bits only between
# models of the same vectors.

for scale in (1.0, 0.25):
    nats = clone(flow).fit(scale * X).score(scale * X)
    bits = -nats / (X.shape[1] * np.log(2))
    print(f"data times {scale:<7} {bits:6.2f} bits per dimension")
