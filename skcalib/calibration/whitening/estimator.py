"""Whitening: the linear map that spreads vectors evenly in all directions (BERT-whitening)."""

from copy import copy
from dataclasses import KW_ONLY, replace
from numbers import Integral, Real
from operator import attrgetter
from typing import Any, Self

import numpy as np
from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin
from sklearn.utils.validation import check_is_fitted

from skcalib.base import FloatTransformer, VersionedState, estimator, from_scratch
from skcalib.calibration.map import AffineMap
from skcalib.calibration.merging import MergingFit
from skcalib.calibration.moments import Moments
from skcalib.calibration.noise import MANY, Regularization
from skcalib.calibration.whitening.solver import WhiteningMap, solve, warn_of_sample
from skcalib.compat import (
    Interval,
    RealNotInt,
    StrOptions,
    _fit_context,
    check_params,
)
from skcalib.inputs.containers import is_dask
from skcalib.inputs.vectors import check_rows, check_sample_weight, rows_of, warn_of_lengths
from skcalib.process.caches import moments_of
from skcalib.process.dask import check_lazy


@estimator
class Whitening(
    MergingFit,
    ClassNamePrefixFeaturesOutMixin,
    FloatTransformer,
    VersionedState,
    BaseEstimator,
):
    """Whiten vectors: exactly, as the paper does, or with ``noise="auto"``, as far as it helps.

    Vectors are centered and mapped by ``W = U g(Λ)``, where ``U Λ Uᵀ`` is the
    eigendecomposition of their covariance and ``g(λ) = λ^(-1/2)``; the first ``n_components``
    columns are kept (BERT-whitening [1]_, algorithm 1). Their mean is then zero, their
    covariance the identity, and all directions have equal weight in a cosine. For graded
    similarity of a language model that was never trained for it, this gains much; on an encoder
    that was trained for similarity it loses.

    ``Whitening(noise="auto")`` recognizes by the mean vector which of the two it is. On an
    output that was trained for cosine similarity it only subtracts most of the mean. On other
    vectors it flattens the few directions that hold most of the variance, and leaves the weak
    ones as they are. If you know how many groups of texts there are,
    ``Whitening(noise="auto", n_groups=20)`` gains most, and ``n_groups="many"`` is for graded
    similarity.

    Parameters
    ----------
    n_components : int, float or None, default=None
        Number of leading dimensions to keep. A float in (0, 1) keeps the fewest that explain
        that share of the variance; None keeps the numerical rank, or all at power 0 without
        noise. With "pca" an int above the rank adds columns of zeros, with a warning.
    method : {"pca", "zca", "rotated"}, default="pca"
        "pca" returns coordinates along the principal axes, by decreasing variance. "zca"
        rotates the kept axes back, ``W = U g(Λ) Uᵀ``: as close to the input as a whitened
        vector can be [2]_, always ``n_features_in_`` wide. "rotated" turns the coordinates of
        "pca" by a random rotation, the same for every fit of that width. Cosines do not change,
        and every column gets a share of the variance, which int8 and binary codes need.
    centering : float in [0, 1] or "auto", default="auto"
        Share of the mean that is subtracted (beta in Su's generalization of the method [4]_).
        "auto" is 1, the whole mean. For a trained output with ``noise="auto"`` and no number of
        groups it is 0.8, or more if the vectors would keep an average cosine above 0.2. A group
        that holds most of the sample lies in the direction of the mean, and the fifth that is
        kept preserves this direction.
    power : float in [0, 1] or "auto", default="auto"
        1 whitens, 0 only centers and rotates (PCA); values between them whiten partly (gamma in
        [4]_). "auto" is 1, but 0 if `noise` is "auto" and the vectors are an output trained for
        cosine similarity. With 0 and no noise, directions without variance in the sample pass
        unchanged, even with few samples.
    noise : float in [0, 1e9] or "auto", default=0.0
        Regularization: the assumed variance of noise in every direction, as a share of the
        total variance. "auto" chooses power, centering and noise from mean and covariance, and
        for vectors that were not trained for cosines also a level to which stronger directions
        are flattened, see Notes. Pass vectors as an encoder returns them: a rotation removes
        the outlier columns, by which "auto" recognizes raw vectors.
    n_groups : int, "many" or None, default=None
        Approximate number of groups that the vectors should distinguish, such as topics,
        intents or clusters. It needs ``noise="auto"`` and ``power="auto"``. For a trained
        output, the fewer groups, the more noise; otherwise level and noise are the eigenvalue
        with twice the number of groups above it, itself included. "many" is for graded
        similarity, where each text is a group of its own: a trained output is treated as with
        None, and of other vectors nearly all directions are flattened, of few samples half a
        direction for each.
    shrinkage : float in [0, 1] or "auto", default=0.0
        Weight of the scaled identity in the covariance,
        ``(1 - shrinkage) Σ + shrinkage tr(Σ)/d I``, so that every direction is usable with
        fewer samples than features. "auto" is the estimate of Ledoit and Wolf [3]_.
    tol : float or None, default=None
        Eigenvalues up to ``tol`` times the largest count as zero. None means ``d * eps`` of
        float64, the rounding error of the decomposition; for float32 vectors also the variance
        that their rounding explains, ``(eps/2)² Σ_j u_j² E[x_j²]`` along an axis u.

    Attributes
    ----------
    mean_ : ndarray of shape (n_features,)
        Mean of the sample.
    components_ : ndarray of shape (k, n_features)
        Principal axes, unit rows in order of decreasing variance. In each the entry of
        largest magnitude is positive. Here and below k is the number of kept axes:
        `n_components_` for "pca"; else the resolved `n_components`, at most `rank_`.
    explained_variance_ : ndarray of shape (k,)
        Variance of the sample along each axis, before shrinkage (unbiased, ``n - 1``).
    explained_variance_ratio_ : ndarray of shape (k,)
        The same as a share of the total variance.
    n_components_ : int
        Width of the output.
    rank_ : int
        Numerical rank of the (shrunk) covariance.
    centering_ : float
        Share of the mean that is subtracted.
    shrinkage_ : float
        Shrinkage in use.
    noise_ : float
        Noise in use.
    power_ : float
        Power in use.
    level_ : float
        Variance that is added to each eigenvalue; 0 unless `noise` is "auto" and the vectors
        are no trained output.
    n_samples_seen_ : int or float
        Number of samples fitted on, over all calls of `partial_fit`; the sum of their weights
        if weights were given.
    moments_ : Moments
        Sums over the sample: ``n``, ``mean``, ``scatter``; they add up over parts by ``merge``.
    map_ : WhiteningMap
        The map by all axes, including those that `n_components` drops.
    parameters_ : dict
        The parameters of the fit, which `merge` keeps.
    n_features_in_, feature_names_in_
        Number of features seen during fit, and their names when all are strings.

    Notes
    -----
    With `noise` the gain becomes ``g(λ) = λ^(-power/2) λ / (λ + noise tr(Σ))``. Where "auto"
    finds vectors that were not trained for cosines, it is ``g(λ) = (λ + level)^(-1/2)``. The
    level is the largest eigenvalue beyond the first hundredth, so that a few massive directions
    have no influence on it. Directions stronger than the level become equal, weaker ones keep
    their proportions, as with Soft-ZCA [5]_.

    `transform` keeps float32 and float64. Where float32 would lose digits, as for an
    ill-conditioned sample, it computes in float64.

    Each `partial_fit` and `merge` decomposes the covariance of all samples so far; the first
    use of the result warns of few samples. `merge` keeps the parameters of the last fit.

    With ``sklearn.config_context(array_api_dispatch=True)``, arrays of other libraries, such as
    torch tensors on a GPU, are mapped on their device. Fitted attributes are NumPy arrays, so
    that a fit on a GPU also maps arrays of NumPy. scikit-learn's tag of array API support
    requires an error there, so it is not set.

    References
    ----------
    .. [1] Su, Cao, Liu & Ou (2021), "Whitening Sentence Representations for Better
           Semantics and Faster Retrieval", arXiv:2103.15316.
    .. [2] Kessy, Lewin & Strimmer (2018), "Optimal Whitening and Decorrelation", The
           American Statistician 72(4).
    .. [3] Ledoit & Wolf (2004), "A well-conditioned estimator for large-dimensional
           covariance matrices", Journal of Multivariate Analysis 88(2).
    .. [4] Su (2022), kexue.fm/archives/9079.
    .. [5] Diera, Galke & Scherp (2024), "Isotropy Matters: Soft-ZCA Whitening of Embeddings for
           Semantic Code Search", arXiv:2411.17538.

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

    n_components: int | float | None = None
    _: KW_ONLY
    method: str = "pca"
    centering: float | str = "auto"
    power: float | str = "auto"
    noise: float | str = 0.0
    n_groups: int | str | None = None
    shrinkage: float | str = 0.0
    tol: float | None = None

    _parameter_constraints = {
        "n_components": [
            Interval(Integral, 1, None, closed="left"),
            Interval(
                RealNotInt, 0, 1, closed="neither", hint=" (for 'auto' see the parameter noise)"
            ),
            None,
        ],
        "method": [StrOptions({"pca", "zca", "rotated"})],
        "centering": [Interval(Real, 0, 1, closed="both"), StrOptions({"auto"})],
        "power": [Interval(Real, 0, 1, closed="both"), StrOptions({"auto"})],
        "noise": [Interval(Real, 0, 1e9, closed="both"), StrOptions({"auto"})],
        "n_groups": [Interval(Integral, 2, None, closed="left"), StrOptions({MANY}), None],
        "shrinkage": [Interval(Real, 0, 1, closed="both"), StrOptions({"auto"})],
        "tol": [Interval(Real, 0, 1, closed="left"), None],
    }
    _state_version = 15
    _learned = ("_map",)
    n_samples_seen_ = property(attrgetter("moments_.n"), doc="Samples, or their weight.")
    n_components_ = property(attrgetter("map_.width"), doc="Width of the output.")
    components_ = property(attrgetter("map_.components"), doc="Principal axes in rows.")
    explained_variance_ = property(attrgetter("map_.variance_kept"), doc="Variance along them.")
    rank_ = property(attrgetter("map_.rank"), doc="Numerical rank of the covariance.")
    centering_ = property(attrgetter("map_.regularized.centering"), doc="Share of the mean.")
    shrinkage_ = property(attrgetter("map_.regularized.shrinkage"), doc="Shrinkage in use.")
    noise_ = property(attrgetter("map_.regularized.noise"), doc="Noise in use.")
    power_ = property(attrgetter("map_.regularized.power"), doc="Power in use.")
    level_ = property(attrgetter("map_.regularized.level"), doc="Level in use.")

    @from_scratch
    @_fit_context(prefer_skip_nested_validation=True)
    def fit(self, X: Any, y: Any = None, sample_weight: Any = None) -> Self:
        """Learn mean and covariance of ``X``.

        Parameters
        ----------
        X : array-like or dask array of shape (n_samples, n_features)
            At least two samples, finite. A dask array is never gathered.
        y : None
            Ignored.
        sample_weight : array-like of shape (n_samples,), default=None
            How many times each sample counts: a weight of 2 is the sample twice. The
            covariance is divided by the sum of the weights minus 1.

        Returns
        -------
        self : Whitening

        Raises
        ------
        ValueError
            If `n_components` exceeds the number of features, `n_groups` is set with a numeric
            `noise` or `power`, all samples are equal, or the weights sum to 1 or less.
        """
        X = self._sample(X, reset=True)
        if sample_weight is not None and not is_dask(X):
            sample_weight = check_sample_weight(sample_weight, X)
        moments = moments_of(Moments.of, X, sample_weight)
        self._learn(moments, self.get_params(deep=False))
        self._fitted_map()  # raises now what the map would raise when it is used
        return self

    @_fit_context(prefer_skip_nested_validation=True)
    def partial_fit(self, X: Any, y: Any = None, sample_weight: Any = None) -> Self:
        """Add the samples of ``X`` to those seen; any split equals one `fit`.

        The map is computed when it is first used.

        Parameters
        ----------
        X, y, sample_weight
            As for `fit`; one sample is enough.

        Returns
        -------
        self : Whitening
        """
        check_params(self)  # scikit-learn checks those of the first call only
        # Refuses parameters that exclude each other now, though the map is computed later.
        Regularization(noise=self.noise, power=self.power, n_groups=self.n_groups)
        first = not self.__sklearn_is_fitted__()
        X = self._sample(X, reset=first)
        if not first:
            warn_of_lengths(X, self.moments_.mean_square)
        moments = Moments.of(X, sample_weight)
        moments = moments if first else self.moments_.merge(moments)
        return self._learn(moments, self.get_params(deep=False))

    def transform(self, X: Any) -> Any:
        """Whiten ``X``: ``(x - centering_ * mean_) W``.

        Parameters
        ----------
        X : array-like or dask array of shape (n_samples, n_features)

        Returns
        -------
        X_new : ndarray of shape ``(n_samples, n_components_)``
            float32 for float32 input and float64 otherwise; a lazy dask array for a dask
            array, a tensor for a tensor with array API dispatch.
        """
        linear = self.linear_map()
        if is_dask(X):
            check_lazy(self)
        X = rows_of(self, X, reset=False)
        warn_of_lengths(X, self.moments_.mean_square)
        return linear.apply(X)

    def linear_map(self) -> AffineMap:
        """Return the map that `transform` applies.

        Returns
        -------
        linear : AffineMap
            With ``mean``, ``projection`` (W) and ``bias``.
        """
        return self._fitted_map().affine

    def inverse_transform(self, X: Any) -> Any:
        """Map whitened vectors back, as far as the kept dimensions determine them.

        Parameters
        ----------
        X : array-like of shape ``(n_samples, n_components_)``

        Returns
        -------
        X_original : ndarray of shape (n_samples, n_features)
            float32 for float32 input and float64 otherwise.
        """
        linear, X = self._fitted_map(), check_rows(X)
        width = linear.width
        if X.shape[1] != width:
            raise ValueError(
                f"X has {X.shape[1]} columns; inverse_transform expects whitened vectors of "
                f"n_components_={width} columns, as transform returns them."
            )
        return linear.inverse.apply(X)

    def get_covariance(self) -> np.ndarray:
        """Covariance in use, ``(1 - shrinkage_) Σ + shrinkage_ tr(Σ)/d I``.

        Returns
        -------
        covariance : ndarray of shape (n_features, n_features)
            Float64, of all features regardless of `n_components`.
        """
        from sklearn.covariance import shrunk_covariance

        linear = self._fitted_map()
        return shrunk_covariance(self.moments_.covariance(), linear.regularized.shrinkage)

    def recentered(self, X: Any) -> Self:
        """Return a copy with the mean of new vectors and the same map.

        Parameters
        ----------
        X : array-like or dask array of shape (n_samples, n_features)
            New vectors, a few hundred of the kind that will be mapped.

        Returns
        -------
        whitening : Whitening
            Fitted, with the mean of `X` and all else unchanged. Do not compare its vectors with
            those of the original.

        Examples
        --------
        >>> import numpy as np
        >>> from skcalib import Whitening
        >>> X = np.random.default_rng(0).normal(size=(1000, 4))
        >>> whitening = Whitening().fit(X)
        >>> np.allclose(whitening.recentered(X + 5).transform(X + 5), whitening.transform(X))
        True
        """
        linear, moved = self._fitted_map(), copy(self)
        mean = Moments.of(rows_of(self, X, reset=False)).mean
        moved.moments_ = replace(self.moments_, mean=mean)
        moved._map = replace(linear, mean=mean)
        return moved

    @property
    def mean_(self) -> np.ndarray:
        """Mean of the sample."""
        return self.moments_.mean.copy()

    @property
    def explained_variance_ratio_(self) -> np.ndarray:
        """The same variance as a share of the total."""
        return self.map_.variance_kept / self.map_.regularized.total

    @property
    def _n_features_out(self) -> int:
        return self.map_.width

    def _sample(self, X: Any, *, reset: bool) -> Any:
        """Check a sample to learn from."""
        X = rows_of(self, X, reset=reset)
        d = X.shape[1]
        if self.n_components is not None and self.n_components > d:
            raise ValueError(
                f"n_components={self.n_components} exceeds n_features={d}. Give an int up "
                f"to {d}, a share of the variance in (0, 1), or None for the full rank."
            )
        return X

    def _learn(self, moments: Moments, parameters: dict[str, Any] | None = None) -> Self:
        self.moments_ = moments
        self.parameters_: dict[str, Any] = parameters or self.parameters_
        self._map: WhiteningMap | None = None
        return self

    def _fitted_map(self) -> WhiteningMap:
        """Return the map; at its first use it is computed, and warns if samples are few."""
        check_is_fitted(self, "moments_")
        if self._map is None:
            self._map = solve(self.moments_, **self.parameters_)
            warn_of_sample(self.moments_.n, self._map)
        return self._map

    @property
    def map_(self) -> WhiteningMap:
        """The map by axes; no attribute while all samples seen are equal."""
        try:
            return self._fitted_map()
        except ValueError as error:
            raise AttributeError(f"This {type(self).__name__} has no map: {error}") from None

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.transformer_tags.calibrates = True
        return tags
