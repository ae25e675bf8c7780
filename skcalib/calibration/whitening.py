"""Whitening: the linear map that spreads vectors evenly in all directions (BERT-whitening)."""

from __future__ import annotations

from copy import copy
from dataclasses import dataclass, fields, replace
from numbers import Integral, Real
from operator import attrgetter
from typing import Any, Self

import numpy as np
from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin
from sklearn.utils.validation import check_is_fitted, validate_data

from skcalib.base import FloatTransformer, VersionedState, warn
from skcalib.calibration.map import LinearMap
from skcalib.calibration.moments import Moments, rounding_error
from skcalib.calibration.strength import (
    MANY,
    Strength,
    check_groups,
    spectrum_of,
    warn_of_massive_column,
    warn_of_verdict,
)
from skcalib.callbacks import fit_task
from skcalib.compat import (
    Interval,
    RealNotInt,
    StrOptions,
    _fit_context,
    check_params,
)
from skcalib.inputs.containers import check_dask, is_dask
from skcalib.inputs.vectors import check_vectors, checked_rows, warn_of_lengths
from skcalib.process.caches import moments_of
from skcalib.process.forks import cached_property

# With 5 the smallest estimate of equal eigenvalues is 0.3 of them (Marchenko & Pastur).
SAMPLES_PER_FEATURE = 5


class Whitening(
    ClassNamePrefixFeaturesOutMixin, FloatTransformer, VersionedState, BaseEstimator
):
    """Whiten vectors: exactly, as the paper does, or with ``power="auto"``, as far as it helps.

    Vectors are centered and mapped by ``W = U g(Λ)``, where ``U Λ Uᵀ`` is the
    eigendecomposition of their covariance and ``g(λ) = λ^(-1/2)``; the first ``n_components``
    columns are kept (BERT-whitening [1]_, algorithm 1). Their mean is then zero, their
    covariance the identity, and all directions have equal weight in a cosine. Graded similarity
    gains much by it if the language model was never trained for similarity, and loses if it
    was; a classifier loses on any model.

    ``power="auto"`` recognizes which of the two it is, so that no task loses. From an output
    that was trained for cosine similarity it only subtracts most of the mean. On other vectors
    it reduces the columns and directions that hold most of the variance, and no others.

    Parameters
    ----------
    n_components : int, float or None, default=None
        Number of leading dimensions to keep. A float in (0, 1) keeps the fewest that explain
        that share of the variance; None keeps the numerical rank, or all at power 0 without
        noise. With "pca" an int above the rank adds columns of zeros.
    method : {"pca", "zca", "rotated"}, default="pca"
        "pca" returns coordinates along the principal axes, by decreasing variance. "zca"
        rotates the kept axes back, ``W = U g(Λ) Uᵀ``: as close to the input as a whitened
        vector can be [2]_, and as wide. "rotated" turns the coordinates of "pca" at random, in
        the same way for every fit of that width, so that all columns share the variance, which
        int8 and binary codes need.
    centering : float in [0, 1] or "auto", default="auto"
        Share of the mean that is subtracted (beta in [4]_). "auto" is 1; for a trained output
        with ``power="auto"`` and no number of groups 0.8, or more if the vectors would keep an
        average cosine above 0.2.
    power : float in [0, 1] or "auto", default=1.0
        1 whitens, 0 only centers and rotates (PCA); values between them whiten partly (gamma in
        [4]_). "auto" chooses for you, see Notes. It recognizes raw vectors by outlier columns,
        which a rotation or scaling removes, so pass vectors as an encoder returns them.
    noise : float in [0, 1e9], default=0.0
        The assumed variance of noise in every direction, as a share of the total variance. The
        gain becomes ``g(λ) = λ^(-power/2) λ / (λ + noise tr(Σ))``.
    n_groups : int, "many" or None, default=None
        With ``power="auto"``, roughly how many topics, intents or clusters the vectors should
        distinguish. "many" is for graded similarity, where each text is a group of its own.
    shrinkage : float in [0, 1] or "auto", default=0.0
        Weight of the identity in ``(1 - shrinkage) Σ + shrinkage tr(Σ)/d I``, which makes every
        direction usable with fewer samples than features. "auto" is an estimate of it [3]_.

    Attributes
    ----------
    mean_ : ndarray of shape (n_features,)
        Mean of the sample.
    components_ : ndarray of shape (k, n_features)
        The kept principal axes, unit rows in order of decreasing variance. In each the entry of
        largest magnitude is positive.
    explained_variance_ : ndarray of shape (k,)
        Variance of the sample along each axis, before shrinkage (unbiased, ``n - 1``).
    explained_variance_ratio_ : ndarray of shape (k,)
        The same as a share of the total variance.
    n_components_ : int
        Width of the output.
    rank_ : int
        Numerical rank of the (shrunk) covariance.
    centering_, shrinkage_, noise_, power_ : float
        Values in use.
    level_ : float
        Variance added to each eigenvalue: 0, or see Notes.
    scale_ : ndarray of shape (n_features,)
        What each column is divided by first: 1, or see Notes.
    n_samples_seen_ : int
        Number of samples, over all calls of `partial_fit`.
    moments_ : Moments
        The sums ``n``, ``mean`` and ``scatter`` over the sample.
    parameters_ : dict
        The parameters of the last fit, which `merge` keeps.
    n_features_in_, feature_names_in_
        Number of features seen during fit, and their names when all are strings.

    Notes
    -----
    Of vectors that were not trained for cosines, ``power="auto"`` first divides each column by
    ``(σ² + median)^(1/2)``, with its variance and the median of all columns, since massive
    activations are columns. Then ``g(λ) = (λ + level)^(-power/2)``, as in Soft-ZCA [5]_. The
    page on mathematics has level and power, and what ``n_groups`` changes.

    An eigenvalue counts as zero up to the rounding error of the decomposition, and for float32
    vectors up to the variance that their rounding explains.

    References
    ----------
    .. [1] Su, Cao, Liu & Ou (2021), "Whitening Sentence Representations for Better
           Semantics and Faster Retrieval", arXiv:2103.15316.
    .. [2] Kessy, Lewin & Strimmer (2018), "Optimal Whitening and Decorrelation", The
           American Statistician 72(4).
    .. [3] Ledoit & Wolf (2004), "A well-conditioned estimator for large-dimensional
           covariance matrices", Journal of Multivariate Analysis 88(2).
    .. [4] Su (2022), kexue.fm/archives/9079, a generalization of [1]_.
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

    _parameter_constraints = {
        "n_components": [
            Interval(Integral, 1, None, closed="left"),
            Interval(RealNotInt, 0, 1, closed="neither"),
            None,
        ],
        "method": [StrOptions({"pca", "zca", "rotated"})],
        "centering": [Interval(Real, 0, 1, closed="both"), StrOptions({"auto"})],
        "power": [Interval(Real, 0, 1, closed="both"), StrOptions({"auto"})],
        "noise": [Interval(Real, 0, 1e9, closed="both")],
        "n_groups": [Interval(Integral, 2, None, closed="left"), StrOptions({MANY}), None],
        "shrinkage": [Interval(Real, 0, 1, closed="both"), StrOptions({"auto"})],
    }
    _state_version = 18
    _flattens = False  # whether a power in figures takes the level of "auto"
    _learned = ("_solution",)
    n_samples_seen_ = property(attrgetter("moments_.n"), doc="Number of samples.")
    n_components_ = property(attrgetter("_axes.width"), doc="Width of the output.")
    _n_features_out = n_components_
    rank_ = property(attrgetter("_axes.rank"), doc="Numerical rank of the covariance.")
    centering_ = property(attrgetter("_axes.strength.centering"), doc="Share of the mean.")
    shrinkage_ = property(attrgetter("_axes.strength.shrinkage"), doc="Shrinkage in use.")
    noise_ = property(attrgetter("_axes.strength.noise"), doc="Noise in use.")
    power_ = property(attrgetter("_axes.strength.power"), doc="Power in use.")
    level_ = property(attrgetter("_axes.strength.level"), doc="Level in use.")
    scale_ = property(attrgetter("_axes.strength.scale"), doc="What divides each column.")

    def __init__(
        self,
        n_components: int | float | None = None,
        *,
        method: str = "pca",
        centering: float | str = "auto",
        power: float | str = 1.0,
        noise: float = 0.0,
        n_groups: int | str | None = None,
        shrinkage: float | str = 0.0,
    ) -> None:
        self.n_components = n_components
        self.method = method
        self.centering = centering
        self.power = power
        self.noise = noise
        self.n_groups = n_groups
        self.shrinkage = shrinkage

    @fit_task(prefer_skip_nested_validation=True)
    def fit(self, X: Any, y: Any = None) -> Self:
        """Learn the whitening of the samples ``X``.

        Parameters
        ----------
        X : array-like or dask array of shape (n_samples, n_features)
            At least two different samples. A dask array is reduced on its cluster.
        y : None
            Ignored.

        Returns
        -------
        self : Whitening

        Raises
        ------
        ValueError
            If `n_components` exceeds the number of features, `n_groups` is set without
            ``power="auto"``, or all samples are equal.
        """
        X = self._sample(X, reset=True)
        moments = Moments.of_dask(X) if is_dask(X) else moments_of(Moments.of, X)
        self._learn(moments, self.get_params(deep=False))
        self.linear_map()  # raises now what it would raise when it is used
        return self

    @_fit_context(prefer_skip_nested_validation=True)
    def partial_fit(self, X: Any, y: Any = None) -> Self:
        """Add the samples of ``X`` to those seen; any split equals one `fit`.

        The map is computed when it is first used, with a warning if the samples are few.

        Parameters
        ----------
        X : array-like or dask array of shape (n_samples, n_features)
            One sample is enough.
        y : None
            Ignored.

        Returns
        -------
        self : Whitening
        """
        check_params(self)  # scikit-learn checks those of the first call only
        check_groups(self.power, self.noise, self.n_groups)
        first = not self.__sklearn_is_fitted__()
        X = self._sample(X, reset=first)
        if not first:
            warn_of_lengths(X, self.moments_.mean_square)
        moments = Moments.of_dask(X) if is_dask(X) else Moments.of(X)
        moments = moments if first else self.moments_.merge(moments)
        return self._learn(moments, self.get_params(deep=False))

    def merge(self, *others: Self) -> Self:
        """Return a new whitening, fitted on the samples of this one and of others.

        Parameters
        ----------
        *others : Whitening
            Fitted with the same parameters, on the same features in the same order.

        Returns
        -------
        merged : Whitening

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
        moments = self.moments_
        for other in others:
            check_is_fitted(other)
            if other.get_params() != self.get_params():
                raise ValueError(
                    f"merge got {other!r}; this one is {self!r}. Give both the same "
                    "parameters: other.set_params(**this.get_params()) needs no second fit."
                )
            if other._feature_names() != self._feature_names():
                raise ValueError(
                    f"merge got a Whitening of {other.n_features_in_} features; this one has "
                    f"{self.n_features_in_}, of other names or in another order. Fit both on "
                    "the same columns in the same order."
                )
            moments = moments.merge(other.moments_)
        return copy(self)._learn(moments)

    def transform(self, X: Any) -> np.ndarray:
        """Whiten ``X``: ``(x - centering_ * mean_) W``.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)

        Returns
        -------
        X_new : ndarray of shape ``(n_samples, n_components_)``
            float32 for float32 input and float64 otherwise.
        """
        linear = self.linear_map()
        X = checked_rows(self, X, reset=False)
        warn_of_lengths(X, self.moments_.mean_square)
        return linear.apply(X)

    def linear_map(self) -> LinearMap:
        """Return the map that `transform` applies.

        Returns
        -------
        linear : LinearMap
            With ``mean``, ``projection`` (W) and ``bias``.
        """
        return self._axes.linear

    def inverse_transform(self, X: Any) -> np.ndarray:
        """Map whitened vectors back, as far as the kept dimensions determine them.

        Parameters
        ----------
        X : array-like of shape ``(n_samples, n_components_)``

        Returns
        -------
        X_original : ndarray of shape (n_samples, n_features)
            float32 for float32 input and float64 otherwise.
        """
        axes, X = self._axes, check_vectors(X, dtype=[np.float64, np.float32])
        if X.shape[1] != axes.width:
            raise ValueError(
                f"X has {X.shape[1]} columns; inverse_transform expects whitened vectors of "
                f"n_components_={axes.width} columns, as transform returns them."
            )
        return axes.inverse.apply(X)

    @property
    def mean_(self) -> np.ndarray:
        """Mean of the sample."""
        return self.moments_.mean.copy()

    @property
    def components_(self) -> np.ndarray:
        """Principal axes in rows."""
        return self._axes.basis.T.copy()

    @property
    def explained_variance_(self) -> np.ndarray:
        """Variance along the axes."""
        return self._axes.variance.copy()

    @property
    def explained_variance_ratio_(self) -> np.ndarray:
        """The same variance as a share of the total."""
        return self._axes.variance / self._axes.strength.total

    def _sample(self, X: Any, *, reset: bool) -> Any:
        """Check a sample to learn from; a dask array stays one."""
        if is_dask(X):
            check_dask(X)
            validate_data(self, X, reset=reset, skip_check_array=True)
        else:
            X = checked_rows(self, X, reset=reset)
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
        self._solution: Axes | None = None
        return self

    @property
    def _axes(self) -> Axes:
        """The axes; at their first use they are computed, with a warning if needed."""
        check_is_fitted(self)
        if self._solution is None:
            self._solution = solve(self.moments_, flattens=self._flattens, **self.parameters_)
            is_neutral = self.parameters_["power"] == "auto"
            warn_of_sample(self.moments_, self._solution, is_neutral)
        return self._solution

    def _feature_names(self) -> list[Any]:
        """Return the names of the features, or their numbers."""
        return list(getattr(self, "feature_names_in_", range(self.n_features_in_)))

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "moments_")

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.transformer_tags.calibrates = True
        return tags


@dataclass(frozen=True, eq=False)
class Axes:
    """The axes that a whitening keeps, and how much each counts.

    ``W = S⁻¹ U g(Λ)`` with the scales S of the columns, then ``Uᵀ`` for "zca", or a random
    rotation for "rotated".
    """

    mean: np.ndarray  # (d,)
    basis: np.ndarray  # (d, k), eigenvectors U of the covariance, by falling eigenvalue
    variance: np.ndarray  # (k,), eigenvalues of the sample's covariance
    strength: Strength  # the same after shrinkage, Λ, and the parameters in use
    rank: int  # number of axes that the sample determines
    width: int  # number of columns of the output
    method: str

    @cached_property
    def linear(self) -> LinearMap:
        """Return the map, with W of shape (d, width)."""
        W = self._scaled(self.strength.gain()) / self.strength.scale[:, None]
        return LinearMap(self.mean, W, self._of_mean(W))

    @property
    def inverse(self) -> LinearMap:
        """The map back, as far as the axes determine it, by the pseudo-inverse of W."""
        back = self._scaled(1 / self.strength.gain()).T * self.strength.scale
        return LinearMap(self._of_mean(self.linear.projection), back, self.mean)

    def _of_mean(self, W: np.ndarray) -> np.ndarray:
        """Return the image of the mean: zero, unless a share of it is kept."""
        return (1 - self.strength.centering) * (self.mean @ W)

    def _scaled(self, factors: np.ndarray) -> np.ndarray:
        """``U diag(factors)``, rotated by the method."""
        scaled = self.basis * factors
        if self.method == "zca":
            return scaled @ self.basis.T
        if self.method == "rotated":
            drawn = np.random.default_rng(0).normal(size=(self.width, self.width))
            return scaled @ np.linalg.qr(drawn).Q[: len(factors)]
        return scaled

    def __getstate__(self) -> dict[str, Any]:
        # Without the map, which takes as much space as the axes.
        return {field.name: getattr(self, field.name) for field in fields(self)}


def solve(
    moments: Moments,
    *,
    n_components: int | float | None = None,
    method: str = "pca",
    **strength: Any,
) -> Axes:
    """Decide which axes to keep; ``strength`` has the parameters of `spectrum_of`."""
    n = moments.n
    if n < 2:
        raise ValueError(
            f"Whitening has seen n_samples={n}; a covariance needs at least 2. Fit on more "
            "samples."
        )
    variance, basis, used = spectrum_of(moments, **strength)
    eigenvalues = used.eigenvalues
    least = np.maximum(
        rounding_error(eigenvalues), moments.rounding(basis / used.scale[:, None])
    )
    axes = np.flatnonzero(eigenvalues > least)
    if used.shrinkage == 0:
        axes = axes[: n - 1]  # centering uses up one sample
    rank = len(axes)
    if rank == 0:
        raise ValueError(
            f"All {n} samples are equal: there is no direction to whiten. "
            "Fit on samples that differ."
        )
    if used.passes_all:
        # A direction without variance in this sample may have some in the next.
        axes = np.arange(len(basis))
    if n_components is None:
        width = len(axes)
    elif n_components < 1:  # the fewest axes that explain this share
        explained = np.cumsum(variance[axes] / variance.sum())
        width = min(len(axes), int(np.searchsorted(explained, n_components)) + 1)
    else:
        width = int(n_components)
    axes = axes[:width]
    surplus = (0, width - len(axes) if method == "pca" else 0)  # columns of zeros
    return Axes(
        mean=moments.mean,
        basis=np.pad(basis[:, axes], ((0, 0), surplus)),
        variance=np.pad(variance[axes], surplus),
        strength=replace(used, eigenvalues=np.pad(eigenvalues[axes], surplus, mode="edge")),
        rank=rank,
        width=len(basis) if method == "zca" else width,
        method=method,
    )


def warn_of_sample(moments: Moments, axes: Axes, is_neutral: bool) -> None:
    """Warn if a map suffers from too few samples, or one column holds most of the variance."""
    d, used = len(moments.mean), axes.strength
    warn_of_massive_column(moments.variances)
    if is_neutral:
        warn_of_verdict(moments)
    is_bare = used.noise == used.shrinkage == used.level == 0 and used.power > 0
    enough = SAMPLES_PER_FEATURE * d
    if not axes.basis[:, -1].any():
        fault = "The samples have a lower rank than n_components: the surplus columns are zero."
    elif is_bare and moments.n < enough:
        fault = (
            f"There are fewer than {SAMPLES_PER_FEATURE} samples for each of {d} features: "
            "weak directions are mostly sampling error, which whitening amplifies, and "
            "directions outside the sample are dropped."
        )
    else:
        return
    warn(f"{fault} Set power='auto', or fit on {enough} samples or more.")
