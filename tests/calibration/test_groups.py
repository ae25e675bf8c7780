"""GroupErasure: the theorem, merges, routing, and scikit-learn's contract."""

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from sklearn import config_context
from sklearn.exceptions import NotFittedError
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.utils.estimator_checks import parametrize_with_checks

from skcalib import BertEncoder, GroupErasure, Whitening
from skcalib.datasets import load_toy_sts

few_texts = pytest.mark.filterwarnings("ignore:.*groups have fewer than 20:UserWarning")


@pytest.mark.filterwarnings("ignore:GroupErasure got y:UserWarning")  # of the checks
@parametrize_with_checks([GroupErasure()])
def test_scikit_learn_contract(estimator, check):
    check(estimator)


@pytest.fixture
def groups():
    return np.random.default_rng(1).choice(
        ["de", "en", "es", "fr"], 900, p=[0.1, 0.5, 0.2, 0.2]
    )


@pytest.fixture
def X(groups):
    """Vectors far from the origin whose groups lie apart in three directions."""
    rng = np.random.default_rng(0)
    apart = dict(zip(("de", "en", "es", "fr"), rng.normal(size=(4, 12)), strict=True))
    return rng.normal(size=(900, 12)) + np.array([apart[g] for g in groups]) + 100


def test_squares_that_overflow_are_refused(X, groups):
    with pytest.raises(ValueError, match="squares of X overflow float64: the largest"):
        GroupErasure().fit(X * 1e200, groups=groups)


def spread(X, groups):
    """Distances of the group means from the overall mean."""
    return [np.linalg.norm(X[groups == g].mean(0) - X.mean(0)) for g in np.unique(groups)]


def test_group_means_become_the_overall_mean_and_nothing_else_changes(X, groups):
    erasure = GroupErasure().fit(X, groups=groups)
    erased = erasure.transform(X)
    assert min(spread(X, groups)) > 1
    assert_allclose(spread(erased, groups), 0, atol=1e-11)
    assert_allclose(erased.mean(0), X.mean(0), rtol=1e-13)
    Q = erasure.components_
    assert_allclose(Q @ Q.T, np.eye(3), atol=1e-12)
    rest = np.linalg.svd(Q)[2][3:]  # the directions beside Q
    assert_allclose(erased @ rest.T, X @ rest.T, rtol=1e-12)
    means = np.array([X[groups == g].mean(0) for g in erasure.groups_])
    assert_allclose(erasure.means_, means, rtol=1e-13)
    assert_array_equal(erasure.group_count_, [(groups == g).sum() for g in erasure.groups_])


def test_no_linear_classifier_tells_erased_groups_apart(X, groups):
    erased = GroupErasure().fit_transform(X, groups=groups)
    largest = (groups == "en").mean()
    classifier = LogisticRegression(C=1e6, tol=1e-8, max_iter=10_000)
    assert classifier.fit(X - X.mean(0), groups).score(X - X.mean(0), groups) > largest + 0.2
    assert_allclose(classifier.fit(erased - erased.mean(0), groups).coef_, 0, atol=1e-8)


def test_directions_that_depend_on_each_other_count_once():
    rng = np.random.default_rng(0)
    means = np.outer([0, 1, 2, 1], rng.normal(size=6)) + 1e3  # four on a line, two of them one
    X = means.repeat(50, axis=0) + np.tile(rng.normal(size=(50, 6)), (4, 1))
    erasure = GroupErasure().fit(X, groups=np.repeat(list("abcd"), 50))
    assert erasure.components_.shape == (1, 6)
    same = GroupErasure().fit(np.tile(X[:50], (2, 1)), groups=np.repeat([0, 1], 50))
    assert same.components_.shape == (0, 6)
    assert_array_equal(same.transform(X), X)


def test_parts_equal_the_whole(X, groups):
    whole = GroupErasure().fit(X, groups=groups)
    order = np.argsort(groups)  # so that no part has all groups
    cuts = np.split(order, [50, 51, 400])
    parts = GroupErasure()
    for rows in cuts:
        parts.partial_fit(X[rows], groups=groups[rows])
    first, *others = [GroupErasure().partial_fit(X[r], groups=groups[r]) for r in cuts]
    for ours in (parts, first.merge(*others)):
        assert_allclose(ours.means_, whole.means_, rtol=1e-13)
        assert_array_equal(ours.group_count_, whole.group_count_)
        assert_allclose(ours.transform(X), whole.transform(X), rtol=1e-11)


def test_digits_below_a_large_common_mean_are_kept(groups):
    X = np.random.default_rng(0).normal(size=(900, 8)) + 1e7
    means = GroupErasure().fit(X, groups=groups).means_
    expected = [X[groups == g].astype(np.longdouble).mean(0) for g in np.unique(groups)]
    assert_allclose(means, np.array(expected, dtype=float), rtol=1e-15)


def test_groups_that_are_missing_or_of_both_kinds_are_refused(X, groups):
    for given, match in [
        ([*groups[:-1], None], "groups has a missing label, None. Drop it, or replace it"),
        ([*np.zeros(899), np.nan], "groups has a missing label, nan"),
        ([*groups[:-1], np.nan], "a missing label"),  # which NumPy would turn into "nan"
        (np.array([*groups[:-1], np.nan], object), "a missing label"),  # a column of pandas
        ([*groups[:-1], 1], "have several types"),
        (np.ma.masked_array(groups, mask=groups == "de"), "a missing label"),
        (groups[:10], r"inconsistent numbers of samples: \[900, 10\]"),
    ]:
        with pytest.raises(ValueError, match=match):
            GroupErasure().fit(X, groups=given)


@few_texts
def test_numbers_do_not_join_their_names(X):
    erasure = GroupErasure().partial_fit(X[:20], groups=np.arange(20) % 2)
    erased, names = erasure.transform(X), np.array(["0", "1"] * 10)
    match = "integers in one part and str in another, such as 1 and '1'. Give the groups of all"
    with pytest.raises(ValueError, match=match):
        erasure.partial_fit(X[20:40], groups=names)
    with pytest.raises(ValueError, match=match):
        erasure.merge(GroupErasure().fit(X[20:40], groups=names))
    assert_array_equal(erasure.transform(X), erased)  # as before the error


def test_groups_are_routed_through_a_pipeline(X, groups):
    erased = GroupErasure().fit_transform(X, groups=groups)
    expected = Whitening(noise="auto").fit_transform(erased)
    pipeline = make_pipeline(GroupErasure(), Whitening(noise="auto"))
    assert_array_equal(pipeline.fit_transform(X, grouperasure__groups=groups), expected)
    with config_context(enable_metadata_routing=True):
        assert_array_equal(pipeline.fit(X, groups=groups).transform(X), expected)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("noise", [0.0, "auto"])
def test_whitening_behind_it_is_silent_about_lost_directions(X, groups, dtype, noise):
    erased = GroupErasure().fit_transform(X.astype(dtype), groups=groups)
    whitening = Whitening(noise=noise).fit(erased)
    whitened = whitening.transform(erased)
    assert_allclose(spread(whitened, groups), 0, atol=1e-4 * whitened.std())
    assert whitening.rank_ == (9 if noise == 0.0 else 12)  # shrinkage fills the rank


@pytest.mark.filterwarnings("ignore:There are fewer than 5 samples")
def test_rounding_in_erased_directions_of_real_vectors_is_no_variance(minilm):
    toy = load_toy_sts()
    X = BertEncoder(minilm, layers=3).fit_transform(toy.data[::2].ravel())
    groups = toy.subset[::2].repeat(2)
    rank = Whitening().fit(X).rank_
    for dtype in (np.float32, np.float64):
        erased = GroupErasure().fit_transform(X.astype(dtype), groups=groups)
        assert Whitening().fit(erased).rank_ == rank - len(np.unique(groups)) + 1


@pytest.mark.parametrize("labels", [list, np.asarray, "Series", "Categorical"])
def test_labels_of_any_kind(X, groups, labels):
    if isinstance(labels, str):
        labels = getattr(pytest.importorskip("pandas"), labels)
    erasure = GroupErasure().fit(X, groups=labels(groups))
    assert erasure.groups_.tolist() == ["de", "en", "es", "fr"]
    assert erasure.fit(X, groups=labels(groups == "en")).groups_.tolist() == [False, True]


def test_vectors_of_float32_are_erased_in_float64(X, groups):
    erasure = GroupErasure().fit(X, groups=groups)
    single = erasure.transform(X.astype(np.float32))
    assert single.dtype == np.float32
    assert_allclose(single, erasure.transform(X), rtol=1e-6)


def test_errors_say_what_groups_are(X, groups):
    erasure = GroupErasure().fit(X, groups=groups)
    for given, match in [
        ([b"de"] * 900, "neither str nor numbers"),
        (np.arange(900) % 50, "50 groups differ in every direction of n_features=12"),
    ]:
        with pytest.raises(ValueError, match=match):
            erasure.fit(X, groups=given)
        with pytest.raises(NotFittedError):  # nothing half-fitted
            erasure.transform(X)
    with pytest.raises(TypeError, match="merge got a Whitening; expected fitted Group"):
        GroupErasure().fit(X).merge(Whitening())


@pytest.mark.parametrize("given", [None, ["en"] * 900])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_the_mean_of_a_single_group_is_subtracted(X, given, dtype):
    X = X.astype(dtype)
    erased = GroupErasure().fit_transform(X, groups=given)
    assert erased.dtype == dtype
    assert_allclose(erased, X.astype(float) - X.mean(axis=0, dtype=float), atol=1e-5)
    erasure = GroupErasure().fit(X, groups=given)
    assert (len(erasure.groups_), erasure.components_.shape) == (1, (0, 12))
    assert erasure.variance_kept_ == pytest.approx(1)
    parts = GroupErasure().partial_fit(X[:1], groups=given and given[:1])
    assert_array_equal(parts.transform(X[:1]), np.zeros((1, 12)))
    parts.partial_fit(X[1:], groups=given and given[1:])
    assert_allclose(parts.transform(X), erased, atol=1e-5)


def test_a_single_group_is_exported(X):
    erasure = GroupErasure().fit(X)
    assert_allclose(erasure.linear_map().apply(X), erasure.transform(X), atol=1e-12)


def test_small_groups_warn(X, groups):
    with pytest.warns(UserWarning, match="1 of 2 groups have fewer than 20 .* 'rare' with 19"):
        GroupErasure().fit(X, groups=["rare"] * 19 + ["en"] * 881)
    stream = GroupErasure().partial_fit(X[:5], groups=["rare"] * 5)
    stream.partial_fit(X[5:], groups=groups[5:])
    with pytest.warns(UserWarning, match="1 of 5 groups have fewer than 20 .* 'rare' with 5"):
        stream.transform(X)


@few_texts
@pytest.mark.parametrize(
    "ids",
    [
        np.array([2**53, 2**53 + 1], dtype=np.float64) + [0, 2],
        np.array([2**24, 2**24 - 1], dtype=np.float32),
        np.array([2**63 + 1, 2**63 + 2], dtype=np.uint64),
        [2**53 + 1, 0.5],
        [True, 1],
        [-1, 2**63],
    ],
)
def test_groups_that_would_be_merged_in_silence_are_refused(X, ids):
    with pytest.raises(ValueError, match=r"groups (has|mixes) .*((to|as) str|True equals 1)"):
        GroupErasure().fit(X[:40], groups=ids.repeat(20) if hasattr(ids, "dtype") else ids * 20)


@few_texts
def test_large_integers_stay_different_groups(X):
    pd = pytest.importorskip("pandas")
    ids = [2**53, 2**53 + 1] * 20
    for groups in (ids, np.array(ids, np.uint64), pd.Series(ids, dtype="Int64")):
        part = GroupErasure().fit(X[:40], groups=groups)
        signed = GroupErasure().fit(X[40:80], groups=np.array(ids) - 2**53)
        assert part.groups_.tolist() == ids[:2]
        assert part.merge(signed).groups_.tolist() == [0, 1, *ids[:2]]
    with pytest.raises(ValueError, match="are integers in one part and bool in another"):
        signed.merge(GroupErasure().fit(X[:40], groups=[True, False] * 20))
    match = r"integers in .* and floats in another, such as 9007\d+ and 1\.5"
    with pytest.raises(ValueError, match=match):
        part.merge(GroupErasure().fit(X[:40], groups=[0.5, 1.5] * 20))


@pytest.mark.parametrize("way", ["fit", "partial_fit", "merge"])
def test_little_that_is_left_warns_once(way):
    rng = np.random.default_rng(0)
    groups = np.arange(400) % 8
    X = 10 * rng.normal(size=(8, 16))[groups] + rng.normal(size=(400, 16))
    rest = {"X": X[250:], "groups": groups[250:]}

    def fitted():
        if way == "fit":
            return GroupErasure().fit(X, groups=groups)
        erasure = GroupErasure().partial_fit(X[:250], groups=groups[:250])
        if way == "merge":
            return erasure.merge(GroupErasure().partial_fit(**rest))
        return erasure.partial_fit(**rest)

    def erase():
        erasure = fitted()
        return erasure, erasure.transform(X)

    with pytest.warns(UserWarning, match=r"leaves 0\.\d+ % of the .* as clusters") as told:
        erasure, erased = erase()
    assert len(told) == 1
    assert_array_equal(erasure.transform(X), erased)  # and no second warning
    left = erased.var(axis=0).sum() / X.var(axis=0).sum()
    assert erasure.variance_kept_ == pytest.approx(left, rel=0.1)
