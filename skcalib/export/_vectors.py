"""Fitted steps as maps of vectors in other libraries: torch, sentence-transformers, faiss."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from skcalib.base import import_package
from skcalib.export._steps import affine_float32, combined, dense, fitted_steps, one_map

if TYPE_CHECKING:
    from torch import nn


def to_torch(*steps: Any) -> nn.Module:
    """Return fitted steps as one ``torch.nn.Module`` from vectors to vectors.

    Parameters
    ----------
    *steps : estimators
        Fitted `Whitening`, `GroupErasure`, `NormalizingFlow`,
        `NeighborSmoothing`, scikit-learn's ``Normalizer("l2")``, and pipelines of them, in the
        order in which they transform.

    Returns
    -------
    module : torch.nn.Module
        On the CPU. Maps tensors of shape (..., n_features) and keeps their dtype. The fitted
        arrays are buffers: they are saved with a model and not trained. Vectors are compared
        with every fitted vector, regardless of `neighbors`. For the density of a flow, and to
        train it further, use `NormalizingFlow.to_torch`.

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
    parts = combined(fitted_steps(*steps))
    from torch import nn

    from skcalib.export._modules import module_of

    modules = [module_of(part) for part in parts]
    return modules[0] if len(modules) == 1 else nn.Sequential(*modules)


def to_sentence_transformers(*steps: Any) -> nn.Module:
    """Return fitted linear steps as one module of a ``SentenceTransformer``.

    Parameters
    ----------
    *steps : estimators
        Fitted `GroupErasure` and `Whitening`, and pipelines of them.

    Returns
    -------
    dense : sentence_transformers.models.Dense
        With bias and without activation; it belongs after the pooling and before any
        ``Normalize``. `save_sentence_transformer` exports a whole pipeline.

    Raises
    ------
    TypeError, ValueError
        If a step is not linear, or the map in float32 with the mean in its bias would lose the
        vectors' digits, by more than 1e-5 of a typical entry.
    """
    W, b = affine_float32(one_map(*steps))
    name = "sentence_transformers.sentence_transformer.modules"
    return dense(import_package("sentence-transformers>=5.4", name), W, b)


def to_faiss(*steps: Any, normalize: bool = False) -> Any:
    """Return fitted linear steps as a faiss transform, alone or before an index.

    Parameters
    ----------
    *steps : estimators
        Fitted `GroupErasure` and `Whitening`, and pipelines of them.
    normalize : bool, default=False
        Whether to return a whole index, in which inner products are cosines.

    Returns
    -------
    transform : faiss.LinearTransform
        With bias, trained; for ``faiss.IndexPreTransform``. Scale the mapped vectors to unit
        length before an index by inner product.
    index : faiss.IndexPreTransform
        If ``normalize``: maps raw vectors, scales to unit length, and searches exactly by inner
        product.

    Raises
    ------
    TypeError, ValueError
        As for `to_sentence_transformers`.

    Examples
    --------
    >>> import numpy as np
    >>> from skcalib import Whitening
    >>> from skcalib.export import to_faiss
    >>> X = np.random.default_rng(0).normal(size=(100, 8)).astype(np.float32)
    >>> index = to_faiss(Whitening(4).fit(X), normalize=True)
    >>> index.add(X)
    >>> index.search(X[:3], 1)[1].ravel().tolist()
    [0, 1, 2]
    """
    W, b = affine_float32(one_map(*steps))
    faiss = import_package("faiss-cpu", "faiss")
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
