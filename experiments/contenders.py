"""What may follow an encoder: common steps, published ones and those of this package."""

import numpy as np
from scipy.signal import argrelextrema
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.decomposition import PCA
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer, StandardScaler, normalize

from skcalib import NeighborSmoothing, Whitening


class AllButTheTop(TransformerMixin, BaseEstimator):
    """Remove mean and d / 100 directions of largest variance (Mu & Viswanath, 2018)."""

    def fit(self, X, y=None):
        self.pca_ = PCA(X.shape[1] // 100, random_state=0).fit(X)
        return self

    def transform(self, X):
        return X - self.pca_.inverse_transform(self.pca_.transform(X))


class MeanProjectedOff(TransformerMixin, BaseEstimator):
    """Remove the direction of the mean (Ren et al., 2025, arXiv:2511.11041, "R2")."""

    def fit(self, X, y=None):
        self.direction_ = normalize(normalize(X).mean(axis=0, keepdims=True))[0]
        return self

    def transform(self, X):
        return X - np.outer(X @ self.direction_, self.direction_)


def knee_of(curve, sensitivity=0.5):
    """Return the first knee of a convex, falling curve (Kneedle, with the paper's setting)."""
    below = (curve[0] - curve) / (curve[0] - curve[-1]) - np.linspace(0, 1, len(curve))
    enough = sensitivity / (len(curve) - 1)
    peaks = argrelextrema(below, np.greater_equal)[0]
    ends = [*peaks[1:], len(below)]
    falls = (below[k:end].min() < below[k] - enough for k, end in zip(peaks, ends, strict=True))
    return next((k for k, fall in zip(peaks, falls, strict=True) if fall), np.argmax(below))


class SpectralTempering(TransformerMixin, BaseEstimator):
    """Whiten the leading axes by a power that their spectrum gives (Li et al., 2026).

    arXiv:2603.19339: the power is the signal-to-noise ratio of the last kept axis over that of
    the knee of the spectrum, at most 1; the noise is the mean of the last tenth of variances.
    """

    def __init__(self, n_components=128):
        self.n_components = n_components

    def fit(self, X, y=None):
        self.pca_ = PCA(svd_solver="full").fit(np.asarray(X, dtype=float))
        variances = self.pca_.explained_variance_
        tail = int(0.9 * len(variances))
        ratio = np.maximum(variances[:tail] / variances[tail:].mean() - 1, 0)
        self.power_ = min(1.0, ratio[self.n_components - 1] / ratio[knee_of(ratio)])
        self.scale_ = variances[: self.n_components] ** (-self.power_ / 2)
        return self

    def transform(self, X):
        return self.pca_.transform(X)[:, : self.n_components] * self.scale_


def steps(n_groups=None):
    """Return all steps by name, with those that know the number of groups if there is one."""
    whitened, smoothing = Whitening(noise="auto"), NeighborSmoothing()
    found = {
        "raw": FunctionTransformer(),
        "first 128": FunctionTransformer(lambda X: X[:, :128]),
        "centered": StandardScaler(with_std=False),
        "mean projected off": MeanProjectedOff(),
        "all but the top": AllButTheTop(),
        "PCA(30)": PCA(30, random_state=0),
        "PCA(128)": PCA(128, random_state=0),
        "PCA(whiten=True)": PCA(whiten=True),
        "spectral tempering": SpectralTempering(),
        "exact": Whitening(),
        "whitened": whitened,
        "whitened to 128": Whitening(128, noise="auto"),
        "smoothed": make_pipeline(whitened, smoothing),
    }
    if n_groups is not None:
        grouped = Whitening(noise="auto", n_groups=n_groups)
        found["PCA(groups)"] = PCA(n_groups, random_state=0)
        found["n_groups"] = grouped
        found["n_groups and smoothed"] = make_pipeline(grouped, smoothing)
    return found


def some(names, n_groups=None):
    """Return those of the steps that are named and known."""
    known = steps(n_groups)
    return {name: known[name] for name in names if name in known}
