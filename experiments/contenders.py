"""What may follow an encoder: common steps, a published one and those of this package."""

from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.decomposition import PCA
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer, StandardScaler

from skcalib import NeighborSmoothing, Whitening


class AllButTheTop(TransformerMixin, BaseEstimator):
    """Remove mean and d / 100 directions of largest variance (Mu & Viswanath, 2018)."""

    def fit(self, X, y=None):
        self.pca_ = PCA(X.shape[1] // 100, random_state=0).fit(X)
        return self

    def transform(self, X):
        return X - self.pca_.inverse_transform(self.pca_.transform(X))


def steps(n_groups=None):
    """Return all steps by name, with those that know the number of groups if there is one."""
    whitened, smoothing = Whitening(power="auto"), NeighborSmoothing()
    found = {
        "raw": FunctionTransformer(),
        "first 128": FunctionTransformer(lambda X: X[:, :128]),
        "centered": StandardScaler(with_std=False),
        "all but the top": AllButTheTop(),
        "PCA(30)": PCA(30, random_state=0),
        "PCA(128)": PCA(128, random_state=0),
        "exact": Whitening(),
        "whitened": whitened,
        "whitened to 128": Whitening(128, power="auto"),
        "smoothed": make_pipeline(whitened, smoothing),
    }
    if n_groups is not None:
        grouped = Whitening(power="auto", n_groups=n_groups)
        found["PCA(groups)"] = PCA(n_groups, random_state=0)
        found["n_groups"] = grouped
        found["n_groups and smoothed"] = make_pipeline(grouped, smoothing)
    return found


def some(names, n_groups=None):
    """Return those of the steps that are named and known."""
    known = steps(n_groups)
    return {name: known[name] for name in names if name in known}
