"""What may follow an encoder: a few lines of scikit-learn, and the steps of this package."""

import numpy as np
from measures import unit
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.decomposition import PCA
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer, StandardScaler

from skcalib import NeighborSmoothing, Whitening

OURS = "skcalib"


class Near(TransformerMixin, BaseEstimator):
    """Add the mean of the ten nearest fitted vectors: smoothing in three lines of NumPy."""

    def fit(self, X, y=None):
        self.units_ = unit(X)
        return self

    def transform(self, X):
        units = unit(X)
        nearest = np.argpartition(-units @ self.units_.T, 10)[:, :10]
        return units + self.units_[nearest].mean(axis=1)


def pca(n, **params):
    return PCA(n, random_state=0, **params)


def steps():
    """Return steps by their names in all results but those of `baselines`."""
    return {
        "raw": FunctionTransformer(),
        "mean subtracted": StandardScaler(with_std=False),
        "StandardScaler": StandardScaler(),
        "PCA(128)": pca(128),
        "PCA(128, whiten=True)": pca(128, whiten=True),
        "PCA(256, whiten=True)": pca(256, whiten=True),
        "exact": Whitening(),
        "default": Whitening(power="auto"),
        "many": Whitening(power="auto", n_groups="many"),
    }


def chosen(*names):
    return {name: step for name, step in steps().items() if name in names}


def for_similarity():
    ours = {"exact": "skcalib, exact", "default": OURS, "many": "skcalib, many"}
    return {ours.get(name, name): step for name, step in steps().items()}


def for_groups(n_groups=None):
    steps = for_similarity()
    del steps["PCA(256, whiten=True)"], steps["skcalib, exact"]
    steps["leading 128"] = FunctionTransformer(lambda X: X[:, :128])
    steps["skcalib, 128"] = Whitening(128, power="auto")
    for step in ("raw", "StandardScaler", "PCA(128)"):
        steps[f"{step}, near"] = make_pipeline(steps[step], Near())
        steps[f"{step}, smoothed"] = make_pipeline(steps[step], NeighborSmoothing())
    steps["skcalib, not smoothed"] = steps[OURS]
    steps[OURS] = make_pipeline(steps[OURS], NeighborSmoothing())
    return steps


def for_known_groups(n_groups):
    wide = make_pipeline(StandardScaler(), pca(2 * n_groups))
    steps = {
        "raw": FunctionTransformer(),
        "StandardScaler": StandardScaler(),
        "PCA(groups)": pca(n_groups),
        "PCA(groups), near": make_pipeline(pca(n_groups), Near()),
        "PCA(groups), smoothed": make_pipeline(pca(n_groups), NeighborSmoothing()),
        "PCA(128), near": make_pipeline(pca(128), Near()),
        "StandardScaler, PCA(2 groups)": wide,
        "StandardScaler, PCA(2 groups), near": make_pipeline(wide, Near()),
        "skcalib, not smoothed": Whitening(power="auto", n_groups=n_groups),
    }
    for step, n in {OURS: n_groups, "half": n_groups // 2, "twice": 2 * n_groups}.items():
        whitening = Whitening(power="auto", n_groups=max(n, 2))
        name = step if step == OURS else f"skcalib, {step} the number"
        steps[name] = make_pipeline(whitening, NeighborSmoothing())
    return steps
