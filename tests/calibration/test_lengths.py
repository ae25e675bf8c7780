"""Vectors of unit length where the fitted ones had another, and the other way round."""

import warnings

import numpy as np
import pytest

from skcalib import NormalizingFlow, Whitening

X = 3 * np.random.default_rng(0).normal(size=(80, 9)) + 2
UNIT = X / np.linalg.norm(X, axis=1, keepdims=True)
STEPS = [
    Whitening(power="auto"),
    NormalizingFlow(random_state=0),
]
steps = pytest.mark.parametrize("step", STEPS, ids=lambda value: str(value)[:30])


@steps
@pytest.mark.parametrize(("fitted", "other"), [(X, UNIT), (UNIT, X)], ids=["raw", "unit"])
def test_vectors_scaled_otherwise_than_in_the_fit_warn(step, fitted, other):
    step.fit(fitted)
    for rows in (other, other[:1], other.astype(np.float32)):
        with pytest.warns(UserWarning, match=r"only one of the two has unit length. Pass"):
            step.transform(rows)
    if hasattr(step, "partial_fit"):
        with pytest.warns(UserWarning, match="only one of the two"):
            step.partial_fit(other)


@steps
def test_lengths_that_depend_on_texts_do_not_warn(step):
    for fitted in (X, UNIT):
        step.fit(fitted)
        half = np.float16(fitted).astype(np.float64)
        nothing = np.zeros_like(fitted)
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            for rows in (fitted, 1.9 * fitted, 0.6 * fitted, half, nothing, fitted[:1]):
                step.transform(rows)
            step.transform(np.vstack([nothing[:9], fitted]))
