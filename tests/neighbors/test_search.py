"""Exact search by blocks: the same neighbours as a sort of all cosines."""

import numpy as np
import pytest
from numpy.testing import assert_allclose

from skcalib._neighbors import search
from skcalib._neighbors.search import density, nearest
from skcalib._vectors import unit_rows


@pytest.fixture
def unit():
    return unit_rows(np.random.default_rng(0).normal(size=(1000, 24)))[0].astype(np.float32)


@pytest.mark.parametrize("k", [1, 7, 40, 997])
@pytest.mark.parametrize("fitted_at_a_time", [64, 336, 16384])
def test_neighbours_are_those_of_a_sort(unit, k, fitted_at_a_time, monkeypatch):
    """Folded or not, in one block or many, whose last is cut off."""
    monkeypatch.setattr(search, "FITTED", fitted_at_a_time)
    queries, fitted = unit[:300], unit[:997]
    cosines, rows = nearest(queries, fitted, k)
    expected = -np.sort(-queries.astype(np.float64) @ fitted.T, axis=1)[:, :k]
    assert_allclose(-np.sort(-cosines, axis=1), expected, atol=1e-6)
    assert_allclose(np.einsum("ij,ikj->ik", queries, fitted[rows]), cosines, atol=1e-6)
    assert all(len(set(row)) == k for row in rows.tolist())


def test_density_leaves_the_text_itself_out_and_counts_new_texts_alike(unit):
    fitted, new = unit[:600], unit[600:]
    cosines = unit.astype(np.float64) @ fitted.T
    cosines[np.arange(600), np.arange(600)] = -np.inf
    expected = -np.sort(-cosines, axis=1)[:, :30].mean(axis=1)
    assert_allclose(density(fitted, fitted, 30), expected[:600], atol=1e-6)
    assert_allclose(density(new, fitted, 30), expected[600:], atol=1e-6)


@pytest.mark.parametrize("d", [3, 4096])
def test_rounding_does_not_tell_a_text_from_itself(d):
    X = np.random.default_rng(0).normal(size=(500, d)) + 2
    unit = unit_rows(X)[0].astype(np.float32)
    assert (nearest(unit, unit, 1)[0] >= search.EQUAL).all()
