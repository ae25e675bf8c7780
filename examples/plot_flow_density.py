"""
Density and samples of a normalizing flow
=========================================

A :class:`~skcalib.NormalizingFlow` is fitted by maximum likelihood, so besides calibrated
vectors it has a density, which integrates to one, and samples. In two dimensions both can be
seen. The loss that papers report, in bits per dimension, may well be negative; this script
shows why that is no error.
"""

# %%
# Two interleaved half circles: no linear map makes a Gaussian of them. Two dimensions leave
# room for one level, and take more steps than the vectors of a BERT do.

import matplotlib.pyplot as plt
import numpy as np
from sklearn.base import clone
from sklearn.datasets import make_moons

from skcalib import NormalizingFlow, Whitening

X, half = make_moons(2000, noise=0.08, random_state=0)
flow = NormalizingFlow(n_levels=1, depth=8, max_epochs=60, random_state=0).fit(X)
Z = flow.transform(X)
print(f"back and forth: {np.abs(flow.inverse_transform(Z) - X).max():.0e}")

# %%
# The density, summed up over a fine grid that is wide enough for its tails, has a total of one.

step = 0.02
x, y = np.meshgrid(np.arange(-10, 10, step), np.arange(-10, 10, step))
density = np.exp(flow.score_samples(np.column_stack([x.ravel(), y.ravel()])))
print(f"integral: {density.sum() * step**2:.4f}")

# %%
# Samples are drawn from a standard normal and mapped back. Most lie where the data lie, and a
# few between the half circles: a flow is continuous, and cannot tear the one cloud that it
# starts from into two.

figure, axes = plt.subplots(2, 2, figsize=(6, 5), layout="constrained")
colour = {"c": half, "cmap": "coolwarm", "s": 2}
axes[0, 0].scatter(*X.T, **colour)
axes[0, 0].set_title("data")
axes[0, 1].pcolormesh(x, y, density.reshape(x.shape), cmap="viridis")
axes[0, 1].set_title("density")
axes[1, 0].scatter(*flow.sample(2000).T, s=2, color="black")
axes[1, 0].set_title("samples")
axes[1, 1].scatter(*Z.T, **colour)
axes[1, 1].set_title("data, mapped to z")
for panel in axes.ravel()[:3]:
    panel.set(xlim=(-1.6, 2.6), ylim=(-1.3, 1.8), aspect="equal")
axes[1, 1].set(xlim=(-5, 5), ylim=(-3.7, 3.7), aspect="equal")
figure.savefig("flow_density.png", dpi=150)
print("Saved flow_density.png")

# %%
# After whitening the two coordinates are uncorrelated, but the data remain two half circles.
# How far from a standard normal are the outputs of whitening and flow? The higher the density
# on average, in nats per point, the better the map explains the data. A Gaussian with the
# data's mean and covariance is the density that belongs to a whitening.

whitening = Whitening().fit(X)
log_determinant = -0.5 * np.linalg.slogdet(whitening.get_covariance())[1]
normal = -0.5 * np.sum(whitening.transform(X) ** 2, axis=1) - np.log(2 * np.pi)
print(f"whitening {np.mean(normal) + log_determinant:6.2f} nats")
print(f"flow      {flow.score(X):6.2f} nats")

# %%
# Bits per dimension are the negative of that, divided by the number of dimensions and log 2. A
# density is not a probability: concentrated on a small area it exceeds one, its logarithm is
# positive, and the bits are negative. Halving all vectors halves every length, which takes off
# one bit per dimension, though nothing about the data has changed. BERT's vectors have entries
# far below one, hence the negative losses. Compare bits between models of the same vectors
# only.

for scale in (4.0, 1.0, 0.25, 0.0625):
    bits = clone(flow).fit(scale * X).bits_per_dim(scale * X)
    print(f"data times {scale:<7} {bits:6.2f} bits per dimension")
