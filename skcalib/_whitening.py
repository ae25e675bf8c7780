"""Whitening: the linear map that makes vectors isotropic (BERT-whitening)."""

from __future__ import annotations

import warnings
from numbers import Integral, Real

import numpy as np
from sklearn.base import (
    BaseEstimator,
    ClassNamePrefixFeaturesOutMixin,
    TransformerMixin,
    _fit_context,
)
from sklearn.utils._param_validation import Interval, RealNotInt, StrOptions
from sklearn.utils.validation import check_array, check_is_fitted, validate_data

from skcalib._moments import Moments, ledoit_wolf_shrinkage, row_chunks
from skcalib._persistence import VersionedState
from skcalib._spectrum import WhiteningMap, decompose

__all__ = ["Whitening"]


class Whitening(
    ClassNamePrefixFeaturesOutMixin, TransformerMixin, VersionedState, BaseEstimator
):
    """Whiten vectors: zero mean, identity covariance, optionally fewer dimensions.

    The sample is centred and mapped by ``W = U Λ^(-power/2)``, where ``U Λ Uᵀ`` is the
    eigendecomposition of its covariance; the first ``n_components`` columns are kept
    (BERT-whitening [1]_, algorithm 1). Cosine similarity of the result weighs every
    direction of the sample alike, where that of raw BERT vectors is dominated by a few.

    Moments and decomposition are computed in float64 whatever the input, in one pass over
    chunks of ``X`` that copies no more than a few megabytes of it.

    Parameters
    ----------
    n_components : int, float or None, default=None
        Number of leading dimensions to keep. A float in (0, 1) keeps as many as explain
        that share of the variance; None keeps all of numerical rank. An int above the
        rank is filled up with columns of zeros, with a warning.
    method : {"pca", "zca"}, default="pca"
        "pca" returns coordinates along the principal axes, by decreasing variance. "zca"
        rotates them back, ``W = U Λ^(-power/2) Uᵀ``: as close to the input as a whitened
        vector can be [2]_, always ``n_features_in_`` wide.
    power : float in [0, 1], default=1.0
        1 whitens, 0 only centres and rotates (PCA); values between temper the whitening.
    shrinkage : float in [0, 1] or "auto", default=0.0
        Weight of the scaled identity in the covariance,
        ``(1 - shrinkage) Σ + shrinkage tr(Σ)/d I``. It bounds the amplification of weak
        directions, and makes every direction usable when there are fewer samples than
        features. "auto" is the Ledoit-Wolf estimate [3]_.
    tol : float or None, default=None
        Eigenvalues up to ``tol`` times the largest count as zero. None means
        ``d * eps`` of float64, the rounding error of the decomposition.

    Attributes
    ----------
    mean_ : ndarray of shape (n_features,)
        Mean of the sample.
    components_ : ndarray of shape (k, n_features)
        Principal axes, unit rows in order of decreasing variance. In each the entry of
        largest magnitude is positive. Here and below k is the number of axes kept:
        `n_components_` for "pca", `rank_` for "zca".
    explained_variance_ : ndarray of shape (k,)
        Variance of the sample along each axis, before shrinkage (unbiased, ``n - 1``).
    explained_variance_ratio_ : ndarray of shape (k,)
        The same as a share of the total variance.
    n_components_ : int
        Width of the output.
    rank_ : int
        Numerical rank of the (shrunk) covariance.
    shrinkage_ : float
        Shrinkage in use.
    n_samples_seen_ : int
        Number of samples fitted on, over all calls of `partial_fit`.
    n_features_in_ : int
        Number of features seen during fit.
    feature_names_in_ : ndarray of shape (n_features,)
        Names of features seen during fit, when all are strings.

    See Also
    --------
    NormalizingFlow : A non-linear map to a Gaussian.
    sklearn.decomposition.PCA : The same map without shrinkage, in the input's precision.

    Notes
    -----
    `transform` keeps float32 and float64. The mean is always subtracted in float64; the
    product with W is done in float32 only where the error it adds stays below about 1e-6
    of the typical output, which is known after the fit from ``diag(Σ)`` and W, and in
    float64 otherwise. So an ill-conditioned sample costs time, never digits.

    References
    ----------
    .. [1] Su, Cao, Liu & Ou (2021), "Whitening Sentence Representations for Better
           Semantics and Faster Retrieval", arXiv:2103.15316.
    .. [2] Kessy, Lewin & Strimmer (2018), "Optimal Whitening and Decorrelation", The
           American Statistician 72(4).
    .. [3] Ledoit & Wolf (2004), "A well-conditioned estimator for large-dimensional
           covariance matrices", Journal of Multivariate Analysis 88(2).

    Examples
    --------
    >>> import numpy as np
    >>> from skcalib import Whitening
    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(500, 3)) @ [[9, 0, 0], [5, 1, 0], [2, 2, 0.1]] + 50
    >>> Z = Whitening().fit_transform(X)
    >>> np.allclose(np.cov(Z.T), np.eye(3))
    True
    >>> Whitening(n_components=0.99).fit(X).n_components_
    2
    """

    _parameter_constraints: dict = {
        "n_components": [
            Interval(Integral, 1, None, closed="left"),
            Interval(RealNotInt, 0, 1, closed="neither"),
            None,
        ],
        "method": [StrOptions({"pca", "zca"})],
        "power": [Interval(Real, 0, 1, closed="both")],
        "shrinkage": [Interval(Real, 0, 1, closed="both"), StrOptions({"auto"})],
        "tol": [Interval(Real, 0, 1, closed="left"), None],
    }

    _moments: Moments
    _linear_map: WhiteningMap | None

    def __init__(self, n_components=None, *, method="pca", power=1.0, shrinkage=0.0, tol=None):
        self.n_components = n_components
        self.method = method
        self.power = power
        self.shrinkage = shrinkage
        self.tol = tol

    @_fit_context(prefer_skip_nested_validation=True)
    def fit(self, X, y=None):
        """Learn mean and covariance of ``X``.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            At least two samples, finite.
        y : None
            Ignored.

        Returns
        -------
        self : Whitening
            The fitted estimator.

        Raises
        ------
        ValueError
            If `n_components` exceeds the number of features, or all samples are equal.
        """
        if self.__sklearn_is_fitted__():
            del self._moments, self._linear_map  # an error below leaves nothing half-fitted
        X = self._validate(X, reset=True, ensure_min_samples=2)
        moments = self._moments_of(X)
        self._linear_map = self._solve(moments)
        self._moments = moments
        return self

    @_fit_context(prefer_skip_nested_validation=True)
    def partial_fit(self, X, y=None):
        """Add the samples of ``X`` to those seen; any split equals one `fit`.

        The eigendecomposition waits until something needs it, so a call costs no more
        than the moments of its batch.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            One sample or more, finite.
        y : None
            Ignored.

        Returns
        -------
        self : Whitening
            The estimator with the samples added.
        """
        first = not self.__sklearn_is_fitted__()
        X = self._validate(X, reset=first, ensure_min_samples=1)
        moments = self._moments_of(X)
        self._moments = moments if first else self._moments.merge(moments)
        self._linear_map = None
        return self

    def merge(self, *others):
        """Add the samples that other whitenings were fitted on.

        The result is that of one `fit` on all samples together, so parts of a corpus can
        be fitted on different machines.

        Parameters
        ----------
        *others : Whitening
            Fitted on vectors of the same width. They stay as they are.

        Returns
        -------
        self : Whitening
            The estimator with the samples added.

        Raises
        ------
        TypeError
            If one of them is not a Whitening.
        ValueError
            If one of them was fitted on another number of features.

        Examples
        --------
        >>> import numpy as np
        >>> from skcalib import Whitening
        >>> X = np.random.default_rng(0).normal(size=(100, 4))
        >>> parts = Whitening().fit(X[:30]).merge(Whitening().fit(X[30:]))
        >>> np.allclose(parts.transform(X), Whitening().fit_transform(X))
        True
        """
        check_is_fitted(self)
        merged = self._moments
        for other in others:
            if not isinstance(other, Whitening):
                raise TypeError(
                    f"merge got a {type(other).__name__}; it takes fitted Whitening objects."
                )
            check_is_fitted(other)
            if other.n_features_in_ != self.n_features_in_:
                raise ValueError(
                    f"merge got a Whitening fitted on {other.n_features_in_} features; "
                    f"this one has {self.n_features_in_}. Fit both on vectors of one width."
                )
            merged = merged.merge(other._moments)
        self._moments = merged
        self._linear_map = None
        return self

    def transform(self, X):
        """Whiten ``X``: ``(x - mean_) W``.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Vectors to map.

        Returns
        -------
        X_new : ndarray of shape (n_samples, n_components_)
            Whitened vectors, float32 for float32 input and float64 otherwise.
        """
        check_is_fitted(self)
        X = self._validate(X, reset=False)
        linear = self._map
        work = X.dtype if linear.float32_is_safe else np.float64
        projection = linear.projection.astype(work, copy=False)
        out = np.empty((X.shape[0], projection.shape[1]), dtype=X.dtype)
        for rows in row_chunks(*X.shape):
            # The subtraction itself is in float64 always: where the mean is large beside
            # the spread, float32 would lose the digits that whitening goes on to amplify.
            centred = np.subtract(X[rows], self.mean_).astype(work, copy=False)
            out[rows] = centred @ projection
        return out

    def inverse_transform(self, X):
        """Map whitened vectors back, as far as the kept dimensions determine them.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_components_)
            Whitened vectors.

        Returns
        -------
        X_original : ndarray of shape (n_samples, n_features)
            Vectors in the input space, float32 for float32 input and float64 otherwise.
        """
        check_is_fitted(self)
        X = check_array(X, dtype=[np.float64, np.float32], input_name="X")
        if X.shape[1] != self.n_components_:
            raise ValueError(
                f"X has {X.shape[1]} columns; inverse_transform takes whitened vectors of "
                f"n_components_={self.n_components_} columns, as transform returns them."
            )
        back = self._map.power_map(self._map.power / 2).T
        return (X.astype(np.float64, copy=False) @ back + self.mean_).astype(X.dtype)

    def get_covariance(self):
        """Covariance in use, ``(1 - shrinkage_) Σ + shrinkage_ tr(Σ)/d I``.

        Returns
        -------
        covariance : ndarray of shape (n_features, n_features)
            Float64, of all features whatever `n_components`.
        """
        check_is_fitted(self)
        covariance = self._moments.covariance()
        target = self._map.total_variance / len(covariance) * np.eye(len(covariance))
        return (1 - self.shrinkage_) * covariance + self.shrinkage_ * target

    def get_precision(self):
        """Inverse of the covariance in use; its pseudo-inverse below full rank.

        Returns
        -------
        precision : ndarray of shape (n_features, n_features)
            Float64, of all features whatever `n_components`.
        """
        check_is_fitted(self)
        linear = self._map
        return (linear.basis / linear.regularised) @ linear.basis.T

    def _validate(self, X, *, reset, ensure_min_samples=1):
        return validate_data(
            self,
            X,
            dtype=[np.float64, np.float32],
            reset=reset,
            ensure_min_samples=ensure_min_samples,
        )

    def _moments_of(self, X):
        """Moments of ``X``, after what can be checked without them."""
        d = X.shape[1]
        if isinstance(self.n_components, Integral) and self.n_components > d:
            raise ValueError(
                f"n_components={self.n_components} exceeds n_features={d}. Give an int up "
                f"to {d}, a share of the variance in (0, 1), or None for all of the rank."
            )
        if self.method == "zca" and self.n_components is not None:
            raise ValueError(
                f"method='zca' got n_components={self.n_components!r}; it rotates back to "
                "the input space and keeps its width. Set n_components=None, or "
                "method='pca' to reduce dimensions."
            )
        with np.errstate(over="ignore", invalid="ignore"):
            moments = Moments.from_array(X)
        if not np.isfinite(moments.quartic):
            raise ValueError(
                f"The moments of X overflow float64: its largest magnitude is "
                f"{np.abs(X).max():.3g}. Scale X down first."
            )
        return moments

    def _solve(self, moments):
        """Eigendecomposition of the covariance, and which part of it is kept."""
        n, d = moments.n, len(moments.mean)
        if n < 2:
            raise ValueError(
                f"Whitening has seen n_samples={n}; a covariance needs at least 2. "
                "Fit on more samples."
            )
        variance, basis = decompose(moments.covariance())
        total_variance = float(variance.sum())
        shrinkage = self.shrinkage
        if shrinkage == "auto":
            shrinkage = ledoit_wolf_shrinkage(moments)
        regularised = (1 - shrinkage) * variance + shrinkage * total_variance / d
        tol = d * np.finfo(np.float64).eps if self.tol is None else self.tol
        rank = int(np.count_nonzero(regularised > tol * regularised[0]))
        if shrinkage == 0:
            rank = min(rank, n - 1)  # centring uses up one sample
        if rank == 0:
            raise ValueError(
                f"All {n} samples are equal: there is no direction to whiten. "
                "Fit on samples that differ."
            )
        n_components = self._width(variance, total_variance, rank, n)
        return WhiteningMap(
            basis=np.ascontiguousarray(basis[:, :rank]),
            variance=variance[:rank],
            regularised=regularised[:rank],
            total_variance=total_variance,
            shrinkage=float(shrinkage),
            power=float(self.power),
            n_components=n_components,
        )

    def _width(self, variance, total_variance, rank, n):
        """Resolve `n_components`; None for "zca", which keeps the input's width."""
        d = len(variance)
        surplus = isinstance(self.n_components, Integral) and self.n_components > rank
        too_few = self.n_components is None and rank < d and n <= d
        if surplus or too_few:
            warnings.warn(
                f"n_samples={n} of n_features={d} have rank {rank}"
                + (
                    f", below n_components={self.n_components}: the surplus columns are zero."
                    if surplus
                    else ": directions outside the sample are dropped."
                )
                + " Fit on more samples, keep fewer components, or use shrinkage='auto'.",
                UserWarning,
                stacklevel=4,
            )
        if self.method == "zca":
            return None
        if self.n_components is None:
            return rank
        if isinstance(self.n_components, Integral):
            return int(self.n_components)
        share = np.cumsum(variance) / total_variance
        return min(rank, int(np.searchsorted(share, self.n_components)) + 1)

    @property
    def mean_(self):
        return self._fitted("mean_")._moments.mean

    @property
    def n_samples_seen_(self):
        return self._fitted("n_samples_seen_")._moments.n

    @property
    def components_(self):
        linear = self._fitted("components_")._map
        return np.pad(linear.basis[:, : linear.kept].T, ((0, linear.surplus), (0, 0)))

    @property
    def explained_variance_(self):
        linear = self._fitted("explained_variance_")._map
        return np.pad(linear.variance[: linear.kept], (0, linear.surplus))

    @property
    def explained_variance_ratio_(self):
        self._fitted("explained_variance_ratio_")
        return self.explained_variance_ / self._map.total_variance

    @property
    def n_components_(self):
        return self._fitted("n_components_")._map.width

    @property
    def rank_(self):
        return self._fitted("rank_")._map.rank

    @property
    def shrinkage_(self):
        return self._fitted("shrinkage_")._map.shrinkage

    def _fitted(self, attribute):
        """Return self if fitted, else fail as a missing attribute does."""
        if not self.__sklearn_is_fitted__():
            raise AttributeError(
                f"{type(self).__name__} has no attribute {attribute!r} before fit."
            )
        return self

    @property
    def _map(self):
        if self._linear_map is None:
            self._linear_map = self._solve(self._moments)
        return self._linear_map

    @property
    def _n_features_out(self):
        return self.n_components_

    def __sklearn_is_fitted__(self):
        return hasattr(self, "_moments")

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.transformer_tags.preserves_dtype = ["float64", "float32"]
        return tags
