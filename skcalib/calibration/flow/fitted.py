"""A fitted flow: the state in which a training starts and ends, and the map of rows."""

import math
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import reduce, wraps
from typing import Any

import numpy as np
import torch
from sklearn.preprocessing import StandardScaler
from sklearn.utils import gen_batches

from skcalib.base import warn
from skcalib.calibration.flow.glow import Glow
from skcalib.calibration.moments import Moments, check_size, decompose, rounding_error
from skcalib.calibration.noise import Regularization, Regularized, warn_of_massive_column
from skcalib.process import caches
from skcalib.process.devices import check_precision, plain_torch

# Rows below which the density of new vectors lies far below that of the fitted ones: by more
# than 0.1 nats per dimension, for any number of columns; on principal axes by more than 0.5,
# and by 10 or more where there are as many rows as dimensions.
FEW_ROWS, FEW_ROWS_PER_AXIS = 25, 2

# Parameters that later training cannot change.
ARCHITECTURE = ("n_levels", "depth", "noise", "n_groups")

TOO_LARGE = (
    "X has entries whose squares overflow float64. Scale X to about 1, or drop such rows if "
    "they are few."
)


def on_device(function: Callable) -> Callable:
    """Run a function in `plain_torch`; raise a MemoryError if its ``device`` has too little.

    The error is raised outside of the `except`: otherwise it would refer to the caught one,
    whose traceback holds the GPU's memory, in a notebook until the next error.
    """

    @wraps(function)
    def guarded(*arguments: Any, device: torch.device) -> Any:
        try:
            with plain_torch(device):
                return function(*arguments, device=device)
        except torch.cuda.OutOfMemoryError:
            pass
        raise MemoryError(
            f"A batch of rows does not fit into the memory of {device}. Free some memory, use "
            "device='cpu', or, in training, a lower batch_size."
        )

    return guarded


@dataclass(frozen=True, eq=False)
class FittedFlow:
    """The complete state of a flow, in arrays on the CPU, wherever it was trained."""

    architecture: dict[str, Any]
    noise: float  # in use, never "auto"
    power: float
    level: float
    n_rows: int  # that fixed the standardization
    mean_square: float  # of these rows
    rng: np.random.RandomState  # of the next training
    weights: dict[str, np.ndarray]  # in the data type of the rows it was fitted on
    moments: np.ndarray  # Adam's two, (2, n_parameters), in the order of the training's vector
    # Loss of each epoch, and that of held-out rows if any, in nats per sample.
    curve: list[list[float]] = field(default_factory=list)

    def network(self) -> Glow:
        """Build the network, on the CPU, in the data type of the fit."""
        with plain_torch(torch.device("cpu")):
            flow = _glow(len(self.weights["gain"]), self.architecture)
            weights = {name: torch.tensor(array) for name, array in self.weights.items()}
            flow.load_state_dict(weights, assign=True)
        return flow

    @on_device
    def map(self, method: str, X: np.ndarray, width: int, *, device: torch.device) -> Any:
        """Return a method's result for X, with ``width`` columns, in the data type of X."""
        check_precision(device, X.dtype)
        # A float64 fit stays in float64: float32 would round the mean that is subtracted.
        dtype = np.promote_types(X.dtype, self.weights["gain"].dtype)
        dtype = X.dtype if device.type == "mps" else dtype
        key = (str(device), dtype.name)
        networks = caches.NETWORKS.setdefault(self, {})
        if key not in networks:  # built once per device and data type
            networks[key] = self.network().to(device, getattr(torch, dtype.name)).eval()
        # With few rows, intermediate results stay in a CPU's cache; a GPU needs more rows.
        n_rows = 2**10 if device.type == "cpu" else 2**13
        result = np.empty((len(X), width), dtype=X.dtype)
        function = getattr(networks[key], method)
        with torch.inference_mode():
            for rows in gen_batches(len(X) or 1, n_rows):
                block = np.ascontiguousarray(X[rows], dtype)  # no negative strides
                values = function(torch.tensor(block, device=device))
                result[rows] = values.reshape(-1, width).cpu().numpy()
        return result

    def warn_of_few_rows(self) -> None:
        """Warn if densities along principal axes, or samples, say little of new vectors."""
        if self.architecture["noise"] != 0:
            _warn_of_few_rows(self.n_rows, FEW_ROWS_PER_AXIS * len(self.weights["gain"]))


def untrained(
    X: np.ndarray, rows: np.ndarray, rng: np.random.RandomState, settings: Any
) -> FittedFlow:
    """Return a flow that only standardizes the given rows of X.

    ``settings`` has the parameters of :class:`NormalizingFlow`.
    """
    architecture = {name: getattr(settings, name) for name in ARCHITECTURE}
    strength = Regularization(noise=settings.noise, n_groups=settings.n_groups)
    noise, power, level = 0.0, 1.0, 0.0
    if settings.noise == 0:
        mean, deviation = column_moments(X, rows)
        standardization: Any = mean, deviation
        column_variances = deviation**2
    else:
        check_size(X.shape[1], f"noise={settings.noise!r}")
        *standardization, regularized = principal_axes(X, rows, strength)
        noise, power, level = regularized.noise, regularized.power, regularized.level
        mean, deviation, axes, _ = standardization
        column_variances = axes**2 @ deviation**2 * (1 - 1 / len(rows))  # as `column_moments`
    warn_of_massive_column(column_variances)
    _warn_of_few_rows(len(rows), FEW_ROWS)
    mean_square = float(mean @ mean + column_variances.sum())
    flow = _glow(X.shape[1], architecture).to(getattr(torch, X.dtype.name))
    flow.initialize(rng, *standardization)
    moments = np.zeros((2, sum(p.numel() for p in flow.parameters())), dtype=X.dtype)
    start = architecture, float(noise), power, level, len(rows), mean_square
    return FittedFlow(*start, rng, flow.arrays(), moments)


def _warn_of_few_rows(n: int, enough: int) -> None:
    if n < enough:
        warn(
            f"The flow was fitted on fewer than {enough} rows: the density of new vectors lies "
            "far below that of the fitted ones. Fit on more rows."
        )


def _glow(n_features: int, architecture: dict[str, Any]) -> Glow:
    n_levels, depth, noise = (architecture[name] for name in ARCHITECTURE[:3])
    return Glow(n_features, n_levels, depth, rotates=noise != 0)


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
        raise ValueError(TOO_LARGE)
    if 0 < spread < math.sqrt(np.finfo(np.float64).tiny / np.finfo(np.float64).eps):
        raise ValueError(
            f"X varies by no more than {spread:.3g}, whose square underflows float64. Scale X "
            "to about 1."
        )
    return origin + scaler.mean_, np.sqrt(scaler.var_)


@np.errstate(over="ignore", invalid="ignore")  # an overflow shows in the result
def principal_axes(
    X: np.ndarray, rows: np.ndarray, strength: Regularization
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray, Regularized]:
    """Principal axes of X over the given rows, and the weight of each in the noise filter.

    Returns the mean (d,), the deviation along the axes (d,), 0 beyond the numerical rank, the
    axes in columns (d, d), their positive gain (d,), and the regularization in use. The gain is
    that of a `Whitening`; with a power below 1, in units of the largest deviation, since the
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
    return moments.mean, deviation, axes, bounded.gain() / unit, regularized
