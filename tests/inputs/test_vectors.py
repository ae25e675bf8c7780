"""Rows of any magnitude become unit vectors."""

import math

import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_allclose

from skcalib import NeighborSmoothing, Whitening
from skcalib.inputs.vectors import unit_rows
from skcalib.monitoring import shift


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
    pl = pytest.importorskip("polars")
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


@pytest.mark.parametrize("package", ["pandas", "polars"])
@pytest.mark.parametrize("name", ["id", "Index", "Unnamed: 0", "document"])
def test_a_column_that_numbers_rows_is_named(package, name):
    package, X = pytest.importorskip(package), np.random.default_rng(0).normal(size=(40, 3))
    columns = {name: np.arange(900, 860, -1)} | {f"v{i}": x for i, x in enumerate(X.T)}
    frame = package.DataFrame(columns)
    with pytest.raises(ValueError, match=f"The column '{name}' of X numbers the rows"):
        Whitening().fit(frame)
    with pytest.raises(ValueError, match=f"The column '{name}'"):
        shift(X, frame)
    assert Whitening().fit(frame.to_numpy()).n_features_in_ == 4
    columns[name] = np.random.default_rng(1).permutation(40)  # integers may be vectors
    if name == "document":
        assert Whitening().fit(package.DataFrame(columns)).n_features_in_ == 4


@pytest.mark.parametrize(
    ("X", "error", "message"),
    [
        ([{"embedding": [1.0, 2.0]}] * 3, TypeError, "X has a dict, such as {'embedding'"),
        ({"embedding": [[1.0, 2.0]] * 3}, TypeError, "X has a dict"),
        ([b"12345678"] * 3, TypeError, "X has a bytes, such as b'12345678'; expected rows"),
        (np.array([b"\x00\x01"] * 3, object), TypeError, "X has a bytes"),
        (pd.DataFrame({"v": [[1.0, 2.0]] * 3}), TypeError, r"X has a list.*np\.stack\(frame"),
        (np.ones(384), ValueError, r"got 1D array of shape \(384,\)\. Reshape your data"),
    ],
)
def test_what_is_no_row_of_numbers_is_refused_in_a_line(X, error, message):
    for check in (Whitening().fit, lambda rows: shift(np.eye(3), rows)):
        with pytest.raises(error, match=message) as raised:
            check(X)
        assert len(str(raised.value)) < 250
