"""Cosines in blocks: those of one product in float64, however small the blocks are."""

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from sklearn import config_context

from skcalib import cosines as kernel
from skcalib.inputs.vectors import unit_rows

# Of working memory: rows of 30 float32 cosines one by one, seven at a time, all at once.
MEMORY = [1e-5, 7 * 120 / 2**20, 1024]


@pytest.fixture(scope="module")
def rows():
    """Two of them are equal, and two nearly so."""
    X = np.random.default_rng(0).normal(size=(30, 5))
    X[[7, 20]], X[11] = X[3], X[12] + 1e-4
    return unit_rows(X)[0].astype(np.float32)


@pytest.fixture(scope="module")
def columns():
    return unit_rows(np.random.default_rng(1).normal(size=(17, 5)))[0].astype(np.float32)


def product(a, b):
    return a.astype(np.float64) @ b.astype(np.float64).T


@pytest.mark.parametrize("memory", MEMORY)
def test_blocks_cover_every_pair_once(rows, columns, memory):
    for others, expected in (
        (None, np.where(np.triu(np.ones((30, 30)), 1), product(rows, rows), -np.inf)),
        (columns, product(rows, columns)),
    ):
        found, times = np.full_like(expected, -np.inf), np.zeros(expected.shape)
        with config_context(working_memory=memory):
            for block, part, cosines in kernel.blocks(rows, others):
                assert len(cosines) == 1 or cosines.nbytes <= memory * 2**20
                found[block, part], times[block, part] = cosines, times[block, part] + 1
        assert_allclose(found, expected, atol=1e-6)
        assert (times[np.isfinite(expected)] == 1).all()
        assert times.max() == 1


@pytest.mark.parametrize("memory", MEMORY)
def test_pairs_above_are_those_of_float64(rows, memory):
    expected = product(rows, rows)
    # A cosine that occurs, so that a product in float32 may be on either side of it.
    threshold = np.quantile(expected, 0.9, method="nearest")
    with config_context(working_memory=memory):
        i, j, cosines = map(np.concatenate, zip(*kernel.above(rows, threshold), strict=True))
    order = np.lexsort((j, i))
    assert_array_equal([i[order], j[order]], np.nonzero(np.triu(expected >= threshold, 1)))
    assert_allclose(cosines, expected[i, j], rtol=0, atol=1e-15)


@pytest.mark.parametrize("memory", MEMORY)
@pytest.mark.parametrize("k", [1, 4, 30])
def test_nearest_are_those_of_float64(rows, k, memory):
    exact = product(rows, rows)
    with config_context(working_memory=memory):
        cosines, near = kernel.nearest(rows, rows, k)
    largest = -np.sort(-exact)[:, :k]
    assert_allclose(np.sort(cosines)[:, ::-1], largest, atol=1e-6)
    assert_allclose(np.take_along_axis(exact, near, axis=1), cosines, atol=1e-6)
    assert all(len(set(row)) == k for row in near.tolist())


def test_nearest_of_many_columns_are_found_by_stripes():
    rng = np.random.default_rng(0)
    entries = rng.normal(size=(50, 1003)).astype(np.float32)
    entries[:, ::7] = entries[:, :1]  # many equal ones
    found = np.take_along_axis(entries, kernel.largest(entries, 5), axis=1)
    assert_array_equal(np.sort(found), np.sort(entries)[:, -5:])


@pytest.mark.parametrize("memory", MEMORY)
def test_best_of_others_leaves_out_its_own_row(rows, columns, memory):
    own = np.arange(30) % 18 - 1  # -1 for none
    allowed = np.where(own[:, None] == np.arange(17), -1, product(rows, columns))
    with config_context(working_memory=memory):
        best = kernel.best_of_others(rows, own, 9 * columns)
        alone = kernel.best_of_others(rows, np.zeros(30, int), columns[:1])
    assert_allclose(best, allowed.max(axis=1), atol=1e-6)
    assert (alone == -1).all()
