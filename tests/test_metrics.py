"""Correlations equal scipy's, and isotropy measures their definitions, in float64."""

import math

import numpy as np
import pytest
from scipy import stats
from sklearn.exceptions import UndefinedMetricWarning

from skcalib.metrics import (
    aggregate,
    effective_rank,
    isoscore,
    mean_cosine,
    partition_isotropy,
    spearman,
)

isotropies = pytest.mark.parametrize(
    "isotropy", [isoscore, mean_cosine, partition_isotropy, effective_rank]
)


def _judgments(n, *, ties, seed=0):
    rng = np.random.default_rng(seed)
    grades = rng.uniform(0, 5, size=n)
    cosines = np.tanh(0.3 * grades + rng.normal(size=n))
    return (np.round(grades), np.round(cosines, 1)) if ties else (grades, cosines)


def _gaussian(n=400, d=8, seed=0):
    return np.random.default_rng(seed).normal(size=(n, d))


def _anisotropic(n=300, d=24, seed=0):
    """Vectors like BERT's: a large common mean, and a spectrum that falls as a power."""
    rng = np.random.default_rng(seed)
    rotation = np.linalg.qr(rng.normal(size=(d, d)))[0]
    spread = np.arange(1, d + 1) ** -1.2
    return rng.normal(size=(n, d)) * spread @ rotation + 3 * rng.normal(size=d)


DATA = {
    "Gaussian": _gaussian(),
    "anisotropic": _anisotropic(),
    "fewer rows than columns": _anisotropic(n=10),
    "float32": _anisotropic().astype(np.float32),
    "two": _gaussian(n=2, d=3),
}
on_data = pytest.mark.parametrize("X", DATA.values(), ids=DATA)


@pytest.mark.parametrize("ties", [False, True])
@pytest.mark.parametrize("n", [2, 3, 10, 1000])
def test_correlation_equals_that_of_scipy(ties, n):
    grades, cosines = _judgments(n, ties=ties)
    result = spearman(grades, cosines)
    assert type(result) is float
    assert result == pytest.approx(
        stats.spearmanr(grades, cosines).statistic, rel=1e-12, abs=1e-12
    )


@pytest.mark.parametrize("constant", [0.0, 0.1, 1 / 3, 3.0, -2.0])
@pytest.mark.parametrize("side", [0, 1])
def test_correlation_with_a_constant_is_nan_and_warns(constant, side):
    pair = list(_judgments(7, ties=False))
    pair[side] = np.full(7, constant)
    match = "spearman is not defined if one side is constant"
    with pytest.warns(UndefinedMetricWarning, match=match):
        assert math.isnan(spearman(*pair))


@pytest.mark.parametrize(
    ("bad", "match"),
    [
        (["high", "low", "low"], "could not convert string to float"),
        (np.array(["high", 1.0, 2.0], dtype=object), "could not convert string to float"),
        ([0.1, np.nan, 0.3], "{side} contains NaN"),
        ([0.1, 0.2, np.inf], "{side} contains infinity"),
        ([0.1, 0.2, None], "{side} contains NaN"),
    ],
)
@pytest.mark.parametrize("side", ["y_true", "y_pred"])
def test_what_is_no_finite_number_is_named(side, bad, match):
    pair = {"y_true": [1, 2, 3], "y_pred": [1, 2, 3], side: bad}
    with pytest.raises(ValueError, match=match.format(side=side)):
        spearman(**pair)


@pytest.mark.parametrize(
    ("y_true", "y_pred", "match"),
    [
        ([1, 2], [1, 2, 3], r"inconsistent numbers of samples: \[2, 3\]"),
        ([1], [1], r"1 sample\(s\).*minimum of 2"),
        ([], [], r"0 sample\(s\).*minimum of 2"),
        ([[1, 2], [3, 4]], [1, 2], r"1d array.*shape \(2, 2\)"),
    ],
)
def test_judgments_that_do_not_match_are_refused(y_true, y_pred, match):
    with pytest.raises(ValueError, match=match):
        spearman(y_true, y_pred)


GRADES = [0, 1, 2, 3, 0, 1, 2, 0, 1]
PREDICTED = [1, 2, 3, 4, 7, 9, 8, 6, 5]
# In subset "b" the ranks 1, 3, 2 against 1, 2, 3 give 1 - 6 * 2 / 24 = 0.5.
SUBSETS = list("aaaabbbcc")


def test_aggregate_averages_subsets_as_by_hand():
    arguments = GRADES, PREDICTED, SUBSETS
    expected = {"mean": (1.0 + 0.5 - 1.0) / 3, "wmean": (4 * 1.0 + 3 * 0.5 - 2 * 1.0) / 9}
    for how, score in expected.items():
        assert aggregate(*arguments, how=how) == pytest.approx(score)
    assert aggregate(*arguments) == aggregate(*arguments, how="all") == spearman(*arguments[:2])


@pytest.mark.parametrize(
    ("arguments", "how", "match"),
    [
        ((GRADES, PREDICTED, SUBSETS), "median", r"how='median' is unknown. Use 'all', 'mean'"),
        ((GRADES, PREDICTED, SUBSETS[:-1]), "mean", r"inconsistent numbers of samples: \[9, 8"),
        ((GRADES, PREDICTED[:-1], SUBSETS), "all", r"inconsistent numbers of samples: \[9, 8"),
        ((["x"] * 9, PREDICTED, SUBSETS), "all", "could not convert string to float"),
        ((GRADES, PREDICTED, list("aaaabbbbc")), "mean", r"1 sample\(s\).*minimum of 2"),
    ],
)
def test_aggregate_refuses_what_it_cannot_score(arguments, how, match):
    with pytest.raises(ValueError, match=match):
        aggregate(*arguments, how=how)


WAVES = np.column_stack(
    [np.sin(k * np.arange(60.0) + phase) for k, phase in ((1, 0), (2, 2), (3, 1), (5, 2))]
)


@pytest.mark.parametrize(
    ("X", "published"),
    [
        (WAVES, 0.989365551330914),
        (WAVES * [1, 2, 3, 4], 0.495766653011391),
        (WAVES * [1, 2, 3, 4] + 100, 0.495766653011392),
        (WAVES * [1, 0.1, 0.01, 0.001], 0.006831299925323),
        (WAVES[:3], 0.275316395538152),
    ],
    ids=["waves", "graded", "far", "steep", "few"],
)
def test_isoscore_equals_that_of_the_published_package(X, published):
    # What IsoScore 2.0.1 of the paper's authors gives for the same points, in float64.
    assert isoscore(X) == pytest.approx(published, rel=1e-12)


@on_data
def test_mean_cosine_equals_the_loop_over_pairs(X):
    X = X.astype(np.float64)
    cosines = [
        a @ b / math.sqrt((a @ a) * (b @ b)) for i, a in enumerate(X) for b in X[i + 1 :]
    ]
    assert mean_cosine(X) == pytest.approx(math.fsum(cosines) / len(cosines), abs=1e-12)


@on_data
def test_partition_isotropy_equals_its_formula(X):
    X = 0.5 * X.astype(np.float64)
    axes = np.linalg.svd(X)[2]  # the eigenvectors of XᵀX
    partitions = [
        math.fsum(math.exp(sign * (x @ c)) for x in X) for c in axes for sign in (1, -1)
    ]
    expected = min(partitions) / max(partitions)
    assert partition_isotropy(X) == pytest.approx(expected, rel=1e-9)
    assert 0 < partition_isotropy(X) <= 1


@pytest.mark.parametrize("norm", [1.0, 700.0, 1000.0, 1e5])
def test_partition_isotropy_does_not_overflow(norm):
    axes = norm * np.eye(6)
    assert partition_isotropy(np.vstack([axes, -axes])) == pytest.approx(1.0, rel=1e-9)
    # One sign of one axis more than the others: exp(norm) to exp(norm) + exp(norm).
    X = np.vstack([axes, -axes, axes[:1]])
    partition = np.array([math.exp(-norm), 1.0, math.exp(-2 * norm)])  # in units of exp(norm)
    fewest = 1 + 2 * partition[2] + 10 * partition[0]
    most = 2 + partition[2] + 10 * partition[0]
    other = 1 + partition[2] + 11 * partition[0]
    expected = min(fewest, other) / most
    assert partition_isotropy(X) == pytest.approx(expected, rel=1e-9)


@on_data
def test_effective_rank_equals_its_formula(X):
    X = X.astype(np.float64)
    # The singular values from the smaller Gram matrix, whose eigenvalues are their squares.
    gram = X @ X.T if len(X) < X.shape[1] else X.T @ X
    singular = np.sqrt(np.linalg.eigvalsh(gram))
    share = singular / singular.sum()
    expected = math.exp(-math.fsum(p * math.log(p) for p in share))
    assert effective_rank(X) == pytest.approx(expected, rel=1e-6)
    assert 1 <= effective_rank(X) <= min(X.shape)


@isotropies
def test_measures_work_in_float64_and_leave_their_input_alone(isotropy):
    X = _anisotropic().astype(np.float32)
    before = X.copy()
    result = isotropy(X)
    assert type(result) is float
    assert result == isotropy(X.astype(np.float64)) == isotropy(X.tolist())
    np.testing.assert_array_equal(X, before)


@isotropies
@pytest.mark.parametrize(
    ("X", "match"),
    [
        ([[1.0, np.nan], [0.0, 1.0]], r"X contains NaN"),
        ([[1.0, np.inf], [0.0, 1.0]], r"X contains infinity"),
        ([[1.0, 2.0]], r"1 sample\(s\).*minimum of 2"),
        ([1.0, 2.0], r"Expected 2D array, got 1D array"),
        (np.empty((0, 2)), r"0 sample\(s\)"),
    ],
)
def test_measures_refuse_what_is_no_set_of_vectors(isotropy, X, match):
    with pytest.raises(ValueError, match=f"(?s){match}"):
        isotropy(X)


@pytest.mark.parametrize(
    ("isotropy", "X", "match"),
    [
        (isoscore, np.ones((5, 3)), "isoscore is not defined for vectors that are all equal"),
        (isoscore, np.full((3, 2), 0.1), "isoscore is not defined for vectors that are all"),
        (isoscore, [[1.0], [2.0]], r"1 feature\(s\).*minimum of 2"),
        (mean_cosine, [[1.0, 0], [0, 1], [0, 0]], r"Vector 2 is zero and has no cosine\. Drop"),
        (effective_rank, np.zeros((5, 3)), "not defined for vectors that are all zero"),
    ],
)
def test_measures_refuse_vectors_for_which_they_are_undefined(isotropy, X, match):
    with pytest.raises(ValueError, match=match):
        isotropy(X)


def test_subsets_are_not_merged_in_silence():
    pd = pytest.importorskip("pandas")
    big = pd.Series([2**53, 2**53 + 1] * 3, dtype="Int64")
    for two in (big, [1, "1"] * 3):
        # Within each of the two, the order is right.
        assert aggregate([0, 3, 1, 4, 2, 5], [3, 0, 4, 1, 5, 2], two, "mean") == 1
    missing = big.where([True, True, True, False, True, True])
    with pytest.raises(ValueError, match="missing label"):
        aggregate(range(6), range(6), missing, "mean")
