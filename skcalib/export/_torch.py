"""Fitted steps as a torch module from vectors to vectors."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from skcalib.calibration.map import flat
from skcalib.export._parts import check_steps, combined

if TYPE_CHECKING:
    from torch import nn


def to_torch(*steps: Any) -> nn.Module:
    """Return fitted steps as one ``torch.nn.Module`` from vectors to vectors.

    Parameters
    ----------
    *steps : estimators
        Fitted `Whitening`, `NormalizingFlow`, `NeighborSmoothing`, scikit-learn's
        ``Normalizer("l2")``, and pipelines of them, in the order in which they transform.

    Returns
    -------
    module : torch.nn.Module
        On the CPU. Maps tensors of shape (..., n_features) and keeps their dtype. The fitted
        arrays are buffers: saved with a model, not trained. Neighbors are searched exactly. For
        the density of a flow, and to train it further, use `NormalizingFlow.to_torch`.

    Raises
    ------
    TypeError
        If a step is of another class.

    Examples
    --------
    >>> import numpy as np, torch
    >>> from skcalib import Whitening
    >>> from skcalib.export import to_torch
    >>> X = np.random.default_rng(0).normal(size=(100, 4)) + 50
    >>> whitening = Whitening(2).fit(X)
    >>> module = to_torch(whitening)
    >>> np.allclose(module(torch.from_numpy(X)), whitening.transform(X))
    True
    """
    if not (flattened := [*flat(*steps)]):
        raise ValueError("Got no step; expected fitted steps, such as a Whitening.")
    check_steps(flattened)
    from torch import nn

    from skcalib.export._modules import module_of

    modules = [module_of(part) for part in combined(flattened)]
    return modules[0] if len(modules) == 1 else nn.Sequential(*modules)
