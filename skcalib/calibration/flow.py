"""NormalizingFlow: an invertible map of vectors to a normal distribution (BERT-flow)."""

from __future__ import annotations

import math
from numbers import Integral, Real
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin
from sklearn.model_selection import train_test_split
from sklearn.preprocessing import StandardScaler
from sklearn.utils import check_random_state, gen_batches
from sklearn.utils.validation import check_is_fitted

from skcalib.base import FloatTransformer, VersionedState, import_package, warn
from skcalib.calibration.strength import warn_of_massive_column
from skcalib.callbacks import begin, fit_task
from skcalib.compat import Interval, check_n_features
from skcalib.inputs.vectors import check_vectors, checked_rows, warn_of_lengths
from skcalib.process.devices import device_of_fitted, plain_torch, resolve_device

if TYPE_CHECKING:
    import torch

    from skcalib.calibration.glow import Glow

# With fewer, the density of new vectors is lower by more than 0.1 nats per dimension.
FEW_ROWS = 25


class NormalizingFlow(
    VersionedState, ClassNamePrefixFeaturesOutMixin, FloatTransformer, BaseEstimator
):
    r"""Calibrate vectors by an invertible map to a standard normal distribution.

    BERT-flow [1]_ models the vectors :math:`u` of a frozen encoder as the image of a latent
    :math:`z \sim N(0, I)` under an invertible network, here a Glow [2]_ on vectors. Training
    maximizes the likelihood, without labels:

    .. math:: \log p(u) = \log N(f(u); 0, I) + \log |\det \partial f / \partial u| .

    :meth:`transform` maps u to z = f(u), in which all directions count equally. For graded
    similarity of a language model that was never trained for it, this gains as much as exact
    whitening or more. On an output that was trained for similarity it loses: use
    ``Whitening(power="auto")`` there.

    Parameters
    ----------
    n_levels : int, default=2
        Number of levels. After each but the last, half of the dimensions leave the flow, and z
        holds them in that order; with an odd depth it is the order of the columns.
    depth : int, default=3
        Steps per level: ActNorm, reversal of the dimensions, and additive coupling, by a
        network with two hidden layers of width 32.
    learning_rate : float, default=1e-3
        Of Adam without bias correction, with a weight decay of 0.01 for matrices.
    max_epochs : int, default=1
        Passes over the data in :meth:`fit`.
    batch_size : int, default=32
        Rows per step. In one epoch, larger batches end at a lower likelihood.
    validation_fraction : float in (0, 1) or None, default=None
        Share of the rows to hold out. If set, the flow with the best validation loss is kept.
    device : str, default="auto"
        "cpu", "cuda", "cuda:1", "mps" (in float32 only), or "auto": CUDA if it works,
        otherwise the CPU. A fitted flow is used on the CPU where its device is missing.
    random_state : int, RandomState instance or None, default=None
        Seeds the initial weights, the order of the rows and :meth:`sample`.
    verbose : bool, default=False
        Whether to show a progress bar.

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
    parameters_ : dict
        `n_levels` and `depth` of the fit, which :meth:`transform` uses.
    n_features_in_, feature_names_in_
        Number of features seen during fit, and their names when all are strings.

    See Also
    --------
    Whitening : The linear calibration.

    Notes
    -----
    Additive couplings and one epoch are those of the paper's text; width, depth, learning rate
    and Adam are those of its code, which has three levels (config_l3_d3_w32), batches of 64
    sentences, and a decay of biases and scales, too. Two levels follow a post about the method.

    A column that is constant, to the rounding of its values, would make the likelihood
    infinite. In training, random numbers replace it; its dimension of z stays near 0.

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
        "learning_rate": [Interval(Real, 0, None, closed="neither")],
        "max_epochs": [Interval(Integral, 1, None, closed="left")],
        "batch_size": [Interval(Integral, 1, None, closed="left")],
        "validation_fraction": [Interval(Real, 0, 1, closed="neither"), None],
        "device": [str],
        "random_state": ["random_state"],
        "verbose": ["boolean"],
    }
    _state_version = 14
    _learned = ("_mean_square",)

    def __init__(
        self,
        *,
        n_levels: int = 2,
        depth: int = 3,
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
        self.learning_rate = learning_rate
        self.max_epochs = max_epochs
        self.batch_size = batch_size
        self.validation_fraction = validation_fraction
        self.device = device
        self.random_state = random_state
        self.verbose = verbose

    @fit_task(prefer_skip_nested_validation=True, n_subtasks=None)
    def fit(self, X: Any, y: Any = None) -> Self:
        """Train the flow on the rows of X.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            At least 2 rows and 2 columns; float32 is trained in float32, any other type in
            float64. A memory map is read as needed.
        y : None
            Ignored.

        Returns
        -------
        self : NormalizingFlow

        Raises
        ------
        ValueError
            If the device is missing or lacks this data type, or the split leaves no rows.

        Warns
        -----
        ConvergenceWarning
            If the loss became NaN or infinite (the flow is the last good one), or the map and
            its inverse disagree (the flow is useless).
        UserWarning
            If X has fewer than 25 rows, or one column holds most of the variance.
        """
        torch = import_package("torch", "torch")

        from skcalib.calibration.glow import Glow
        from skcalib.calibration.training import train, weights_of

        device = resolve_device(self.device)
        X = checked_rows(self, X, reset=True, ensure_min_samples=2, ensure_min_features=2)
        begin(self.max_epochs)
        # The training has its own generator, so that no other draw interferes.
        seed = check_random_state(self.random_state).randint(np.iinfo(np.int32).max)
        rng = np.random.RandomState(seed)
        rows, held_out = np.arange(len(X)), np.arange(0)
        if (share := self.validation_fraction) is not None:
            rows, held_out = train_test_split(rows, test_size=share, random_state=rng)
            rows, held_out = np.sort(rows), np.sort(held_out)
        mean, deviation = column_moments(X, rows)
        warn_of_massive_column(deviation**2)
        if len(rows) < FEW_ROWS:
            warn(
                f"The flow was fitted on fewer than {FEW_ROWS} rows: the density of new "
                "vectors lies far below that of the fitted ones. Fit on more rows."
            )
        self._mean_square = float(mean @ mean + deviation @ deviation)
        self.parameters_ = {"n_levels": self.n_levels, "depth": self.depth}
        with plain_torch(device):
            network = Glow(X.shape[1], **self.parameters_).to(getattr(torch, X.dtype.name))
            network.initialize(rng, mean, deviation)
            curve = train(network.to(device), X, rows, held_out, self, rng)
            self.weights_ = weights_of(network)
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
        return self._map("decode", X)

    def score_samples(self, X: Any) -> np.ndarray:
        """Log-density of each row under the flow.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)

        Returns
        -------
        log_density : ndarray of shape (n_samples,)
            log p(u) in nats.
        """
        return self._map("log_prob", self._checked(X))

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
        """Draw vectors u from the density: z from N(0, I), mapped back.

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
        rng = check_random_state(self.random_state)
        z = rng.standard_normal((n_samples, self.n_features_in_))
        return self._map("decode", z.astype(self._dtype))

    def to_torch(self) -> torch.nn.Module:
        """Copy the fitted flow into a torch module.

        Returns
        -------
        flow : torch.nn.Module
            On the CPU and in the data type of the fit, with ``forward(u) -> (z, logabsdet)``,
            ``inverse(z) -> (u, logabsdet)`` and ``log_prob(u)``.
        """
        check_is_fitted(self)
        return self._network()

    def _checked(self, X: Any) -> np.ndarray:
        check_is_fitted(self)
        X = checked_rows(self, X, reset=False)
        warn_of_lengths(X, self._mean_square)
        return X

    def _map(self, method: str, X: np.ndarray) -> np.ndarray:
        """Return what a method of the network maps rows to, in their data type."""
        import torch

        device = device_of_fitted(self.device)
        # A float64 fit stays in float64: float32 would round the mean that is subtracted.
        dtype = np.promote_types(X.dtype, self._dtype)
        dtype = X.dtype if device.type == "mps" else dtype
        network = self._network().to(device, getattr(torch, dtype.name))
        # With few rows, intermediate results stay in a CPU's cache; a GPU needs more rows.
        n_rows = 2**10 if device.type == "cpu" else 2**13
        result = np.empty(len(X) if method == "log_prob" else X.shape, X.dtype)
        with plain_torch(device), torch.inference_mode():
            for rows in gen_batches(len(X) or 1, n_rows):
                block = np.ascontiguousarray(X[rows], dtype)  # no negative strides
                values = getattr(network, method)(torch.tensor(block, device=device))
                result[rows] = values.cpu().numpy()
        return result

    def _network(self) -> Glow:
        """Build the fitted network, on the CPU."""
        import torch

        from skcalib.calibration.glow import Glow

        with plain_torch(torch.device("cpu")):
            network = Glow(self.n_features_in_, **self.parameters_)
            weights = {name: torch.tensor(array) for name, array in self.weights_.items()}
            network.load_state_dict(weights, assign=True)
        return network.eval()

    @property
    def _dtype(self) -> np.dtype:
        """Data type of the fitted rows."""
        return self.weights_["standardize.loc"].dtype

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


@np.errstate(over="ignore", invalid="ignore")  # an overflow shows in the result
def column_moments(X: np.ndarray, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Mean and standard deviation of the columns of X over the given rows, in float64."""
    # Differences from the first row: a constant column has a deviation of exactly 0.
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
