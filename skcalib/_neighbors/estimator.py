"""Smoothing over neighbours: vectors of texts that ask the same come together."""

from __future__ import annotations

import warnings
from numbers import Integral, Real
from typing import Any, Self

import numpy as np
from sklearn.base import BaseEstimator, OneToOneFeatureMixin, TransformerMixin, clone
from sklearn.utils import gen_batches
from sklearn.utils.validation import check_is_fitted, validate_data

from skcalib._base import VersionedState
from skcalib._machine.limits import rows_within
from skcalib._neighbors.search import nearest, unit_float32
from skcalib._neighbors.smoothing import LEAST_DENSITY, share_density, smoothed
from skcalib._sklearn_compat import HasMethods, Interval, _fit_context
from skcalib.metrics import unit_rows

__all__ = ["NeighborSmoothing"]

# Vectors of neighbours that `transform` holds at a time.
WORKING_BYTES = 64 * 2**20


class NeighborSmoothing(OneToOneFeatureMixin, TransformerMixin, VersionedState, BaseEstimator):
    """Move vectors toward their nearest neighbours: for intents, topics, and search among them.

    Semantic textual similarity (STS) loses 5 points by it: what tells two close texts apart
    fades. Where many texts say the same in other words, their common meaning remains: on
    questions of bank customers search, clustering and classification from few labels gained 3
    to 7 points. Put it behind ``Whitening(noise="auto")``.

    With x̂ of unit length, ``x' = unit(x̂ + weight Σ w_j x̂_j / Σ w_j)`` over the nearest fitted
    texts, ``w_j = cos(x, x_j)^power``. This is the alpha-weighted expansion of queries and of
    the database [1]_ of image retrieval, with a mean in place of a sum.

    Parameters
    ----------
    n_neighbors : int, default=10
        Number of nearest fitted texts. Where fewer are fitted, all of them.
    weight : float >= 0, default=1.0
        Weight of the neighbours' mean beside the text's own vector; 0.5 keeps most of the gain
        and harms half as much.
    power : float >= 0, default=3
        Power of the cosine in the weights. Neighbours at a right angle or more weigh nothing.
    neighbors : transformer or None, default=None
        Search for neighbours: scikit-learn's ``KNeighborsTransformer`` or one like it
        (pynndescent's, one of faiss), by cosine, or by Euclidean distance, which on vectors of
        unit length gives the same neighbours. It is cloned, and its own ``n_neighbors`` is set.
        None compares with every fitted text, in blocks, in float32.

    Attributes
    ----------
    vectors_ : ndarray of shape (n_fitted, n_features), float32
        Vectors of the fitted texts, of unit length.
    neighbors_ : transformer or None
        The fitted clone.
    n_features_in_ : int
        Number of features seen during fit.
    feature_names_in_ : ndarray of shape (n_features,)
        Names of features seen during fit, when all are strings.

    Warns
    -----
    UserWarning
        By `fit`, if the texts have few siblings, as sentences of STS: the mean cosine of a text
        with the nearest 0.5 % of the others is below 0.46.

    Notes
    -----
    A fitted vector that is equal to a text's own is left out of its neighbours, once: so
    ``fit_transform(X)`` leaves each text out of its own neighbours, ``fit(X).transform(X)``
    gives the same vectors, and a query finds the same text at cosine 1. A vector of zeros
    stays as it is.

    References
    ----------
    .. [1] Radenović, Tolias & Chum (2019), "Fine-Tuning CNN Image Retrieval with No Human
           Annotation", TPAMI 41(7), section 3.4.

    Examples
    --------
    >>> import numpy as np
    >>> from skcalib import NeighborSmoothing
    >>> rng = np.random.default_rng(0)
    >>> topics = np.repeat(rng.normal(size=(20, 16)), 30, axis=0)
    >>> X = topics + rng.normal(size=topics.shape)
    >>> smooth = NeighborSmoothing().fit_transform(X)
    >>> before, after = np.corrcoef(X)[:30, :30].mean(), np.corrcoef(smooth)[:30, :30].mean()
    >>> bool(after > before + 0.1)
    True
    """

    _parameter_constraints: dict = {
        "n_neighbors": [Interval(Integral, 1, None, closed="left")],
        "weight": [Interval(Real, 0, None, closed="left")],
        "power": [Interval(Real, 0, None, closed="left")],
        "neighbors": [HasMethods(["fit", "transform"]), None],
    }

    vectors_: np.ndarray
    neighbors_: Any

    def __init__(
        self,
        n_neighbors: int = 10,
        weight: float = 1.0,
        power: float = 3,
        neighbors: BaseEstimator | None = None,
    ) -> None:
        self.n_neighbors = n_neighbors
        self.weight = weight
        self.power = power
        self.neighbors = neighbors

    @_fit_context(prefer_skip_nested_validation=False)
    def fit(self, X: Any, y: Any = None) -> Self:
        """Keep the vectors of ``X`` as neighbours.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Vectors, finite: the texts that are searched, or others of their domain.
        y : None
            Ignored.

        Returns
        -------
        self : NeighborSmoothing
            The fitted estimator.
        """
        if hasattr(self, "vectors_"):
            del self.vectors_  # an error below leaves nothing half-fitted
        self._keep(unit_float32(self._checked(X, reset=True)))
        level = share_density(self.vectors_)
        if level < LEAST_DENSITY:
            warnings.warn(
                f"These {len(self.vectors_)} texts have few siblings: the mean cosine of a "
                f"text with the nearest 0.5 % of the others is {level:.2f}, below "
                f"{LEAST_DENSITY}. On such texts, as those of STS, smoothing blurs what tells "
                "them apart. Compare with the vectors as they were; weight=0.5 harms half as "
                "much.",
                UserWarning,
                stacklevel=3,  # behind scikit-learn's context of fit
            )
        return self

    @_fit_context(prefer_skip_nested_validation=False)
    def partial_fit(self, X: Any, y: Any = None) -> Self:
        """Add the vectors of ``X`` to the neighbours.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Vectors, finite. A search given as `neighbors` is fitted anew on all vectors.
        y : None
            Ignored.

        Returns
        -------
        self : NeighborSmoothing
            The estimator with the texts added.
        """
        first = not hasattr(self, "vectors_")
        added = unit_float32(self._checked(X, reset=first))
        self._keep(added if first else np.vstack([self.vectors_, added]))
        return self

    def transform(self, X: Any) -> np.ndarray:
        """Move the vectors of ``X`` toward their nearest fitted ones.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Vectors, of new texts or of fitted ones.

        Returns
        -------
        X_new : ndarray of shape (n_samples, n_features)
            Vectors of unit length, float32 for float32 input and float64 otherwise.
        """
        check_is_fitted(self)
        X = self._checked(X, reset=False)
        out = np.empty(X.shape, X.dtype)
        step = rows_within(WORKING_BYTES, (self.n_neighbors + 2) * X.shape[1])
        for chunk in gen_batches(len(X), step):
            unit = unit_rows(X[chunk])[0]
            candidates = self._candidates(unit.astype(np.float32))
            out[chunk] = smoothed(
                unit.astype(X.dtype),
                candidates,
                self.vectors_,
                n_neighbors=self.n_neighbors,
                weight=self.weight,
                power=self.power,
            )
        return out

    def _checked(self, X: Any, *, reset: bool) -> np.ndarray:
        return validate_data(self, X, dtype=[np.float64, np.float32], reset=reset)

    def _keep(self, vectors: np.ndarray) -> None:
        """Fit the search on vectors of unit length, and keep both."""
        search = None
        if self.neighbors is not None:
            # One more than asked for, since a text finds itself. In its mode "distance"
            # KNeighborsTransformer adds another one.
            k = max(1, min(self.n_neighbors + 1, len(vectors) - 1))
            search = clone(self.neighbors).set_params(n_neighbors=k).fit(vectors)
        self.neighbors_ = search
        self.vectors_ = vectors

    def _candidates(self, unit: np.ndarray) -> np.ndarray:
        """Rows of fitted vectors that may be neighbours, of shape (n_samples, m)."""
        if self.neighbors_ is None:
            k = min(self.n_neighbors + 1, len(self.vectors_))
            return nearest(unit, self.vectors_, k)[1]
        graph = self.neighbors_.transform(unit).tocsr()
        found = np.diff(graph.indptr)
        rows = np.full((len(unit), found.max()), -1)
        rows[np.arange(found.max()) < found[:, None]] = graph.indices
        return rows

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.transformer_tags.preserves_dtype = ["float64", "float32"]
        return tags
