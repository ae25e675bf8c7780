"""What skcalib uses of scikit-learn's private interface: a new release breaks one file."""

import inspect
from numbers import Real
from typing import Any

import numpy as np
from sklearn.base import _fit_context
from sklearn.utils._array_api import get_namespace_and_device
from sklearn.utils._param_validation import (
    HasMethods,
    RealNotInt,
    StrOptions,
    validate_parameter_constraints,
)
from sklearn.utils._param_validation import Interval as _Interval
from sklearn.utils._set_output import _get_output_config
from sklearn.utils.validation import _check_n_features as check_n_features
from sklearn.utils.validation import _check_sample_weight

from skcalib.utils.vectors import unmasked

MOST = 1e15  # of a sample's weight
# A batch of partial_fit may weigh nothing; newer releases of scikit-learn refuse that.
ALL_ZERO = {"allow_all_zero_weights": True}
if not ALL_ZERO.keys() <= inspect.signature(_check_sample_weight).parameters.keys():
    ALL_ZERO = {}


class Interval(_Interval):
    """Numbers in an interval, to which True and False do not belong, although Python counts."""

    def is_satisfied_by(self, val: Any) -> bool:
        """Whether a value is such a number."""
        return not isinstance(val, bool | np.bool_) and super().is_satisfied_by(val)


def check_sample_weight(sample_weight: Any, X: Any) -> Any:
    """Weights of the rows of ``X``, float64 and of its namespace, none negative; or None."""
    if sample_weight is None or not X.shape[0]:
        return sample_weight
    weight = _check_sample_weight(
        unmasked(sample_weight), X, dtype=np.float64, ensure_non_negative=True, **ALL_ZERO
    )
    if not float(weight.max()) <= MOST:
        raise ValueError(
            f"sample_weight has {float(weight.max()):.3g}, whose products would overflow. Give "
            f"weights up to {MOST:g}, such as numbers of texts."
        )
    return weight


def check_rate(rate: Any, caller: str) -> float:
    """Return a rate, or raise a ValueError unless it is above 0 and below 1."""
    name, interval = "false_positive_rate", Interval(Real, 0, 1, closed="neither")
    validate_parameter_constraints({name: [interval]}, {name: rate}, caller)
    return float(rate)


def check_params(estimator: Any) -> None:
    """Raise a ValueError for a parameter that `fit` would refuse by its constraints."""
    estimator._validate_params()


def get_output_container(estimator: Any) -> str:
    """Container of what `transform` returns: "default", "pandas" or "polars"."""
    return _get_output_config("transform", estimator)["dense"]
