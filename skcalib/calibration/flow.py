"""NormalizingFlow: an invertible map of vectors to a normal distribution (BERT-flow)."""

from __future__ import annotations

import math
from dataclasses import replace
from functools import reduce
from numbers import Integral, Real
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin
from sklearn.preprocessing import StandardScaler
from sklearn.utils import check_random_state, gen_batches
from sklearn.utils.validation import check_is_fitted

from skcalib.base import FloatTransformer, VersionedState, from_scratch, warn
from skcalib.calibration.moments import Moments, check_size, decompose, rounding_error
from skcalib.calibration.noise import (
    MANY,
    Regularization,
    Regularized,
    warn_of_massive_column,
)
from skcalib.compat import Interval, StrOptions, _fit_context, check_n_features
from skcalib.inputs.vectors import check_vectors, checked_rows, warn_of_lengths
from skcalib.process.caches import NETWORKS
from skcalib.process.devices import check_precision, plain_torch, resolve_device

if TYPE_CHECKING:
    import torch

    from skcalib.calibration.glow import Glow

# Rows below which the density of new vectors lies far below that of the fitted ones: by more
# than 0.1 nats per dimension, for any number of columns; on principal axes by more than 0.5,
# and by 10 or more where there are as many rows as dimensions.
FEW_ROWS, FEW_ROWS_PER_AXIS = 25, 2


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
    the default gains as much as exact whitening or more. On an output that was trained for
    similarity it makes search and clustering worse; ``NormalizingFlow(noise="auto")`` scores
    there like ``Whitening(noise="auto")``.

    Parameters
    ----------
    n_levels : int, default=2
        Number of levels. After each but the last, half of the dimensions leave the flow, and z
        holds them in the order in which they leave: with an odd depth, that of the columns or,
        with `noise`, of the axes. The last level has at least 2 dimensions.
    depth : int, default=3
        Steps (ActNorm, reversal of the dimensions, additive coupling) per level. A coupling
        shifts half of the dimensions by a function of the others, a network with two hidden
        layers of width 32.
    noise : float in [0, 1e9] or "auto", default=0.0
        Regularization as in :class:`Whitening`. Above 0 the flow is trained on the principal
        axes instead of the columns, and :meth:`transform` first multiplies each axis, of
        variance λ, by ``λ / (λ + noise tr(Σ))``. Density and samples are those of unfiltered
        vectors. "auto" also chooses the power, 0 for an output layer trained for cosine
        similarity, of which each axis is multiplied by ``(λ / λ_max)^(1/2)``, and otherwise 1
        with a level, by which axes are multiplied by ``(λ / (λ + level))^(1/2)``.
    n_groups : int, "many" or None, default=None
        Approximate number of groups that the vectors should distinguish, as in
        :class:`Whitening`. It needs ``noise="auto"``.
    learning_rate : float, default=1e-3
        Learning rate of Adam without bias correction, and with a weight decay of 0.01 for
        matrices.
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
    weights_ : dict of str to ndarray
        All that the network has learned, in the data type of the fitted rows.
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
    parameters_ : dict
        `n_levels`, `depth` and `noise` of the fit, which :meth:`transform` uses.
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

    An untrained flow with ``noise="auto"`` equals ``Whitening(noise="auto", centering=1.0)`` up
    to the order of the dimensions and a common factor: the whole mean is subtracted. No axis is
    multiplied by less than 1e-3.

    Additive couplings and one epoch are the paper's. Depth, width, learning rate and Adam
    without bias correction are those of its code. The code has three levels, where a post about
    the method has two, as here; a batch has 32 pairs of sentences; and biases and scales decay,
    too.

    After an error or Ctrl-C in :meth:`fit` the estimator is not fitted. It loads from a pickle
    and maps vectors where its `device` is missing, on the CPU and with a warning.

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
    _state_version = 12
    _learned = ("_mean_square", "_n_rows")

    def __init__(
        self,
        *,
        n_levels: int = 2,
        depth: int = 3,
        noise: float | str = 0.0,
        n_groups: int | str | None = None,
        learning_rate: float = 1e-3,
        max_epochs: int = 1,
        batch_size: int = 32,
        validation_fraction: float | None = None,
        device: str = "auto",
        random_state: int | np.random.RandomState | None = None,
        verbose: bool = False,
    ) -> None:
        self.n_levels = n_levels
        self.depth = depth
        self.noise = noise
        self.n_groups = n_groups
        self.learning_rate = learning_rate
        self.max_epochs = max_epochs
        self.batch_size = batch_size
        self.validation_fraction = validation_fraction
        self.device = device
        self.random_state = random_state
        self.verbose = verbose

    @from_scratch
    @_fit_context(prefer_skip_nested_validation=True)
    def fit(self, X: Any, y: Any = None) -> Self:
        """Train the flow on the rows of X.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            At least 2 rows and 2 columns. Training uses float32 for float32, otherwise
            float64. A memory map is read as needed.
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

        Warns
        -----
        ConvergenceWarning
            If the loss became NaN or infinite; the flow is then the last good one. Also if the
            map and its inverse disagree; the flow is then useless.
        UserWarning
            If X has fewer than 25 rows, or one column holds most of the variance.
        """
        from skcalib.calibration.training import split, train

        NETWORKS.pop(self, None)
        device = resolve_device(self.device)
        X = checked_rows(self, X, reset=True, ensure_min_samples=2, ensure_min_features=2)
        check_precision(device, X.dtype)
        # The training has its own generator, so that no other draw interferes.
        seed = check_random_state(self.random_state).randint(np.iinfo(np.int32).max)
        rng = np.random.RandomState(seed)
        rows, held_out = split(len(X), self.validation_fraction, rng)
        standardization = self._standardization(X, rows)
        used = "n_levels", "depth", "noise"
        self.parameters_ = {name: getattr(self, name) for name in used}
        with plain_torch(device):
            network = self._network(X.dtype)
            network.initialize(rng, *standardization)
            curve = train(network.to(device), X, rows, held_out, self, rng)
            self.weights_ = network.arrays()
        self.loss_curve_ = [losses[0] for losses in curve]
        self.validation_curve_ = [losses[1] for losses in curve] if len(held_out) else None
        self.n_iter_ = len(curve)
        return self

    def transform(self, X: Any) -> np.ndarray:
        """Map vectors u to latent vectors z.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)

        Returns
        -------
        Z : ndarray of shape (n_samples, n_features)
            float32 for float32, float64 otherwise.
        """
        return self._map("encode", self._checked(X))

    def inverse_transform(self, X: Any) -> np.ndarray:
        """Map latent vectors z back to vectors u, the inverse of :meth:`transform`.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Latent vectors, as :meth:`transform` returns them.

        Returns
        -------
        U : ndarray of shape (n_samples, n_features)
            float32 for float32, float64 otherwise.
        """
        check_is_fitted(self)
        X = check_vectors(X, dtype=[np.float64, np.float32])  # its columns have other names
        check_n_features(self, X, reset=False)
        return self._map("back", X)

    def score_samples(self, X: Any) -> np.ndarray:
        """Log-density of each row under the flow.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)

        Returns
        -------
        log_density : ndarray of shape (n_samples,)
            log p(u) in nats. In bits per dimension, a loss is
            ``-log_density / (n_features * log(2))``.

        Warns
        -----
        UserWarning
            If the flow was fitted, with `noise`, on fewer than 2 rows for each feature. Many
            epochs need more rows: see `validation_fraction`.
        """
        X = self._checked(X)
        self._warn_of_few_rows()
        return self._map("log_prob", X)

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
        self._warn_of_few_rows()
        rng = check_random_state(self.random_state)
        z = rng.standard_normal((n_samples, self.n_features_in_))
        return self._map("decode", z.astype(self.weights_["gain"].dtype))

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
        return self._fitted_network()

    def _standardization(self, X: np.ndarray, rows: np.ndarray) -> tuple[np.ndarray, ...]:
        """Return what standardizes the given rows of X, as `Glow.initialize` takes it."""
        standardization: tuple[np.ndarray, ...]
        if self.noise == 0:
            mean, deviation = standardization = column_moments(X, rows)
            self.noise_, self.power_, self.level_ = 0.0, 1.0, 0.0
            column_variances = deviation**2
        else:
            check_size(X.shape[1], f"noise={self.noise!r}")
            strength = Regularization(noise=self.noise, n_groups=self.n_groups)
            standardization, used = principal_axes(X, rows, strength)
            self.noise_, self.power_, self.level_ = float(used.noise), used.power, used.level
            mean, deviation, axes, _ = standardization
            column_variances = axes**2 @ deviation**2 * (1 - 1 / len(rows))
        warn_of_massive_column(column_variances)
        _warn_of_few_rows(len(rows), FEW_ROWS)
        self._n_rows = len(rows)
        self._mean_square = float(mean @ mean + column_variances.sum())
        return standardization

    def _checked(self, X: Any) -> np.ndarray:
        check_is_fitted(self)
        X = checked_rows(self, X, reset=False)
        warn_of_lengths(X, self._mean_square)
        return X

    def _map(self, method: str, X: np.ndarray) -> np.ndarray:
        """Return what a method of the network maps rows to, in their data type."""
        import torch

        try:
            device = resolve_device(self.device)
        except ValueError as error:  # as where a pickle of a fit on a GPU is loaded without one
            warn(f"{error} The CPU is used now.")
            device = torch.device("cpu")
        check_precision(device, X.dtype)
        # A float64 fit stays in float64: float32 would round the mean that is subtracted.
        dtype = np.promote_types(X.dtype, self.weights_["gain"].dtype)
        dtype = X.dtype if device.type == "mps" else dtype
        networks = NETWORKS.setdefault(self, {})
        if (key := (str(device), dtype.name)) not in networks:  # built once
            networks[key] = self._fitted_network().to(device, getattr(torch, dtype.name))
        # With few rows, intermediate results stay in a CPU's cache; a GPU needs more rows.
        n_rows = 2**10 if device.type == "cpu" else 2**13
        result = np.empty(len(X) if method == "log_prob" else X.shape, X.dtype)
        with plain_torch(device), torch.inference_mode():
            for rows in gen_batches(len(X) or 1, n_rows):
                block = np.ascontiguousarray(X[rows], dtype)  # no negative strides
                values = getattr(networks[key], method)(torch.tensor(block, device=device))
                result[rows] = values.cpu().numpy()
        return result

    def _network(self, dtype: np.dtype) -> Glow:
        """Build the network of the fitted architecture."""
        import torch

        from skcalib.calibration.glow import Glow

        used = self.parameters_
        rotates = used["noise"] != 0
        network = Glow(self.n_features_in_, used["n_levels"], used["depth"], rotates)
        return network.to(getattr(torch, dtype.name))

    def _fitted_network(self) -> Glow:
        import torch

        with plain_torch(torch.device("cpu")):
            network = self._network(self.weights_["gain"].dtype)
            weights = {name: torch.tensor(array) for name, array in self.weights_.items()}
            network.load_state_dict(weights, assign=True)
        return network.eval()

    def _warn_of_few_rows(self) -> None:
        """Warn if densities along principal axes, or samples, say little of new vectors."""
        if self.parameters_["noise"] != 0:
            _warn_of_few_rows(self._n_rows, FEW_ROWS_PER_AXIS * self.n_features_in_)

    @property
    def _n_features_out(self) -> int:
        return self.n_features_in_

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.transformer_tags.calibrates = True
        tags.transformer_tags.not_linear = (
            "a normalizing flow. Calibrate with Whitening(noise='auto')"
        )
        return tags


def _warn_of_few_rows(n: int, enough: int) -> None:
    if n < enough:
        warn(
            f"The flow was fitted on fewer than {enough} rows: the density of new vectors lies "
            "far below that of the fitted ones. Fit on more rows."
        )


@np.errstate(over="ignore", invalid="ignore")  # an overflow shows in the result
def column_moments(X: np.ndarray, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Mean and standard deviation of the columns of X over the given rows, in float64.

    `Moments` would also sum products of columns, which can take longer than the training.
    Differences are from the first row, so that a constant column has a deviation of exactly 0.
    """
    origin, scaler, spread = X[rows[0]].astype(np.float64), StandardScaler(), 0.0
    for part in gen_batches(len(rows), 1024):
        block = X[rows[part]] - origin
        spread = max(spread, float(np.abs(block).max()))
        scaler.partial_fit(block)
    if not np.isfinite(scaler.var_).all():
        raise ValueError(
            "X has entries whose squares overflow float64. Scale X to about 1, or drop such "
            "rows if they are few."
        )
    if 0 < spread < math.sqrt(np.finfo(np.float64).tiny / np.finfo(np.float64).eps):
        raise ValueError(
            f"X varies by no more than {spread:.3g}, whose square underflows float64. Scale X "
            "to about 1."
        )
    return origin + scaler.mean_, np.sqrt(scaler.var_)


@np.errstate(over="ignore", invalid="ignore")  # an overflow shows in the result
def principal_axes(
    X: np.ndarray, rows: np.ndarray, strength: Regularization
) -> tuple[tuple[np.ndarray, ...], Regularized]:
    """Principal axes of X over the given rows, and the weight of each in the noise filter.

    Returns the mean (d,), the deviation along the axes (d,), 0 beyond the numerical rank, the
    axes in columns (d, d) and their positive gain (d,); and the regularization in use. The gain
    is that of a `Whitening`; with a power below 1, in units of the largest deviation, since the
    networks of a flow expect entries of about 1.
    """
    parts = (Moments.of(X[rows[part]]) for part in gen_batches(len(rows), 8192))
    moments = reduce(Moments.merge, parts)
    variance, axes = decompose(moments.covariance())
    if not variance[0] > 0:
        raise ValueError(
            f"All {moments.n} samples are equal: noise={strength.noise!r} needs samples that "
            "differ. Fit on other samples, or set noise=0."
        )
    regularized = strength.of(moments, variance)
    # Smaller eigenvalues are rounding errors; `decompose` has set the negative ones to 0.
    least = rounding_error(variance)
    deviation = np.sqrt(np.where(variance > least, variance, 0.0))
    # A direction without variance has a gain in the limit only.
    bounded = replace(regularized, eigenvalues=np.maximum(regularized.eigenvalues, least))
    unit = bounded.eigenvalues[0] ** ((1 - regularized.power) / 2)
    return (moments.mean, deviation, axes, bounded.gain() / unit), regularized
