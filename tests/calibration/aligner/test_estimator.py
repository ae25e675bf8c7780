"""SpaceAligner: the regression, neighbors that stay, bad pairs, the contract."""

import re

import numpy as np
import pytest
from numpy.testing import assert_allclose
from sklearn.base import clone
from sklearn.linear_model import Ridge, RidgeCV
from sklearn.pipeline import make_pipeline
from sklearn.utils import gen_batches
from sklearn.utils.estimator_checks import parametrize_with_checks

from skcalib import BertEncoder, SpaceAligner
from skcalib.calibration.aligner.ridge import PENALTIES, held_out
from skcalib.calibration.aligner.ridge import Ridge as OurRidge
from skcalib.datasets import load_docstrings
from skcalib.export import to_torch

few_pairs = pytest.mark.filterwarnings(
    "ignore:The pairs do not belong|Of a text's nearest|.*vectors are zero"
)


@few_pairs
@parametrize_with_checks([SpaceAligner()])
def test_scikit_learn_contract(estimator, check):
    check(estimator)


def pairs_of(n, noise=0.3, seed=0):
    """Vectors of the same texts by two models, of which the second has fewer dimensions."""
    rng = np.random.default_rng(seed)
    maps = rng.normal(size=(6, 14)), rng.normal(size=(6, 8))
    meaning = rng.normal(size=(n, 6))
    return [meaning @ M + noise * rng.normal(size=(n, M.shape[1])) + 3 for M in maps]


@pytest.mark.parametrize("n", [10, 60])  # fewer pairs than dimensions, and more
def test_the_map_is_the_ridge_regression_of_the_least_leave_one_out_error(n):
    X, y = pairs_of(n)
    mean_eigenvalue = ((X - X.mean(axis=0)) ** 2).sum() / X.shape[1]
    expected = RidgeCV(PENALTIES * mean_eigenvalue).fit(X, y)
    ridge = OurRidge.fit(X, y)
    assert ridge.alpha == pytest.approx(expected.alpha_)
    new = pairs_of(50, seed=1)[0]
    predicted = y.mean(axis=0) + (expected.predict(new) - y.mean(axis=0)) @ ridge.output
    assert_allclose(ridge.linear.apply(new), predicted, rtol=1e-9)


def test_new_vectors_spread_as_the_other_model_s():
    """In all as much, and along each axis as the geometric mean of predicted and own."""
    X, y = pairs_of(40, noise=1)
    ridge = OurRidge.fit(X, y)
    predicted = np.empty_like(y)
    for i in range(len(X)):
        rows = np.arange(len(X)) != i
        found = Ridge(ridge.alpha).fit(X[rows], y[rows]).predict(X[i : i + 1])
        predicted[i] = found[0] - y.mean(axis=0)
    centered = y - y.mean(axis=0)
    _, own, axes = np.linalg.svd(centered)
    before, after = (
        np.linalg.norm(Z @ axes.T, axis=0) for Z in (predicted, predicted @ ridge.output)
    )
    assert np.linalg.norm(before) < 0.95 * np.linalg.norm(centered)
    assert np.linalg.norm(after) == pytest.approx(np.linalg.norm(centered))
    ratios = after / np.sqrt(before * own)
    assert_allclose(ratios, ratios[0])


@pytest.mark.parametrize("rank", [None, 3])
def test_neighbors_are_those_of_fits_without_both_texts(rank):
    X, y = pairs_of(24)
    ridge, n = OurRidge.fit(X, y, rank), len(X)
    cosines = np.zeros((n, n))
    for i, j in np.ndindex(n, n):
        rows = np.setdiff1d(np.arange(n), [i, j])
        found = Ridge(ridge.alpha).fit(X[rows], y[rows]).predict(X[i : i + 1])[0]
        found = y.mean(axis=0) + (found - y.mean(axis=0)) @ ridge.output
        cosines[i, j] = found @ y[j] / np.linalg.norm(found) / np.linalg.norm(y[j])
    matched = (cosines < np.diag(cosines)[:, None]).sum() / (n * (n - 1))
    np.fill_diagonal(cosines, -1)
    units = y / np.linalg.norm(y, axis=1, keepdims=True)
    own = units @ units.T - 2 * np.eye(n)
    assert held_out(ridge, X, y).matched == pytest.approx(matched)
    kept = np.mean(cosines.argmax(axis=1) == own.argmax(axis=1))
    assert held_out(ridge, X, y).kept == pytest.approx(kept)


@few_pairs
def test_a_low_rank_has_the_least_error_of_its_rank():
    X, y = pairs_of(200, noise=0.0)
    Z = SpaceAligner(3).fit(X, y).transform(X)
    assert np.linalg.matrix_rank(Z - Z.mean(axis=0), tol=1e-6) == 3
    left = np.linalg.svd(y - y.mean(axis=0))[1][3:]
    assert np.linalg.norm(Z - y) == pytest.approx(np.linalg.norm(left), rel=1e-3)


@few_pairs
def test_digits_below_a_large_common_mean_are_kept():
    X, y = pairs_of(100)
    expected = SpaceAligner().fit(X, y).transform(X)
    assert_allclose(
        SpaceAligner().fit(X + 1e6, y + 1e6).transform(X + 1e6) - 1e6, expected, atol=1e-6
    )


@few_pairs
def test_repeated_and_empty_pairs_do_not_count():
    X, y = pairs_of(80)
    alone = SpaceAligner().fit(X, y)
    twice = SpaceAligner().fit(np.vstack([X, X[::-1]]), np.vstack([y, y[::-1]]))
    with pytest.warns(UserWarning, match="1 of 81 vectors are zero"):
        silent = SpaceAligner().fit(np.vstack([X, X[:1]]), np.vstack([y, 0 * y[:1]]))
    for other in (twice, silent):
        assert (other.kept_, other.n_pairs_) == (alone.kept_, 80)
        assert_allclose(other.coef_, alone.coef_)


def test_shuffled_pairs_are_noticed():
    X, y = pairs_of(500)
    for seed in range(5):
        shuffled = np.random.default_rng(seed).permutation(y)
        with pytest.warns(UserWarning, match="The pairs do not belong together: a translated"):
            assert SpaceAligner().fit(X, shuffled).kept_ < 0.1
    with pytest.warns(UserWarning, match="together, or 20 pairs are too few"):
        SpaceAligner().fit(X[:20], y[20:40])
    half = np.r_[250:0:-1, 250:500]
    with pytest.warns(UserWarning, match=r"neighbors \d+ % stay"):
        SpaceAligner().fit(X, y[half])


def test_too_few_pairs_are_noticed_and_more_are_named():
    X, y = pairs_of(2000, noise=1.6)
    few = r"estimated from 60 pairs\. It may be too low with so few\. Pass 1,000 pairs"
    with pytest.warns(UserWarning, match=few):
        SpaceAligner().fit(X[:60], y[:60])
    with pytest.warns(UserWarning, match=r"1,000 pairs to 2,000, 10 times as many will not do"):
        SpaceAligner().fit(X, y)


def test_the_number_of_pairs_that_keep_half_is_right_within_a_factor_of_two():
    rng = np.random.default_rng(0)
    maps = rng.normal(size=(2, 100, 120))
    meaning = rng.normal(size=(2400, 100)) / np.sqrt(np.arange(1, 101))
    X, y = (meaning @ M + rng.normal(size=(2400, 120)) for M in maps)
    with pytest.warns(UserWarning, match="half takes about") as caught:
        SpaceAligner().fit(X[:400], y[:400])
    number = re.search(r"about ([\d,]+)\.", str(caught[0].message))[1]
    n = int(number.replace(",", ""))
    assert 400 < n <= 1200
    fewer, more = (held_out(OurRidge.fit(X[:m], y[:m]), X[:m], y[:m]) for m in (n // 2, 2 * n))
    assert fewer.kept < 0.5 <= more.kept


@pytest.mark.parametrize(
    ("change", "match"),
    [
        (lambda X, y: (X, None), "requires y to be passed, but the target y is None. Pass the"),
        (lambda X, y: (X, y[:-1]), "inconsistent numbers of samples"),
        (lambda X, y: (X[:2], y[:2]), "a minimum of 3 is required"),
        (lambda X, y: (X[[0, 0, 0, 1]], y[[0, 0, 0, 1]]), "Got 2 distinct pairs with content"),
        (lambda X, y: (np.where(X > 3, np.nan, X), y), "X contains NaN"),
        (lambda X, y: (X, np.where(y > 3, np.nan, y)), "y contains NaN"),
        (lambda X, y: (0 * X + 1, y), "All 30 vectors of X are equal"),
        (lambda X, y: (X, 0 * y + 1), "All 30 vectors of y are equal"),
        (lambda X, y: (X * 1e200, y), "overflow float64. Scale them down"),
        (lambda X, y: (X * 1e-170, y), "underflow float64. Scale X to about 1"),
    ],
)
@few_pairs
def test_bad_pairs_are_refused(change, match):
    X, y = pairs_of(30)
    with pytest.raises(ValueError, match=match):
        SpaceAligner().fit(*change(X, y))
    with pytest.raises(ValueError, match="n_components=9 exceeds the 8 columns of y"):
        SpaceAligner(9).fit(X, y)
    with pytest.raises(TypeError, match="Got texts, such as 'a'"):
        SpaceAligner().fit(X, ["a"] * 30)
    with pytest.raises(ValueError, match="X has 8 features, but SpaceAligner is expecting 14"):
        SpaceAligner().fit(X, y).transform(y)


@few_pairs
def test_constant_columns_stay_constant():
    X, y = pairs_of(60)
    X[:, 0], y[:, 1] = 5, 7
    aligner = SpaceAligner().fit(X, y)
    assert_allclose(aligner.transform(X)[:, 1], 7)
    assert_allclose(aligner.coef_[0], 0)


@few_pairs
def test_blocks_of_a_memory_map_equal_the_whole(tmp_path):
    X, y = (np.float32(Z) for Z in pairs_of(400))
    for name, Z in (("X", X), ("y", y)):
        np.save(tmp_path / f"{name}.npy", Z)
    stored = [np.load(tmp_path / f"{name}.npy", mmap_mode="r") for name in ("X", "y")]
    aligner = SpaceAligner().fit(*stored)
    assert aligner.transform(stored[0]).dtype == np.float32
    blocks = [aligner.transform(stored[0][rows]) for rows in gen_batches(400, 90)]
    whole = SpaceAligner().fit(X, y).transform(X)
    assert_allclose(np.vstack(blocks), whole, rtol=1e-5, atol=1e-6)  # float32, entries near 1


@pytest.fixture(scope="module")
def sentences():
    return load_docstrings().data[::2]


def test_new_queries_find_what_they_found_in_the_old_index(sentences, minilm, tmp_path):
    """The old model is another layer; what is kept of new texts is about `kept_`."""
    new = BertEncoder(minilm, memory=tmp_path)  # of both layers
    old = clone(new).set_params(layers=(-2,))
    texts, others = sentences[::2], sentences[1::2]
    pipeline = make_pipeline(new, SpaceAligner()).fit(texts, old.fit_transform(texts))
    stored, asked = old.transform(others), pipeline.transform(others)

    def nearest(Q):
        Q, D = (Z / np.linalg.norm(Z, axis=1, keepdims=True) for Z in (Q, stored))
        return np.argsort(-(Q @ D.T - 2 * np.eye(len(D))), axis=1)[:, : len(D) // 100]

    found = [set(a) & set(b) for a, b in zip(nearest(stored), nearest(asked), strict=True)]
    kept = np.mean([*map(len, found)]) / (len(stored) // 100)
    assert kept > 0.5
    assert pipeline[-1].kept_ == pytest.approx(kept, abs=0.1)
    module = to_torch(pipeline[-1])
    torch = pytest.importorskip("torch")
    given = new.transform(others[:5])
    assert_allclose(module(torch.from_numpy(given)), pipeline[-1].transform(given), atol=1e-5)
