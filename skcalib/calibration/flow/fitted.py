"""A fitted flow: the state in which a training starts and ends, and the map of rows."""

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import wraps
from typing import Any

import numpy as np
import torch
from sklearn.utils import gen_batches

from skcalib.base import warn
from skcalib.calibration.flow.glow import Glow
from skcalib.calibration.flow.statistics import column_moments, principal_axes
from skcalib.calibration.moments import check_size
from skcalib.calibration.noise import Regularization, warn_of_massive_column
from skcalib.process.devices import check_precision, plain_torch

# Rows below which the density of new vectors lies far below that of the fitted ones: by more
# than 0.1 nats per dimension without noise, for any number of columns; on principal axes by
# more than 0.5, and by 10 or more where there are as many rows as dimensions.
FEW_ROWS, FEW_ROWS_PER_AXIS = 25, 2

# Parameters that later training cannot change: those of the Glow, and of its gain.
SHAPE = ("n_levels", "depth", "coupling_width", "coupling", "permutation", "noise")
ARCHITECTURE = (*SHAPE, "n_groups")


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

    architecture: dict[str, Any]  # arguments of Glow
    noise: float  # in use, never "auto"
    power: float
    level: float
    n_rows: int  # that fixed the standardization
    rng: np.random.RandomState  # of the next training
    weights: dict[str, np.ndarray]  # in the data type of the rows it was fitted on
    moments: np.ndarray  # Adam's two, (2, n_parameters), in the order of the training's vector
    # Loss of each epoch, and that of held-out rows if any, in nats per sample.
    curve: list[list[float]] = field(default_factory=list)
    _networks: dict[tuple[str, str], Glow] = field(default_factory=dict, init=False)

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
        if key not in self._networks:  # built once per device and data type
            self._networks[key] = self.network().to(device, getattr(torch, dtype.name)).eval()
        # With few rows, intermediate results stay in a CPU's cache; a GPU needs more rows.
        n_rows = 2**10 if device.type == "cpu" else 2**13
        result = np.empty((len(X), width), dtype=X.dtype)
        function = getattr(self._networks[key], method)
        with torch.inference_mode():
            for rows in gen_batches(len(X) or 1, n_rows):
                block = np.ascontiguousarray(X[rows], dtype)  # no negative strides
                values = function(torch.tensor(block, device=device))
                result[rows] = values.reshape(-1, width).cpu().numpy()
        return result

    @property
    def mean_square(self) -> float:
        """Mean of ``|u|²`` over the rows that fixed the standardization."""
        loc, scale, jitter = (
            self.weights[f"standardize.{name}"].astype(np.float64)
            for name in ("loc", "scale", "jitter")
        )
        n = self.n_rows
        biased = 1 if self.architecture["noise"] == 0 else (n - 1) / n  # as `principal_axes`
        return float(loc @ loc + biased * np.sum(scale[jitter == 0] ** -2))

    def warn_of_few_rows(self) -> None:
        """Warn if the density of new vectors says little."""
        d = len(self.weights["gain"])
        enough = FEW_ROWS if self.architecture["noise"] == 0 else FEW_ROWS_PER_AXIS * d
        if self.n_rows < enough:
            warn(
                f"The flow was fitted on fewer than {enough} rows of {d} features: the density "
                "of new vectors lies far below that of the fitted ones. Fit on more rows."
            )

    def __getstate__(self) -> dict[str, Any]:
        return {**vars(self), "_networks": {}}  # only arrays, none on a device


def untrained(
    X: np.ndarray, rows: np.ndarray, rng: np.random.RandomState, settings: Any
) -> FittedFlow:
    """Return a flow that only standardizes the given rows of X.

    ``settings`` has the parameters of :class:`NormalizingFlow`.
    """
    architecture = {name: getattr(settings, name) for name in ARCHITECTURE}
    strength = Regularization(noise=settings.noise, n_groups=settings.n_groups)
    d, noise, permutation = X.shape[1], settings.noise, settings.permutation
    if noise != 0 or permutation == "lu":
        check_size(d, f"permutation={permutation!r} with noise={noise!r}")
    if noise == 0:
        standardization: Any = column_moments(X, rows)
        power, level = 1.0, 0.0
        variances = standardization[1] ** 2
    else:
        *standardization, regularized = principal_axes(X, rows, strength)
        noise, power, level = regularized.noise, regularized.power, regularized.level
        variances = standardization[2] ** 2 @ standardization[1] ** 2
    warn_of_massive_column(variances)
    flow = _glow(d, architecture).to(getattr(torch, X.dtype.name))
    flow.initialize(rng, *standardization)
    n_parameters = sum(parameter.numel() for parameter in flow.parameters())
    moments = np.zeros((2, n_parameters), dtype=X.dtype)
    weights = flow.arrays()
    return FittedFlow(
        architecture, float(noise), power, level, len(rows), rng, weights, moments
    )


def _glow(n_features: int, architecture: dict[str, Any]) -> Glow:
    return Glow(n_features, *(architecture[name] for name in SHAPE))
