"""Whitening: the linear map that makes vectors isotropic (BERT-whitening)."""

from __future__ import annotations

import os
from dataclasses import replace
from functools import partial
from numbers import Integral, Real
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.utils.validation import check_is_fitted, validate_data

from skcalib._base import CallbackSupportMixin, VersionedState, fit_task
from skcalib._covariance.moments import Moments
from skcalib._machine.limits import check_size
from skcalib._sklearn_compat import (
    HasMethods,
    Interval,
    RealNotInt,
    StrOptions,
    _fit_context,
)
from skcalib._whitening import exports
from skcalib._whitening.cache import cache_folder, content_hash, recall
from skcalib._whitening.linear_map import WhiteningMap
from skcalib._whitening.rows import NumPyRows, Rows, rows_of
from skcalib._whitening.solver import solve

if TYPE_CHECKING:
    from joblib import Memory
    from torch import nn

    from skcalib._whitening.torch_module import WhiteningModule

__all__ = ["Whitening"]


class Whitening(
    CallbackSupportMixin,
    ClassNamePrefixFeaturesOutMixin,
    TransformerMixin,
    VersionedState,
    BaseEstimator,
):
    """Whiten vectors: zero mean, identity covariance, optionally fewer dimensions.

    Vectors are centred and mapped by ``W = U g(Λ)``, where ``U Λ Uᵀ`` is the
    eigendecomposition of their covariance and ``g(λ) = λ^(-1/2)``; the first ``n_components``
    columns are kept (BERT-whitening [1]_, algorithm 1). Cosine similarity of the result gives
    all directions of the sample equal weight; that of raw BERT vectors is dominated by a few.

    Equal weight means that noise counts as much as signal. Exact whitening, the default, often
    makes search and clustering worse than raw vectors. Without labels use
    ``Whitening(noise="auto")``, which fades directions that hold little but noise.

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
        accident is computed anew. Use a folder that you trust: who may write there can forge
        results. Only the location of a Memory is used. `partial_fit`, dask arrays and tensors
        do not use the folder.

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
    spectrum, the exponential of its entropy. The documentation's page for developers tells how
    this was found.

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
    _state_version = 4

    # An estimator with `_moments` is fitted. An interrupt may come between two assignments, so
    # `_solution` is set, or forgotten, before its moments are.
    _moments: Moments
    _solution: WhiteningMap | None  # None until something needs it

    def __init__(
        self,
        n_components: int | float | None = None,
        *,
        method: str = "pca",
        power: float = 1.0,
        noise: float | str = 0.0,
        shrinkage: float | str = 0.0,
        tol: float | None = None,
        memory: str | os.PathLike[str] | Memory | None = None,
    ):
        self.n_components = n_components
        self.method = method
        self.power = power
        self.noise = noise
        self.shrinkage = shrinkage
        self.tol = tol
        self.memory = memory

    @_fit_context(prefer_skip_nested_validation=True)
    def fit(self, X: Any, y: Any = None, sample_weight: Any = None) -> Self:
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
            del self._moments, self._solution  # an error below leaves nothing half-fitted
        with fit_task(self, X):
            rows = self._sample(X, reset=True, ensure_min_samples=2)
            compute = partial(rows.moments, sample_weight)
            folder = cache_folder(self.memory)
            if folder is None or not isinstance(rows, NumPyRows):
                moments, spectrum = compute(), None
            else:
                key = content_hash(rows.X, sample_weight)
                moments, spectrum = recall(folder, key, rows.X.shape[1], compute)
            self._solution = self._solve(moments, spectrum)
            self._moments = moments
        return self

    @_fit_context(prefer_skip_nested_validation=True)
    def partial_fit(self, X: Any, y: Any = None, sample_weight: Any = None) -> Self:
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
        moments = self._sample(X, reset=first).moments(sample_weight)
        self._update(moments if first else self._moments.merge(moments))
        return self

    def merge(self, *others: Whitening) -> Self:
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
        self._update(merged)
        return self

    def transform(self, X: Any) -> Any:
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
        return self._rows(X).map(self._linear_map)

    def inverse_transform(self, X: Any) -> Any:
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
        rows = rows_of(X, ensure_all_finite=True)
        if rows.X.shape[1] != self.n_components_:
            raise ValueError(
                f"X has {rows.X.shape[1]} columns; inverse_transform takes whitened vectors of "
                f"n_components_={self.n_components_} columns, as transform returns them."
            )
        return rows.invert(self._linear_map)

    def to_torch(self) -> WhiteningModule:
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
        from skcalib._whitening.torch_module import WhiteningModule

        linear = self._linear_map
        return WhiteningModule(linear.mean, linear.projection, safe=linear.float32_is_safe)

    def to_sentence_transformers(self) -> nn.Module:
        """Whitening as the last module of a ``SentenceTransformer``.

        Returns
        -------
        dense : sentence_transformers.models.Dense
            With bias, without activation. Insert it behind the pooling and in front of any
            ``Normalize`` that the model ends with; behind a ``Normalize`` it would whiten other
            vectors than it was fitted on. To export a whole pipeline, use
            `skcalib.export.save_sentence_transformer`.

        Raises
        ------
        ImportError
            If sentence-transformers is missing.
        ValueError
            If a map in float32 with the mean in its bias would lose the vectors' digits, by
            more than 1e-5 of a typical entry.
        """
        return exports.to_sentence_transformers(self._linear_map)

    def to_faiss(self, *, normalize: bool = False) -> Any:
        """Whitening in front of a faiss index.

        Parameters
        ----------
        normalize : bool, default=False
            Whether to return a whole index, in which inner products are cosines.

        Returns
        -------
        transform : faiss.LinearTransform
            With bias, trained; for ``faiss.IndexPreTransform``. Whitened vectors are of any
            length: in front of an index by inner product they have to be scaled to unit
            length, or the longest come first in place of the most similar.
        index : faiss.IndexPreTransform
            If ``normalize``: whitens, scales to unit length, and searches exactly by inner
            product. It takes raw vectors, and a vector in it finds itself first.

        Raises
        ------
        ImportError
            If faiss is missing.
        ValueError
            If a map in float32 with the mean in its bias would lose the vectors' digits, by
            more than 1e-5 of a typical entry.

        Examples
        --------
        >>> import numpy as np
        >>> from skcalib import Whitening
        >>> X = np.random.default_rng(0).normal(size=(100, 8)).astype(np.float32)
        >>> whitening = Whitening(4).fit(X)
        >>> index = whitening.to_faiss(normalize=True)
        >>> index.add(X)
        >>> cosines, nearest = index.search(X[:3], 1)
        >>> nearest.ravel().tolist(), np.allclose(cosines, 1)
        ([0, 1, 2], True)

        Another index, of any kind, takes the same two steps:

        >>> import faiss
        >>> hnsw = faiss.IndexHNSWFlat(4, 16, faiss.METRIC_INNER_PRODUCT)
        >>> scaled = faiss.IndexPreTransform(faiss.NormalizationTransform(4, 2.0), hnsw)
        >>> index = faiss.IndexPreTransform(whitening.to_faiss(), scaled)
        """
        return exports.to_faiss(self._linear_map, normalize)

    def get_covariance(self) -> np.ndarray:
        """Covariance in use, ``(1 - shrinkage_) Σ + shrinkage_ tr(Σ)/d I``.

        Returns
        -------
        covariance : ndarray of shape (n_features, n_features)
            Float64, of all features whatever `n_components`.
        """
        from sklearn.covariance import shrunk_covariance

        shrinkage = self._linear_map.shrinkage  # or a NotFittedError
        return shrunk_covariance(self._moments.covariance(), shrinkage)

    def get_precision(self) -> np.ndarray:
        """Inverse of the covariance in use; its pseudo-inverse below full rank.

        Returns
        -------
        precision : ndarray of shape (n_features, n_features)
            Float64, of all features whatever `n_components`.
        """
        linear = self._linear_map
        return (linear.basis / linear.regularised) @ linear.basis.T

    def mahalanobis(self, X: Any) -> Any:
        """Squared Mahalanobis distance from the mean, in the kept space.

        It detects vectors unlike those of the fit, such as single words after sentences: for
        vectors of the fit it is around `n_components_`, and rarely much larger.

        Parameters
        ----------
        X : array-like or dask array of shape (n_samples, n_features)
            Vectors, as `transform` takes them.

        Returns
        -------
        distance : ndarray of shape (n_samples,)
            ``Σ_i ((x - mean_) u_i)² / Λ_i`` over the axes kept, whatever `power` and `noise`;
            with all axes kept, ``(x - mean_) P (x - mean_)ᵀ`` with P of `get_precision`. The
            array is of the kind that `transform` returns.

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
        exact = replace(self._linear_map, power=1.0, noise=0.0, rotates_back=False)
        Z = self._rows(X).map(exact)
        return (Z * Z).sum(axis=1)

    def _sample(self, X: Any, *, reset: bool, ensure_min_samples: int = 1) -> Rows:
        """Check a sample to learn from."""
        rows = self._rows(X, reset=reset, ensure_min_samples=ensure_min_samples)
        d = rows.X.shape[1]
        check_size(d, type(self).__name__)
        if self.n_components is not None and self.n_components > d:
            raise ValueError(
                f"n_components={self.n_components} exceeds n_features={d}. Give an int up "
                f"to {d}, a share of the variance in (0, 1), or None for all of the rank."
            )
        return rows

    def _rows(self, X: Any, *, reset: bool = False, ensure_min_samples: int = 1) -> Rows:
        """Check ``X`` and its features, which are learnt if ``reset``."""
        rows = rows_of(X, ensure_min_samples=ensure_min_samples)
        validate_data(self, X, reset=reset, skip_check_array=True)
        return rows

    def _update(self, moments: Moments) -> None:
        """Set the moments of all samples seen, and forget the map of former ones."""
        self._solution = None
        self._moments = moments

    def _solve(
        self, moments: Moments, spectrum: tuple[np.ndarray, np.ndarray] | None = None
    ) -> WhiteningMap:
        params = self.get_params(deep=False)
        del params["memory"]
        return solve(moments, spectrum, **params)

    @property
    def _linear_map(self) -> WhiteningMap:
        check_is_fitted(self)  # raises an AttributeError too, so that `hasattr` works
        if self._solution is None:
            self._solution = self._solve(self._moments)
        return self._solution

    @property
    def mean_(self) -> np.ndarray:
        check_is_fitted(self)
        return self._moments.mean

    @property
    def n_samples_seen_(self) -> int | float:
        check_is_fitted(self)
        return self._moments.n

    @property
    def components_(self) -> np.ndarray:
        linear = self._linear_map
        return np.pad(linear.basis[:, : linear.kept].T, ((0, linear.surplus), (0, 0)))

    @property
    def explained_variance_(self) -> np.ndarray:
        linear = self._linear_map
        return np.pad(linear.variance[: linear.kept], (0, linear.surplus))

    @property
    def explained_variance_ratio_(self) -> np.ndarray:
        return self.explained_variance_ / self._linear_map.total_variance

    @property
    def n_components_(self) -> int:
        return self._linear_map.width

    @property
    def rank_(self) -> int:
        return self._linear_map.rank

    @property
    def shrinkage_(self) -> float:
        return self._linear_map.shrinkage

    @property
    def noise_(self) -> float:
        return self._linear_map.noise

    @property
    def _n_features_out(self) -> int:
        return self.n_components_

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "_moments")

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.transformer_tags.preserves_dtype = ["float64", "float32"]
        tags.array_api_support = True
        return tags
