"""Whitening: the linear map that makes vectors isotropic (BERT-whitening)."""

from __future__ import annotations

import inspect
import os
from dataclasses import replace
from functools import partial
from numbers import Integral, Real

import numpy as np
from sklearn.base import (
    BaseEstimator,
    ClassNamePrefixFeaturesOutMixin,
    TransformerMixin,
    _fit_context,
)
from sklearn.utils import assert_all_finite
from sklearn.utils._array_api import get_namespace_and_device
from sklearn.utils._param_validation import HasMethods, Interval, RealNotInt, StrOptions
from sklearn.utils.validation import (
    _check_sample_weight,
    check_array,
    check_is_fitted,
    validate_data,
)

from skcalib._dask_moments import dask_moments
from skcalib._dask_rows import check_dask, dask_apply
from skcalib._dask_texts import is_dask
from skcalib._moments import Moments, check_size
from skcalib._persistence import VersionedState
from skcalib._progress import CallbackSupportMixin, fit_task
from skcalib._spectrum import WhiteningMap
from skcalib._spectrum_cache import cache_folder, fingerprint, recall
from skcalib._tensor_moments import tensor_apply, tensor_invert, tensor_moments
from skcalib._whitening_solver import solve

__all__ = ["Whitening"]

# A batch of partial_fit may weigh nothing; newer releases of scikit-learn refuse that.
ALL_ZERO = {"allow_all_zero_weights": True}
if not ALL_ZERO.keys() <= inspect.signature(_check_sample_weight).parameters.keys():
    ALL_ZERO = {}


class Whitening(
    CallbackSupportMixin,
    ClassNamePrefixFeaturesOutMixin,
    TransformerMixin,
    VersionedState,
    BaseEstimator,
):
    """Whiten vectors: zero mean, identity covariance, optionally fewer dimensions.

    The sample is centred and mapped by ``W = U g(Λ)``, where ``U Λ Uᵀ`` is the
    eigendecomposition of its covariance and ``g(λ) = λ^(-1/2)``; the first ``n_components``
    columns are kept (BERT-whitening [1]_, algorithm 1). Cosine similarity of the result weighs
    every direction of the sample alike, where that of raw BERT vectors is dominated by a few.

    Alike means that noise counts as much as signal. Exact whitening, the default, often makes
    search and clustering worse than they were; ``Whitening(noise="auto")`` weighs directions
    by what can be signal in them, and is what to use on texts without labels.

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
        rotates the axes kept back, ``W = U g(Λ) Uᵀ``: as close to the input as a whitened
        vector can be [2]_, always ``n_features_in_`` wide.
    power : float in [0, 1], default=1.0
        1 whitens, 0 only centres and rotates (PCA); values between temper the whitening.
    noise : float >= 0 or "auto", default=0.0
        Variance of the noise that every direction is taken to hold, in units of the mean
        eigenvalue λ̄. The gain becomes ``g(λ) = λ^(-power/2) λ / (λ + noise λ̄)``: whitening
        times a Wiener filter, which fades the weak directions instead of amplifying them.
        "auto" chooses by the mean cosine and the effective rank of the sample (see Notes),
        and shrinks by at least the estimate of Ledoit and Wolf, so that few samples do no
        harm either. It is made for vectors as an encoder returns them: centred or
        standardised ones have lost their mean cosine.
    shrinkage : float in [0, 1] or "auto", default=0.0
        Weight of the scaled identity in the covariance,
        ``(1 - shrinkage) Σ + shrinkage tr(Σ)/d I``. It bounds the amplification of weak
        directions, and makes every direction usable when there are fewer samples than
        features. "auto" is the Ledoit-Wolf estimate [3]_ of the covariance: it corrects
        sampling error, vanishes as samples grow, and is not a choice for similarity.
    tol : float or None, default=None
        Eigenvalues up to ``tol`` times the largest count as zero. None means
        ``d * eps`` of float64, the rounding error of the decomposition.
    memory : None, path-like or joblib.Memory, default=None
        Folder where `fit` keeps moments and eigendecomposition under a hash of its data, so
        that a grid over the parameters above computes them once for each training set. Reading
        back took a fifth of the time of a fit at 384 features and a tenth at 768; below 100
        features there is little to gain. Nothing is pickled there, and a file damaged by
        accident is computed anew; who may write there can forge results, so trust the folder.
        Of a Memory only its location is used. `partial_fit`, dask arrays and tensors do
        without.

    Attributes
    ----------
    mean_ : ndarray of shape (n_features,)
        Mean of the sample.
    components_ : ndarray of shape (k, n_features)
        Principal axes, unit rows in order of decreasing variance. In each the entry of
        largest magnitude is positive. Here and below k is the number of axes kept:
        `n_components_` for "pca"; for "zca", `n_components` resolved and at most `rank_`.
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
    noise_ : float
        Noise in use.
    n_samples_seen_ : int or float
        Number of samples fitted on, over all calls of `partial_fit`; the sum of their
        weights where there were weights.
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
    `transform` keeps float32 and float64. The mean is always subtracted to the accuracy of
    float64; the product with W is done in float32 only where the error it adds stays below
    about 1e-6 of the typical output, which is known after the fit from ``diag(Σ)`` and W, and
    in float64 otherwise. So an ill-conditioned sample costs time, never digits.

    With ``noise="auto"``, ``noise_ = 2.4 (1 - c)^(1/3) min(1, 8 r / d)³``: c is the mean
    cosine of two samples, ``|mean|² / (|mean|² + tr Σ)``, and r the effective rank of the
    spectrum, the exponential of its entropy. The documentation's results tell how this was
    found.

    A dask array is fitted on block by block, on the scheduler that is active, and never
    gathered; `transform` of one is a lazy dask array. With
    ``sklearn.config_context(array_api_dispatch=True)``, arrays of other libraries, such as
    torch tensors on a GPU, are summed up in float64 and mapped on their device; what is fitted
    is kept as NumPy arrays and works on any device.

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
        "noise": [Interval(Real, 0, None, closed="left"), StrOptions({"auto"})],
        "shrinkage": [Interval(Real, 0, 1, closed="both"), StrOptions({"auto"})],
        "tol": [Interval(Real, 0, 1, closed="left"), None],
        "memory": [str, os.PathLike, HasMethods(["cache"]), None],
    }
    _state_version = 3

    _moments: Moments
    _linear_map: WhiteningMap | None

    def __init__(
        self,
        n_components=None,
        *,
        method="pca",
        power=1.0,
        noise=0.0,
        shrinkage=0.0,
        tol=None,
        memory=None,
    ):
        self.n_components = n_components
        self.method = method
        self.power = power
        self.noise = noise
        self.shrinkage = shrinkage
        self.tol = tol
        self.memory = memory

    @_fit_context(prefer_skip_nested_validation=True)
    def fit(self, X, y=None, sample_weight=None):
        """Learn mean and covariance of ``X``.

        Parameters
        ----------
        X : array-like or dask array of shape (n_samples, n_features)
            At least two samples, finite.
        y : None
            Ignored.
        sample_weight : array-like of shape (n_samples,), default=None
            How many times each sample counts: a weight of 2 is the sample twice. The
            covariance is divided by the sum of the weights less 1.

        Returns
        -------
        self : Whitening
            The fitted estimator.

        Raises
        ------
        ValueError
            If `n_components` exceeds the number of features, all samples are equal, or the
            weights sum to 1 or less.
        """
        if self.__sklearn_is_fitted__():
            del self._moments, self._linear_map  # an error below leaves nothing half-fitted
        with fit_task(self, X):
            X = self._validate(X, reset=True, ensure_min_samples=2)
            self._check_width(X.shape[1])
            moments, spectrum = self._fit_moments(X, sample_weight)
            self._linear_map = self._solve(moments, spectrum)
            self._moments = moments
        return self

    @_fit_context(prefer_skip_nested_validation=True)
    def partial_fit(self, X, y=None, sample_weight=None):
        """Add the samples of ``X`` to those seen; any split equals one `fit`.

        The eigendecomposition waits until something needs it, so a call costs no more
        than the moments of its batch.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            One sample or more, finite.
        y : None
            Ignored.
        sample_weight : array-like of shape (n_samples,), default=None
            How many times each sample counts: a weight of 2 is the sample twice. The
            covariance is divided by the sum of the weights less 1.

        Returns
        -------
        self : Whitening
            The estimator with the samples added.
        """
        first = not self.__sklearn_is_fitted__()
        X = self._validate(X, reset=first, ensure_min_samples=1)
        self._check_width(X.shape[1])
        moments = self._moments_of(X, sample_weight)
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
        X : array-like or dask array of shape (n_samples, n_features)
            Vectors to map.

        Returns
        -------
        X_new : ndarray of shape ``(n_samples, n_components_)``
            Whitened vectors, float32 for float32 input and float64 otherwise. A lazy dask
            array for a dask array, and a tensor for a tensor with array API dispatch.
        """
        check_is_fitted(self)
        return self._apply(self._map, self._validate(X, reset=False))

    def inverse_transform(self, X):
        """Map whitened vectors back, as far as the kept dimensions determine them.

        Parameters
        ----------
        X : array-like of shape ``(n_samples, n_components_)``
            Whitened vectors.

        Returns
        -------
        X_original : ndarray of shape (n_samples, n_features)
            Vectors in the input space, float32 for float32 input and float64 otherwise.
        """
        check_is_fitted(self)
        linear = self._map
        xp, is_tensor, device = _namespace(X)
        if not is_dask(X):
            X = check_array(X, dtype=[xp.float64, xp.float32], input_name="X")
        if X.shape[1] != linear.width:
            raise ValueError(
                f"X has {X.shape[1]} columns; inverse_transform takes whitened vectors of "
                f"n_components_={linear.width} columns, as transform returns them."
            )
        if is_dask(X):
            return dask_apply(linear.invert, X, self.n_features_in_)
        if is_tensor:
            return tensor_invert(linear, X, xp, device)
        return linear.invert(X)

    def to_torch(self):
        """Whitening as a ``torch.nn.Module``.

        Returns
        -------
        module : torch.nn.Module
            Maps tensors of shape (..., n_features), on the device it is moved to, and keeps
            their dtype. The mean is subtracted in float64 before the product. Its weights are
            buffers: they are saved with a model and not trained.

        Examples
        --------
        >>> import numpy as np, torch
        >>> from skcalib import Whitening
        >>> X = np.random.default_rng(0).normal(size=(100, 4)) + 50
        >>> whitening = Whitening(2).fit(X)
        >>> module = whitening.to_torch()
        >>> module
        WhiteningModule(in_features=4, out_features=2)
        >>> np.allclose(module(torch.from_numpy(X)), whitening.transform(X))
        True
        """
        check_is_fitted(self)
        from skcalib._whitening_torch import WhiteningModule

        linear = self._map
        return WhiteningModule(linear.mean, linear.projection, safe=linear.float32_is_safe)

    def to_sentence_transformers(self):
        """Whitening as the last module of a ``SentenceTransformer``.

        Returns
        -------
        dense : sentence_transformers.models.Dense
            With bias, without activation; append it to a model whose vectors this whitening
            was fitted on.

        Raises
        ------
        ImportError
            If sentence-transformers is missing.
        ValueError
            If a map in float32 with the mean in its bias would lose the vectors' digits, by
            more than 1e-5 of a typical entry.
        """
        check_is_fitted(self)
        return _exports().to_sentence_transformers(self._map)

    def to_faiss(self):
        """Whitening as a transform in front of a faiss index.

        Returns
        -------
        transform : faiss.LinearTransform
            With bias, trained; for ``faiss.IndexPreTransform``.

        Raises
        ------
        ImportError
            If faiss is missing.
        ValueError
            If a map in float32 with the mean in its bias would lose the vectors' digits, by
            more than 1e-5 of a typical entry.
        """
        check_is_fitted(self)
        return _exports().to_faiss(self._map)

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

    def mahalanobis(self, X):
        """Squared Mahalanobis distance from the mean, in the kept space.

        A guard for vectors unlike those of the fit, such as single words after sentences:
        vectors of the fit are around `n_components_` away, and few are much farther.

        Parameters
        ----------
        X : array-like or dask array of shape (n_samples, n_features)
            Vectors, as `transform` takes them.

        Returns
        -------
        distance : ndarray of shape (n_samples,)
            Of the kind that `transform` returns:
            ``Σ_i ((x - mean_) u_i)² / Λ_i`` over the axes kept, whatever `power` and `noise`;
            with all axes kept, ``(x - mean_) P (x - mean_)ᵀ`` with P of `get_precision`.

        Examples
        --------
        >>> import numpy as np
        >>> from skcalib import Whitening
        >>> X = np.random.default_rng(0).normal(size=(1000, 4))
        >>> whitening = Whitening().fit(X)
        >>> float(np.mean(whitening.mahalanobis(X)))
        3.996
        >>> whitening.mahalanobis([[9.0, 9.0, 9.0, 9.0]]) > 100
        array([ True])
        """
        check_is_fitted(self)
        exact = replace(self._map, power=1.0, noise=0.0, rotates_back=False)
        Z = self._apply(exact, self._validate(X, reset=False))
        return (Z * Z).sum(axis=1)

    def _apply(self, linear, X):
        if is_dask(X):
            return dask_apply(partial(_finite, linear.apply), X, linear.width)
        xp, is_tensor, device = _namespace(X)
        if is_tensor:
            return _finite(partial(tensor_apply, linear, xp=xp, device=device), X)
        return _finite(linear.apply, X)

    def _validate(self, X, *, reset, ensure_min_samples=1):
        if is_dask(X):
            check_dask(X, type(self).__name__)
            validate_data(self, X, reset=reset, skip_check_array=True)
            return X
        xp, _, _ = _namespace(X)
        return validate_data(
            self,
            X,
            dtype=[xp.float64, xp.float32],
            reset=reset,
            ensure_min_samples=ensure_min_samples,
            # A value that is not finite spreads to the moments and to its row's output, where
            # it is found without another pass over X.
            ensure_all_finite=False,
        )

    def _fit_moments(self, X, sample_weight):
        """Moments of ``X`` and, where `memory` keeps it, the spectrum of their covariance."""
        folder = cache_folder(self.memory)
        if folder is None or is_dask(X) or _namespace(X)[1]:
            return self._moments_of(X, sample_weight), None
        weight = None if sample_weight is None else self._weights(sample_weight, X)
        key, d = fingerprint(X, weight), X.shape[1]
        return recall(folder, key, d, lambda: self._moments_of(X, weight))

    def _check_width(self, d):
        check_size(d, type(self).__name__)
        if isinstance(self.n_components, Integral) and self.n_components > d:
            raise ValueError(
                f"n_components={self.n_components} exceeds n_features={d}. Give an int up "
                f"to {d}, a share of the variance in (0, 1), or None for all of the rank."
            )

    def _weights(self, sample_weight, X):
        return _check_sample_weight(
            sample_weight, X, dtype=np.float64, ensure_non_negative=True, **ALL_ZERO
        )

    def _moments_of(self, X, sample_weight=None):
        if is_dask(X):
            moments = dask_moments(X, sample_weight)
        else:
            weight = None if sample_weight is None else self._weights(sample_weight, X)
            xp, is_tensor, device = _namespace(X)
            with np.errstate(over="ignore", invalid="ignore"):
                if is_tensor:
                    moments = tensor_moments(X, weight, xp, device)
                else:
                    moments = Moments.from_array(X, weight)
        if not np.isfinite(moments.quartic):
            if is_dask(X):
                raise ValueError(
                    "X contains NaN or infinity, or its moments overflow float64. Drop such "
                    "rows, or scale X down."
                )
            assert_all_finite(X, estimator_name=type(self).__name__, input_name="X")
            raise ValueError(
                f"The moments of X overflow float64: its largest magnitude is "
                f"{float(abs(X).max()):.3g}. Scale X down first."
            )
        return moments

    def _solve(self, moments, spectrum=None):
        params = self.get_params(deep=False)
        del params["memory"]
        return solve(moments, spectrum, **params)

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

    @property
    def noise_(self):
        return self._fitted("noise_")._map.noise

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
        tags.array_api_support = True
        return tags


def _finite(function, X):
    """``function(X)``, or an error if that is not finite."""
    with np.errstate(over="ignore", invalid="ignore"):
        out = function(X)
        # One sum is cheap; it may overflow where no entry does, so a closer look decides.
        if not np.isfinite(float(out.sum())):
            assert_all_finite(X, estimator_name="Whitening", input_name="X")
            if not np.isfinite(float(abs(out).max())):
                raise ValueError(
                    f"The whitened vectors overflow {out.dtype}: the largest magnitude in X "
                    f"is {float(abs(X).max()):.3g}. Scale X down, or pass it as float64."
                )
    return out


def _namespace(X):
    """Namespace of ``X``, whether it is another than NumPy, and the device of ``X``."""
    xp, _, device = get_namespace_and_device(X)
    return xp, "numpy" not in xp.__name__, device


def _exports():
    from skcalib import _whitening_exports

    return _whitening_exports
