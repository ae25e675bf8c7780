"""A fitted whitening, or erasure of groups, as the linear map of other libraries.

Other libraries compute ``x W + b`` in float32, with the mean in the bias. The fit gives an
estimate of the error, and a map that would lose the vectors' digits is refused.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from skcalib.calibration.whitening.linear_map import AffineMap
from skcalib.utils.base import import_package

if TYPE_CHECKING:
    from torch import nn

    from skcalib.calibration.whitening.torch_module import WhiteningModule


class LinearExports:
    """Mixin of an estimator that has a `_linear_map`."""

    _linear_map: Any  # an AffineMap
    _not_linear = ""

    def to_torch(self) -> WhiteningModule:
        """Return the map as a ``torch.nn.Module``.

        Returns
        -------
        module : torch.nn.Module
            Maps tensors of shape (..., n_features), and keeps their dtype. Its weights are
            buffers: they are saved with a model and not trained.

        Examples
        --------
        >>> import numpy as np, torch
        >>> from skcalib import Whitening
        >>> X = np.random.default_rng(0).normal(size=(100, 4)) + 50
        >>> whitening = Whitening(2).fit(X)
        >>> module = whitening.to_torch()
        >>> np.allclose(module(torch.from_numpy(X)), whitening.transform(X))
        True
        """
        from skcalib.calibration.whitening.torch_module import WhiteningModule

        return WhiteningModule(self._linear_map)

    def to_sentence_transformers(self) -> nn.Module:
        """Return the map as the last module of a ``SentenceTransformer``.

        Returns
        -------
        dense : sentence_transformers.models.Dense
            With bias, without activation, for the place after the pooling and before any
            ``Normalize``. `skcalib.export.save_sentence_transformer` exports a whole pipeline.

        Raises
        ------
        ValueError
            If a map in float32 with the mean in its bias would lose the vectors' digits, by
            more than 1e-5 of a typical entry.
        """
        W, b = affine_float32(self._linear_map, "to_sentence_transformers")
        name = "sentence_transformers.sentence_transformer.modules"
        modules = import_package("to_sentence_transformers", "sentence-transformers>=5.4", name)
        return dense(modules, W, b)

    def to_faiss(self, *, normalize: bool = False) -> Any:
        """Return the map as a faiss transform, alone or before an index.

        Parameters
        ----------
        normalize : bool, default=False
            Whether to return a whole index, in which inner products are cosines.

        Returns
        -------
        transform : faiss.LinearTransform
            With bias, trained; for ``faiss.IndexPreTransform``. Scale the mapped vectors to
            unit length before an index by inner product.
        index : faiss.IndexPreTransform
            If ``normalize``: maps raw vectors, scales to unit length, and searches exactly by
            inner product.

        Raises
        ------
        ValueError
            As for `to_sentence_transformers`.

        Examples
        --------
        >>> import numpy as np
        >>> from skcalib import Whitening
        >>> X = np.random.default_rng(0).normal(size=(100, 8)).astype(np.float32)
        >>> whitening = Whitening(4).fit(X)
        >>> index = whitening.to_faiss(normalize=True)
        >>> index.add(X)
        >>> index.search(X[:3], 1)[1].ravel().tolist()
        [0, 1, 2]
        """
        W, b = affine_float32(self._linear_map, "to_faiss")
        faiss = import_package("to_faiss", "faiss-cpu", "faiss")
        transform = faiss.LinearTransform(*W.shape, True)
        faiss.copy_array_to_vector(np.ascontiguousarray(W.T).ravel(), transform.A)
        faiss.copy_array_to_vector(b, transform.b)
        transform.is_trained = True
        if not normalize:
            return transform
        width = W.shape[1]
        unit = faiss.NormalizationTransform(width, 2.0)
        index = faiss.IndexPreTransform(unit, faiss.IndexFlatIP(width))
        index.prepend_transform(transform)
        return index


def affine_float32(linear: AffineMap, caller: str) -> tuple[np.ndarray, np.ndarray]:
    """``W`` of shape (d, k) and ``b = bias - mean W``, in float32, or a ValueError."""
    _refuse_lost_digits(linear.uncentred_growth, caller)
    W = linear.projection
    return W.astype(np.float32), (linear.bias - linear.mean @ W).astype(np.float32)


def centred_float32(linear: AffineMap, caller: str) -> tuple[np.ndarray, ...]:
    """``m``, ``W`` and ``b`` of ``(x - m) W + b``, ``m`` near the mean, or a ValueError."""
    _refuse_lost_digits(linear.growth, caller)
    m, W = linear.mean.astype(np.float32), linear.projection
    b = (m - linear.mean) @ W + linear.bias
    return m, W.astype(np.float32), b.astype(np.float32)


def _refuse_lost_digits(growth: float, caller: str) -> None:
    error = np.finfo(np.float32).eps / 2 * growth
    if error > 1e-5:
        raise ValueError(
            f"{caller} gives a map in float32, and this one would lose its digits there: an "
            f"estimated error of {error:.1g} of a typical entry, where 1e-5 is accepted. Keep "
            "fewer components, set noise or shrinkage above 0, or first subtract the means of "
            "groups that are far apart."
        )


def dense(modules: Any, W: np.ndarray, b: np.ndarray) -> Any:
    """Return the module ``x W + b`` of sentence-transformers."""
    import torch

    return modules.Dense(
        *W.shape,
        activation_function=torch.nn.Identity(),
        init_weight=torch.from_numpy(np.ascontiguousarray(W.T)),
        init_bias=torch.from_numpy(b),
    )
