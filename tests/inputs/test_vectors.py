"""Rows of any magnitude become unit vectors."""

import math

import numpy as np
import pytest
from numpy.testing import assert_allclose

from skcalib import NeighborSmoothing, Whitening
from skcalib.inputs.vectors import unit_rows


@pytest.mark.parametrize("scale", [5e-324, 1e-200, 1.0, 1e200, 1e308])
def test_rows_of_any_magnitude_are_scaled_to_unit_length(scale):
    rows = scale * np.array([[0.0, 0.0], [1.0, 0.0], [-1.0, 1.0]])
    unit, lengths = unit_rows(rows)
    half = math.sqrt(0.5)
    assert_allclose(unit, [[0, 0], [1, 0], [-half, half]], rtol=1e-15)
    assert_allclose(lengths, [0, scale, scale * math.sqrt(2)], rtol=1e-15)


def test_rows_in_float32_are_scaled_in_float64():
    unit, lengths = unit_rows(np.float32([[0.1, 0.3]]))
    assert unit.dtype == lengths.dtype == np.float64
    assert_allclose(np.linalg.norm(unit), 1, rtol=1e-15)


def test_a_row_that_is_not_finite_spoils_no_other():
    unit, _ = unit_rows(np.array([[1.0, np.inf], [np.nan, 0.0], [3.0, 4.0]]))
    assert np.isnan(unit[:2]).any(axis=1).all()
    assert_allclose(unit[2], [0.6, 0.8])


@pytest.mark.parametrize("estimator", [Whitening(), NeighborSmoothing()])
def test_columns_of_vectors_and_numbers_of_16_bits_are_rows(estimator):
    pd, pl = pytest.importorskip("pandas"), pytest.importorskip("polars")
    rows = np.random.default_rng(0).normal(size=(40, 3)).astype(np.float16)
    expected = estimator.fit_transform(rows.astype(np.float32))
    wide = rows.astype(np.float32)
    of_lists = pl.Series(wide.tolist(), dtype=pl.List(pl.Float32))
    for given in (rows, pd.Series([*wide]), pl.Series(wide), of_lists):
        found = estimator.fit_transform(given)
        assert found.dtype == np.float32
        assert_allclose(found, expected, rtol=1e-5, atol=1e-6)
    with pytest.raises(ValueError, match="same shape"):
        estimator.fit(pd.Series([[1.0, 2.0], [1.0]]))
