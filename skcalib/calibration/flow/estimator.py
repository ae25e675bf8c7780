"""NormalizingFlow: the scikit-learn estimator around a Glow on vectors."""

from __future__ import annotations

from contextlib import nullcontext
from copy import copy
from dataclasses import KW_ONLY, field
from functools import partial
from numbers import Integral, Real
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted, validate_data

from skcalib.base import FloatTransformer, VersionedState, estimator, forget
from skcalib.calibration.noise import MANY
from skcalib.compat import Interval, StrOptions, _fit_context, check_n_features, check_params
from skcalib.inputs.containers import check_dask, is_dask
from skcalib.inputs.vectors import check_vectors, checked_rows, warn_of_lengths
from skcalib.process.dask import check_lazy, dask_apply, on_disk
from skcalib.process.devices import check_precision, resolve_device

if TYPE_CHECKING:
    import torch

    from skcalib.calibration.flow.fitted import FittedFlow

FLOATS = [np.float64, np.float32]


@estimator
class NormalizingFlow(
    VersionedState, ClassNamePrefixFeaturesOutMixin, FloatTransformer, BaseEstimator
):
    r"""Calibrate vectors by an invertible map to a standard normal distribution.

    BERT-flow [1]_ models the vectors :math:`u` of a frozen encoder as the image of a latent
    :math:`z \sim N(0, I)` under an invertible network, here a Glow [2]_ on vectors. Training
    maximizes the likelihood, without labels:

    .. math:: \log p(u) = \log N(f(u); 0, I) + \log |\det \partial f / \partial u| .

    :meth:`transform` maps u to z = f(u), in which all directions count equally, even those that
    are mostly noise. For graded similarity of a language model that was never trained for it,
    this default, which is that of the paper's code, gains as much as exact whitening or more.
    On an output that was trained for similarity it makes search and clustering worse;
    ``NormalizingFlow(power="auto")`` scores there like ``Whitening(power="auto")``.

    Parameters
    ----------
    n_levels : int, default=2
        Number of levels. After each but the last, half of the dimensions leave the flow, and z
        holds them in the order in which they leave: with an odd depth, that of the columns or,
        with `noise`, of the axes. The last level has at least 2 dimensions.
    depth : int, default=3
        Steps (ActNorm, reversal of the dimensions, additive coupling) per level. A coupling
        shifts half of the dimensions by a function of the others, a network with two hidden
        layers of width 32. These are the choices of BERT-flow's code.
    noise : float in [0, 1e9] or "auto", default=0.0
        Regularization as in :class:`Whitening`. Above 0 the flow is trained on the principal
        axes instead of the columns, and :meth:`transform` first multiplies each axis, of
        variance λ, by ``λ / (λ + noise tr(Σ))``. Density and samples are those of unfiltered
        vectors. "auto" also chooses the power, 0 for an output layer trained for cosine
        similarity, of which each axis is multiplied by ``(λ / λ_max)^(1/2)``, and otherwise 1
        with a level, by which axes are multiplied by ``(λ / (λ + level))^(1/2)``.
    n_groups : int, "many" or None, default=None
        Approximate number of groups that the vectors should distinguish, as in
        :class:`Whitening`. It needs ``power="auto"``.
    learning_rate : float, default=1e-3
        Learning rate of Adam without bias correction and with a weight decay of 0.01, as in
        BERT-flow's code.
    max_epochs : int, default=1
        Passes over the data in :meth:`fit`.
    batch_size : int, default=32
        Rows per step. In one epoch, larger batches end at a lower likelihood.
    validation_fraction : float in (0, 1) or None, default=None
        Share of the rows to hold out. If set, the flow with the best validation loss is kept.
    device : str, default="auto"
        "cpu", "cuda", "cuda:1", "mps" (in float32 only), or "auto": CUDA if it works,
        otherwise the CPU.
    random_state : int, RandomState instance or None, default=None
        Seeds the initial weights, the order of the rows and :meth:`sample`. If given, the
        global generators are not used.
    verbose : bool, default=False
        Whether to show a progress bar, which counts batches.

    Attributes
    ----------
    flow_ : FittedFlow
        All that is learned, in arrays.
    loss_curve_ : list of float
        Mean negative log-density of the training batches of each epoch, in nats per sample.
    validation_curve_ : list of float or None
        The same on the held-out rows after each epoch; None if none are held out.
    n_iter_ : int
        Completed epochs.
    noise_ : float
        Noise in use.
    power_ : float
        Power in use; 1 unless `noise` is "auto".
    level_ : float
        Level in use, as in :class:`Whitening`; 0 unless `noise` is "auto".
    n_features_in_ : int
        Dimension of the vectors.
    feature_names_in_ : ndarray of shape (n_features,)
        Names of features seen during fit, when all are strings.

    See Also
    --------
    Whitening : The linear calibration.

    Notes
    -----
    A column that varies by no more than the rounding of its own values, such as a constant,
    would make the likelihood infinite. In training, random numbers replace it, and in
    :meth:`transform` this dimension of z stays near 0. With `noise`, the same holds for an axis
    whose variance is below the rounding error of the largest: columns need similar units.

    An untrained flow with ``power="auto"`` equals ``Whitening(power="auto")`` up to the order
    of the dimensions and a common factor. No axis is multiplied by less than 1e-3.

    After an error in :meth:`fit` the estimator is not fitted, and after one in
    :meth:`partial_fit` it is unchanged. Ctrl-C ends the training, keeps all steps but the last
    64 or fewer, and raises `KeyboardInterrupt`.

    References
    ----------
    .. [1] Li et al., "On the sentence embeddings from pre-trained language models",
       EMNLP 2020, arXiv:2011.05864, equations 2 and 3.
    .. [2] Kingma, Dhariwal, "Glow: Generative flow with invertible 1x1 convolutions",
       NeurIPS 2018, arXiv:1807.03039.

    Examples
    --------
    >>> import numpy as np
    >>> from skcalib import NormalizingFlow
    >>> rng = np.random.RandomState(0)
    >>> X = rng.normal(size=(500, 4)) @ rng.normal(size=(4, 4)) + 5.0
    >>> flow = NormalizingFlow(max_epochs=5, random_state=0).fit(X)
    >>> Z = flow.transform(X)
    >>> Z.shape
    (500, 4)
    >>> bool(np.allclose(flow.inverse_transform(Z), X))
    True
    >>> flow.loss_curve_[-1] < flow.loss_curve_[0]
    True
    """

    _: KW_ONLY
    n_levels: int = 2
    depth: int = 3
    noise: float | str = 0.0
    n_groups: int | str | None = None
    learning_rate: float = 1e-3
    max_epochs: int = 1
    batch_size: int = 32
    validation_fraction: float | None = None
    device: str = "auto"
    random_state: int | np.random.RandomState | None = None
    verbose: bool = False
    flow_: FittedFlow = field(init=False)

    _parameter_constraints = {
        "n_levels": [Interval(Integral, 1, None, closed="left")],
        "depth": [Interval(Integral, 1, None, closed="left")],
        "noise": [Interval(Real, 0, 1e9, closed="both"), StrOptions({"auto"})],
        "n_groups": [Interval(Integral, 2, None, closed="left"), StrOptions({MANY}), None],
        "learning_rate": [Interval(Real, 0, None, closed="neither")],
        "max_epochs": [Interval(Integral, 1, None, closed="left")],
        "batch_size": [Interval(Integral, 1, None, closed="left")],
        "validation_fraction": [Interval(Real, 0, 1, closed="neither"), None],
        "device": [str],
        "random_state": ["random_state"],
        "verbose": ["boolean"],
    }
    _state_version = 11
    noise_ = property(attrgetter("flow_.noise"), doc="Noise in use.")
    power_ = property(attrgetter("flow_.power"), doc="Power in use.")
    level_ = property(attrgetter("flow_.level"), doc="Level in use.")

    def fit(self, X: Any, y: Any = None) -> Self:
        """Train the flow on the rows of X.

        Parameters
        ----------
        X : array-like or dask array of shape (n_samples, n_features)
            At least 2 rows and 2 columns. Training uses float32 for float32, otherwise
            float64. A memory map is read as needed, and a dask array is computed once, into a
            temporary file.
        y : None
            Ignored.

        Returns
        -------
        self : NormalizingFlow

        Raises
        ------
        ValueError
            If X has NaN, infinities, one row or one column, if the device is not available or
            cannot compute in this data type, or if the validation split leaves too few rows.
        MemoryError
            If a batch does not fit into the memory of a GPU.

        Warns
        -----
        ConvergenceWarning
            If the loss became NaN or infinite; the flow is then the last good one. Also if the
            map and its inverse disagree; the flow is then useless.
        UserWarning
            If X has fewer than 25 rows, or one column holds most of the variance.
        """
        forget(self)
        check_params(self)
        return self._fit(X, None, self.max_epochs, self.validation_fraction)

    @_fit_context(prefer_skip_nested_validation=True)
    def partial_fit(self, X: Any, y: Any = None) -> Self:
        """Train for one epoch over X, continuing where the last call ended.

        The first call also fixes the standardization, from its own rows. Nothing is held
        out: ``max_epochs`` and ``validation_fraction`` do not apply.

        Parameters
        ----------
        X : array-like or dask array of shape (n_samples, n_features)
            At least 2 rows in the first call.
        y : None
            Ignored.

        Returns
        -------
        self : NormalizingFlow
        """
        start = getattr(self, "flow_", None)
        return self._fit(X, start, n_epochs=1, validation_fraction=None)

    def transform(self, X: Any) -> Any:
        """Map vectors u to latent vectors z.

        Parameters
        ----------
        X : array-like or dask array of shape (n_samples, n_features)

        Returns
        -------
        Z : ndarray of shape (n_samples, n_features)
            float32 for float32, float64 otherwise; a lazy dask array for a dask array.
        """
        return self._apply(X, "encode")

    def inverse_transform(self, X: Any) -> Any:
        """Map latent vectors z back to vectors u, the inverse of :meth:`transform`.

        Parameters
        ----------
        X : array-like or dask array of shape (n_samples, n_features)
            Latent vectors, as :meth:`transform` returns them.

        Returns
        -------
        U : ndarray of shape (n_samples, n_features)
            float32 for float32, float64 otherwise; a lazy dask array for a dask array.
        """
        return self._apply(X, "back", is_latent=True)

    def score_samples(self, X: Any) -> Any:
        """Log-density of each row under the flow.

        Parameters
        ----------
        X : array-like or dask array of shape (n_samples, n_features)

        Returns
        -------
        log_density : ndarray of shape (n_samples,)
            log p(u) in nats; a lazy dask array for a dask array.

        Warns
        -----
        UserWarning
            If the flow was fitted, with `noise`, on fewer than 2 rows for each feature. Many
            epochs need more rows: see `validation_fraction`.
        """
        check_is_fitted(self)
        self.flow_.warn_of_few_rows()
        return self._apply(X, "log_prob", width=1)[:, 0]

    def score(self, X: Any, y: Any = None) -> float:
        """Mean log-density of the rows of X; the larger, the better the flow fits them.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
        y : None
            Ignored.

        Returns
        -------
        score : float
            In nats per sample.
        """
        return float(np.mean(self.score_samples(X), dtype=np.float64))

    def sample(self, n_samples: int = 1) -> np.ndarray:
        """Draw vectors u from the density: z from N(0, I), mapped back without the filter.

        Parameters
        ----------
        n_samples : int, default=1

        Returns
        -------
        X : ndarray of shape (n_samples, n_features)
            In the data type of the fit. With an int ``random_state`` each call returns the
            same rows.
        """
        check_is_fitted(self)
        self.flow_.warn_of_few_rows()
        rng, d = check_random_state(self.random_state), self.n_features_in_
        z = rng.standard_normal((n_samples, d)).astype(self.flow_.weights["gain"].dtype)
        device = resolve_device(self.device)
        return self.flow_.map("decode", z, d, device=device)

    @property
    def n_iter_(self) -> int:
        """Number of epochs."""
        return len(self.flow_.curve)

    @property
    def loss_curve_(self) -> list[float]:
        """Loss of each epoch."""
        return [losses[0] for losses in self.flow_.curve]

    @property
    def validation_curve_(self) -> list[float] | None:
        """Loss of the held-out rows after each epoch, or None."""
        return [losses[1] for losses in self.flow_.curve if len(losses) > 1] or None

    @property
    def _n_features_out(self) -> int:
        return self.n_features_in_

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.transformer_tags.calibrates = True
        tags.transformer_tags.not_linear = (
            "a normalizing flow. Calibrate with Whitening(power='auto')"
        )
        return tags

    def to_torch(self) -> torch.nn.Module:
        """Copy the fitted flow into a torch module.

        Returns
        -------
        flow : torch.nn.Module
            On the CPU and in the data type of the fit, with ``forward(u) -> (z, logabsdet)``,
            ``inverse(z) -> (u, logabsdet)`` and ``log_prob(u)``. It shares nothing with this
            estimator: you can move it, train it further, or differentiate through it.
        """
        check_is_fitted(self)
        return self.flow_.network().eval()

    def _apply(
        self, X: Any, method: str, is_latent: bool = False, width: int | None = None
    ) -> Any:
        """Return what a method of the network maps X to, lazily for a dask array.

        ``width`` is the number of its columns, by default that of X.
        """
        check_is_fitted(self)
        width = width or self.n_features_in_
        if is_dask(X):
            check_dask(X)
            check_lazy(self)
            validate_data(self, X, reset=False, skip_check_array=True)
            fitted = copy(self)  # so that a later fit does not change the result
            apply = partial(fitted._apply, method=method, is_latent=is_latent, width=width)
            return dask_apply(apply, X, width)
        if is_latent:  # its columns have other names
            X = check_vectors(X, dtype=FLOATS)
            check_n_features(self, X, reset=False)
        else:
            X = checked_rows(self, X, reset=False)
            warn_of_lengths(X, self.flow_.mean_square)
        return self.flow_.map(method, X, width, device=resolve_device(self.device))

    def _fit(
        self, X: Any, start: FittedFlow | None, n_epochs: int, validation_fraction: float | None
    ) -> Self:
        """Train a new flow, or ``start`` further."""
        from skcalib.calibration.flow.training import train

        device, trained = resolve_device(self.device), copy(self)
        n = 2 if start is None else 1
        least = {"ensure_min_samples": n, "ensure_min_features": n}
        if is_dask(X):
            check_dask(X)
        with on_disk(X) if is_dask(X) else nullcontext(X) as array:
            array = checked_rows(trained, array, reset=start is None, **least)
            check_precision(device, array.dtype)
            if start is not None:
                warn_of_lengths(array, start.mean_square)
            for name, fitted in start.architecture.items() if start else ():
                if (value := getattr(self, name)) != fitted:
                    raise ValueError(
                        f"Training cannot continue with {name}={value!r}: this flow was fitted "
                        f"with {name}={fitted!r}. Set it back, or call fit to start again."
                    )
            trained.flow_, interrupted = train(
                array, start, self, n_epochs, validation_fraction, device=device
            )
        # All at once, so that feature names always belong to this flow.
        self.__dict__ = trained.__dict__
        if interrupted:
            raise KeyboardInterrupt
        return self
