"""SpaceAligner: the regression, neighbors that stay, bad pairs, the contract."""

import numpy as np
import pytest
from numpy.testing import assert_allclose
from sklearn.base import clone
from sklearn.linear_model import Ridge, RidgeCV
from sklearn.model_selection import KFold, cross_val_predict
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import normalize
from sklearn.utils import gen_batches
from sklearn.utils.estimator_checks import parametrize_with_checks

from skcalib import BertEncoder, SpaceAligner
from skcalib.calibration.aligner import PENALTIES
from skcalib.datasets import load_docstrings
from skcalib.export import to_torch

few_pairs = pytest.mark.filterwarnings("ignore:The pairs do not belong|.*vectors are zero")


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
@few_pairs
def test_the_map_is_the_ridge_regression_of_the_least_leave_one_out_error(n):
    X, y = pairs_of(n)
    mean_eigenvalue = ((X - X.mean(axis=0)) ** 2).sum() / X.shape[1]
    expected = RidgeCV(PENALTIES * mean_eigenvalue).fit(X, y)
    aligner, new = SpaceAligner().fit(X, y), pairs_of(50, seed=1)[0]
    assert aligner.alpha_ == pytest.approx(expected.alpha_)
    assert_allclose(aligner.transform(new), expected.predict(new), rtol=1e-9)


def nearest(queries, stored, share=0.01):
    """Sets of the nearest stored vectors, which are not the query's own."""
    Q, D = (Z / np.linalg.norm(Z, axis=1, keepdims=True) for Z in (queries, stored))
    order = np.argsort(-(Q @ D.T - 3 * np.eye(len(D))), axis=1)
    return [set(row) for row in order[:, : max(1, round(share * len(D)))]]


def shared(first, second):
    return np.mean([len(a & b) / len(a) for a, b in zip(first, second, strict=True)])


@pytest.mark.parametrize("noise", [0.3, 2.0])
@few_pairs
def test_neighbors_of_left_out_texts_are_those_of_new_ones(noise):
    """`kept_` is no more than what stays of new texts, and close to it."""
    X, y = pairs_of(2000, noise)
    aligner = SpaceAligner().fit(X[:1000], y[:1000])
    new = slice(1000, 2000)
    kept = shared(nearest(aligner.transform(X[new]), y[new]), nearest(y[new], y[new]))
    assert kept - 0.1 < aligner.kept_ < kept + 0.03


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
        assert_allclose(other.linear_map().projection, alone.linear_map().projection)


@few_pairs
def test_shuffled_pairs_are_noticed():
    X, y = pairs_of(500)
    for seed in range(5):
        shuffled = np.random.default_rng(seed).permutation(y)
        with pytest.warns(UserWarning, match="The pairs do not belong together, or are"):
            assert SpaceAligner().fit(X, shuffled).kept_ < 0.1
    with pytest.warns(UserWarning, match="together, or are too few"):
        SpaceAligner().fit(X[:20], y[20:40])


def test_few_pairs_are_named():
    X, y = pairs_of(500)
    with pytest.warns(UserWarning, match="^499 pairs do not show what is lost"):
        SpaceAligner().fit(X[1:], y[1:])
    SpaceAligner().fit(X, y)  # without a warning


@pytest.mark.parametrize(
    ("change", "match"),
    [
        (lambda X, y: (X, None), "requires y to be passed, but the target y is None. Pass the"),
        (lambda X, y: (X, y[:-1]), "inconsistent numbers of samples"),
        (lambda X, y: (X[:5], y[:5]), "a minimum of 6 is required"),
        (
            lambda X, y: (X[[0, 0, 1, 2, 3, 4]], y[[0, 0, 1, 2, 3, 4]]),
            "Got 5 distinct pairs with content",
        ),
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
    assert_allclose(aligner.linear_map().projection[0], 0)


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
    kept = shared(nearest(asked, stored), nearest(stored, stored))
    assert kept > 0.5
    assert kept - 0.15 < pipeline[-1].kept_ < kept
    module = to_torch(pipeline[-1])
    torch = pytest.importorskip("torch")
    given = new.transform(others[:5])
    assert_allclose(module(torch.from_numpy(given)), pipeline[-1].transform(given), atol=1e-5)


def test_copies_count_once_though_they_differ_in_the_last_bits():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(550, 12)) @ rng.normal(size=(12, 12)) + 3
    Y = X[:, :8] + 0.3 * rng.normal(size=(550, 8))
    alone = SpaceAligner().fit(X, Y)
    copies = (X * (1 + 1e-7 * rng.choice([-1, 1], size=X.shape))).astype(np.float32)
    twice = SpaceAligner().fit(np.vstack([X, copies]), np.vstack([Y, Y]))
    assert twice.n_pairs_ == alone.n_pairs_ == 550
    assert twice.kept_ == pytest.approx(alone.kept_, abs=0.01)


def test_kept_neighbors_are_those_of_fits_on_half_of_the_pairs_and_of_the_penalty():
    rng = np.random.default_rng(0)
    meaning = rng.normal(size=(100, 8))
    X, Y = (meaning @ rng.normal(size=(8, d)) + rng.normal(size=(100, d)) for d in (30, 20))
    aligner = SpaceAligner().fit(X, Y)
    folds, kept = KFold(2, shuffle=True, random_state=0), []
    for alpha in (aligner.alpha_ / 2, aligner.alpha_):
        moved = normalize(cross_val_predict(Ridge(alpha), X, Y, cv=folds))
        nearest = [
            (vectors @ normalize(Y).T - 9 * np.eye(100)).argmax(axis=1)
            for vectors in (moved, normalize(Y))
        ]
        kept.append(np.mean(nearest[0] == nearest[1]))
    assert aligner.kept_ == kept[0] != kept[1]
