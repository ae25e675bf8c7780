"""Private names of scikit-learn, torch and transformers.

Two operators of oneDNN are in `encoders.model.packed`, with their fallback.
"""

from typing import Any

from scipy.sparse import csr_matrix
from sklearn.base import _fit_context
from sklearn.utils._missing import is_pandas_na, is_scalar_nan
from sklearn.utils._param_validation import (
    HasMethods,
    Interval,
    RealNotInt,
    StrOptions,
    validate_parameter_constraints,
    validate_params,
)
from sklearn.utils.validation import _check_n_features as check_n_features

try:  # sparse matrices as scikit-learn's setting ``sparse_interface`` asks for them
    from sklearn.utils._sparse import _align_api_if_sparse as as_sparse_interface
except ImportError:  # before scikit-learn 1.9
    as_sparse_interface = csr_matrix
try:
    from sklearn.callback import CallbackSupportMixin
except ImportError:
    CallbackSupportMixin = object


def check_params(estimator: Any) -> None:
    """Raise the ValueError that `fit` raises for an invalid parameter."""
    estimator._validate_params()


def forked_from_cuda() -> bool:
    """Whether this process was forked from one that had used CUDA, and so cannot use it."""
    import torch

    return getattr(torch.cuda, "_is_in_bad_fork", lambda: False)()


def attention_of(module: Any) -> str | None:
    """Name of the attention that a model of transformers uses; None if it is not known."""
    return getattr(module.config, "_attn_implementation", None)
