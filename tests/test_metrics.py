"""Spearman's correlation equals scipy's, and subsets are averaged as by hand."""

import math

import numpy as np
import pytest
from scipy import stats
from sklearn.exceptions import UndefinedMetricWarning

from skcalib.metrics import aggregate, spearman


def _judgments(n, *, ties, seed=0):
    rng = np.random.default_rng(seed)
    grades = rng.uniform(0, 5, size=n)
    cosines = np.tanh(0.3 * grades + rng.normal(size=n))
    return (np.round(grades), np.round(cosines, 1)) if ties else (grades, cosines)


@pytest.mark.parametrize("ties", [False, True])
@pytest.mark.parametrize("n", [2, 3, 10, 1000])
def test_correlation_equals_that_of_scipy(ties, n):
    grades, cosines = _judgments(n, ties=ties)
    result = spearman(grades, cosines)
    assert type(result) is float
    assert result == pytest.approx(
        stats.spearmanr(grades, cosines).statistic, rel=1e-12, abs=1e-12
    )


@pytest.mark.parametrize("shift", [0.0, 1e6])
def test_correlation_of_a_line_is_one_and_never_more(shift):
    y = _judgments(50, ties=False)[0]
    assert spearman(y, 3 * y + shift) == pytest.approx(1.0, abs=1e-9)
    assert spearman(y, -3 * y + shift) == pytest.approx(-1.0, abs=1e-9)
    for seed in range(50):
        y = _judgments(5, ties=True, seed=seed)[0] + np.arange(5) / 3
        assert -1.0 <= spearman(y, -0.1 * y) <= spearman(y, 0.1 * y) <= 1.0


@pytest.mark.parametrize("container", [list, np.atleast_2d, lambda y: y.astype(object)])
def test_judgments_may_come_in_any_container(container):
    grades, cosines = _judgments(20, ties=True)
    given = container(grades)
    given = given.T if np.ndim(given) == 2 else given  # a column
    assert spearman(given, cosines) == spearman(grades, cosines)


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
        (["high", "low", "low"], "has dtype <U4; expected numbers"),
        (np.array(["high", 1.0, 2.0], dtype=object), "could not convert string to float"),
        ([0.1, np.nan, 0.3], "{side} contains NaN"),
        ([0.1, 0.2, np.inf], "{side} contains infinity"),
        ([0.1, 0.2, None], "{side} contains NaN"),
        (np.ma.masked_less([3, 1, 2], 2), "{side} contains NaN"),
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


@pytest.mark.parametrize("how", ["all", "mean", "wmean"])
def test_aggregate_takes_any_metric(how):
    def metric(y_true, y_pred):
        return float(y_true[0] - y_pred[-1])

    expected = {"all": -5.0, "mean": (-4 - 8 - 5) / 3, "wmean": -(4 * 4 + 3 * 8 + 2 * 5) / 9}
    result = aggregate(GRADES, PREDICTED, SUBSETS, how=how, metric=metric)
    assert result == pytest.approx(expected[how], rel=1e-12)


@pytest.mark.parametrize(
    ("arguments", "how", "match"),
    [
        ((GRADES, PREDICTED, SUBSETS), "median", r"how='median' is unknown. Use 'all', 'mean'"),
        ((GRADES, PREDICTED, SUBSETS[:-1]), "mean", r"inconsistent numbers of samples: \[9, 8"),
        ((GRADES, PREDICTED[:-1], SUBSETS), "all", r"inconsistent numbers of samples: \[9, 8"),
        ((["x"] * 9, PREDICTED, SUBSETS), "all", "has dtype <U1; expected numbers"),
        ((GRADES, PREDICTED, list("aaaabbbbc")), "mean", r"1 sample\(s\).*minimum of 2"),
    ],
)
def test_aggregate_refuses_what_it_cannot_score(arguments, how, match):
    with pytest.raises(ValueError, match=match):
        aggregate(*arguments, how=how)


def test_large_floats_and_columns_of_integers_keep_their_digits():
    assert spearman([1e16, 1e16 + 2, 1e16 + 4], [0, 1, 2]) == pytest.approx(1)
    pd = pytest.importorskip("pandas")
    integers = pd.Series([2**53 + i for i in range(6)], dtype="Int64")
    assert spearman(integers, range(6)) == pytest.approx(1)
    with pytest.raises(ValueError, match="NaN"):
        spearman(pd.Series([1, None, 2], dtype="Int64"), range(3))


def count(y_true, y_pred):
    return len(y_true)


@pytest.mark.parametrize("least", [2**53, 2**63 - 1, 10**25, 10**299])
def test_integers_of_any_size_stay_different(least):
    numbers = [least, least + 1, least + 2, least + 1, 0]
    for large in (numbers, np.array(numbers, object)):
        assert spearman(large, [1, 2, 3, 2, 0]) == pytest.approx(1)
    rows = [aggregate(range(20), range(20), numbers[:4] * 5, "mean", metric=count)]
    assert rows == [pytest.approx(20 / 3)]


@pytest.mark.parametrize("scale", [1e308, 1e-310])
def test_floats_of_any_size_correlate(scale):
    y = np.array([-1.0, 0.5, 0.25, 1.5])
    assert spearman(y, scale * y) == pytest.approx(1)
    assert spearman(-scale * y, [1, 2, 3, 4]) == pytest.approx(spearman(-y, [1, 2, 3, 4]))


def test_integers_with_and_without_a_sign_stay_different():
    mixed = np.array([np.int64(2**53), np.uint64(2**53 + 1), np.uint64(2**63 + 1)], object)
    assert spearman(mixed, [0, 1, 2]) == pytest.approx(1)
    assert aggregate([0, 1, 2], [2, 1, 0], mixed, "mean", metric=count) == 1


def test_subsets_are_not_merged_in_silence():
    pd = pytest.importorskip("pandas")
    big = pd.Series([2**53, 2**53 + 1] * 2, dtype="Int64")
    for two in (big, [1, "1"] * 2):
        assert aggregate([0, 1, 2, 3], [0, 1, 2, 3], two, "mean", metric=count) == 2
    for subsets, match in [
        ([True, 1, True, 1], "True equals 1"),
        ([2.0**53, 2.0**53 + 2] * 2, "rounded, so different labels may have become equal"),
        (big.where([True, True, True, False]), "missing label, <NA>"),
        (np.ma.masked_array(big.to_numpy(), mask=[0, 0, 0, 1]), "missing label"),
    ]:
        with pytest.raises(ValueError, match=match):
            aggregate([0, 1, 2, 3], [0, 1, 2, 3], subsets, "mean")
