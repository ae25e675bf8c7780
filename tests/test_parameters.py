"""Parameters of every estimator: True and False are no numbers."""

import numpy as np
import pytest

import skcalib
from skcalib._sklearn_compat import Interval

ESTIMATORS = [
    kind
    for kind in map(vars(skcalib).get, skcalib.__all__)
    if isinstance(kind, type) and hasattr(kind, "_parameter_constraints")
]
NUMBERS = [
    (kind, name)
    for kind in ESTIMATORS
    for name, options in kind._parameter_constraints.items()
    if any(isinstance(option, Interval) for option in options)
]


@pytest.mark.parametrize(("kind", "name"), NUMBERS)
@pytest.mark.parametrize("value", [True, np.True_])
def test_a_bool_is_no_number(kind, name, value):
    needs_a_model = kind in (
        skcalib.TextEncoder,
        skcalib.ZeroShotClassifier,
        skcalib.NearestAnswer,
    )
    estimator = kind(*[print] * needs_a_model).set_params(**{name: value})
    with pytest.raises(ValueError, match=f"The '{name}' parameter of {kind.__name__} must be"):
        estimator.fit(np.eye(4))


def test_weights_that_would_overflow_are_refused():
    for weight in (1e308, np.float64(1e16)):
        with pytest.raises(
            ValueError, match=r"whose products would overflow\. Give weights up to"
        ):
            skcalib.Whitening().fit(np.eye(4), sample_weight=[1, 1, 1, weight])
