"""Private names of scikit-learn, torch and transformers.

Two operators of oneDNN are in `encoders.model.packed`, with their fallback.
"""

from typing import Any

import numpy as np
from sklearn.base import _fit_context
from sklearn.utils._param_validation import (
    HasMethods,
    Options,
    RealNotInt,
    validate_parameter_constraints,
    validate_params,
)
from sklearn.utils._param_validation import Interval as _Interval
from sklearn.utils._param_validation import StrOptions as _StrOptions
from sklearn.utils.validation import _check_n_features as check_n_features


class Interval(_Interval):
    """An interval of numbers; it excludes True and False. An error shows the hint, too."""

    def __init__(self, *ends: Any, closed: Any, hint: str = ""):
        super().__init__(*ends, closed=closed)
        self._hint = hint

    def __str__(self) -> str:
        return super().__str__() + self._hint

    def is_satisfied_by(self, val: Any) -> bool:
        """Whether a value is a number in the interval."""
        return not isinstance(val, bool | np.bool_) and super().is_satisfied_by(val)


class StrOptions(_StrOptions):
    """Names in lower case; an error lists them in order, unlike a set, and shows the hint."""

    def __init__(self, options: set[str], hint: str = ""):
        super().__init__(options)
        self._hint = hint

    def __str__(self) -> str:
        listed = ", ".join(map(repr, sorted(self.options)))
        return f"a str among {{{listed}}} in lower case{self._hint}"


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
