"""A fitted flow: what a training starts from, what it ends with, and how rows go through it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch

from skcalib._flow.glow import Glow
from skcalib._flow.rows import map_rows, within_memory
from skcalib._flow.statistics import column_moments, principal_axes
from skcalib._machine.devices import check_precision
from skcalib._machine.limits import check_size

__all__ = ["FittedFlow", "untrained"]

# Parameters of the estimator that no later training can change.
ARCHITECTURE = ("n_levels", "depth", "coupling_width", "coupling", "permutation", "noise")


@dataclass(frozen=True, eq=False)
class FittedFlow:
    """The whole state of a flow, in arrays of the CPU whatever device it was trained on."""

    n_features: int
    architecture: dict[str, Any]  # the other arguments of Glow
    dtype: str  # of the rows it was fitted on
    noise: float  # in units of the mean eigenvalue; chosen, where "auto" was asked for
    rng: np.random.RandomState  # which the next training draws from
    weights: dict[str, np.ndarray]
    adam_state: list[np.ndarray] | None = None  # the two moments; None before any training
    # Loss of each epoch, and that of held-out rows if any, in nats per sample.
    curve: list[tuple[float, float | None]] = field(default_factory=list)
    _networks: dict[tuple[str, str], Glow] = field(default_factory=dict, init=False)

    def network(self) -> Glow:
        """Build the network, on the CPU, in the data type of the fit."""
        flow = Glow(self.n_features, **self.architecture)
        weights = {name: torch.tensor(array) for name, array in self.weights.items()}
        flow.load_state_dict(weights, assign=True)
        return flow

    def map(self, function: Callable, X: np.ndarray, device: torch.device) -> Any:
        """Return ``function(network, X)``, computed on the device, in the data type of X."""
        check_precision(device, X.dtype)
        message = (
            f"A block of rows does not fit into the memory of {device}: free some, or use "
            "device='cpu'."
        )
        return within_memory(message, self._map, function, X, device)

    def _map(self, function: Callable, X: np.ndarray, device: torch.device) -> Any:
        key = (str(device), X.dtype.name)
        if key not in self._networks:  # built once per device and data type
            flow = self.network().to(device, getattr(torch, X.dtype.name))
            self._networks[key] = flow.requires_grad_(False).eval()
        return map_rows(function, self._networks[key], X, device)

    def __getstate__(self) -> dict[str, Any]:
        return {**vars(self), "_networks": {}}  # arrays only, none of a device


def untrained(
    X: np.ndarray, rows: np.ndarray, rng: np.random.RandomState, settings: Any
) -> FittedFlow:
    """Return a flow that standardises the given rows of X and does no more.

    ``settings`` has the parameters of :class:`NormalizingFlow`.
    """
    d, noise, dtype = X.shape[1], settings.noise, X.dtype.name
    if settings.permutation == "lu":
        check_size(d, "permutation='lu'")
    chosen, axes, whitening = 0.0, None, None
    if noise == 0:
        mean, deviation = column_moments(X, rows)
    else:
        check_size(d, f"noise={noise!r}")
        mean, deviation, axes, whitening, chosen = principal_axes(X, rows, noise)
    architecture = {name: getattr(settings, name) for name in ARCHITECTURE}
    flow = Glow(d, **architecture).to(getattr(torch, dtype))
    flow.initialize(mean, deviation, rng, axes, whitening)
    return FittedFlow(d, architecture, dtype, chosen, rng, flow.arrays())
