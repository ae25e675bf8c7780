"""Matcher: pairs of two lists, few of them false, from scores without labels."""

import numpy as np
import pandas as pd
import polars as pl
import pytest
from sklearn.neighbors import KNeighborsTransformer

from skcalib import DetailGuard, Matcher
from skcalib.datasets import load_docstrings
from skcalib.similarity.matcher.discoveries import leads, q_values

WIDTH = 32


def lists(seed, n=120, shared=60, noise=0.5, groups=0):
    """Two lists of n vectors each, the first `shared` of which are the same things."""
    rng = np.random.default_rng(seed)
    things = rng.normal(size=(2 * n - shared, WIDTH))
    if groups:
        things += rng.normal(size=(groups, WIDTH))[rng.integers(groups, size=len(things))]
    first, second = things[:n], np.vstack([things[:shared], things[n:]])
    first = first + noise * rng.normal(size=first.shape) + 1
    second = second + noise * rng.normal(size=second.shape) - 1
    return first, second


def quiet(matcher, *data):
    with pytest.warns(UserWarning, match="No pair"):
        return matcher.fit(*data)


def test_partners_are_found_although_both_sides_have_other_means():
    matcher = Matcher().fit(*lists(0))
    i, j = matcher.pairs_.T
    true = (i == j) & (i < 60)
    assert true.sum() >= 50
    assert (~true).sum() <= 0.1 * len(i)
    assert (np.diff(matcher.scores_) <= 0).all()
    assert matcher.threshold_ == matcher.scores_[-1]
    assert (matcher.q_values_ <= 0.05).all()
    assert matcher.n_mutual_ >= len(i)


@pytest.mark.parametrize(("shared", "groups"), [(120, 0), (60, 0), (60, 6), (20, 0)])
@pytest.mark.filterwarnings("ignore:No pair")
def test_share_of_false_pairs_is_as_promised(shared, groups):
    false = []
    for seed in range(25):
        i, j = Matcher().fit(*lists(seed, 120, shared, 1.0, groups)).pairs_.T
        is_true = (i == j) & (i < shared)
        false.append((~is_true).sum() / max(len(i), 1))
    assert np.mean(false) <= 0.06


def test_without_a_common_record_nothing_is_listed():
    listed = 0
    for seed in range(20):
        listed += len(quiet(Matcher(), *lists(seed, 100, 0)).pairs_)
    assert listed == 0


def test_later_leads_are_drawn_like_the_first_lead_of_normal_scores():
    rng = np.random.default_rng(0)
    for n in (30, 200):
        nearest = -np.sort(-rng.normal(size=(20_000, n)), axis=1)[:, :9]
        first = nearest[:, 0] - nearest[:, 1]
        for drawn in leads(nearest, n):
            assert drawn.mean() == pytest.approx(first.mean(), rel=0.03)
            assert np.quantile(drawn, 0.95) == pytest.approx(np.quantile(first, 0.95), rel=0.1)


def test_q_values_bound_the_share_of_false_scores():
    rng = np.random.default_rng(0)
    shares = []
    for _ in range(200):
        false, true = rng.normal(size=60), rng.normal(size=40) + 3
        q = q_values(np.r_[false, true], rng.normal(size=300))
        listed = q <= 0.1
        shares.append(listed[:60].sum() / max(listed.sum(), 1))
        rising = q[np.argsort(np.r_[false, true])]
        assert (rising[1:] <= rising[:-1]).all()
    assert 0.02 < np.mean(shares) <= 0.11
    assert len(q_values(np.empty(0), np.empty(0))) == 0


def test_records_of_the_fit_and_new_ones_get_their_partner_or_none():
    first, second = lists(1)
    matcher = Matcher().fit(first, second)
    partner = matcher.predict(first)
    i, j = matcher.pairs_.T
    np.testing.assert_array_equal(partner[i], j)
    assert (partner[np.setdiff1d(np.arange(120), i)] == -1).all()
    assert (matcher.predict(np.random.default_rng(9).normal(size=(50, WIDTH)) + 1) == -1).all()


def test_equal_records_count_once_and_the_first_is_listed():
    first, second = lists(2)
    i, j = Matcher().fit(first, second).pairs_.T
    again = Matcher().fit(np.vstack([first, first[:30]]), np.vstack([second, second[::-1]]))
    assert {*map(tuple, again.pairs_)} == {*zip(i.tolist(), j.tolist(), strict=True)}


def test_frames_of_vectors_are_taken_as_arrays():
    first, second = lists(5)
    pairs = Matcher().fit(first, second).pairs_
    names = [f"x{i}" for i in range(WIDTH)]
    shop, other = pd.DataFrame(first, columns=names), pl.DataFrame(second, schema=names)
    matcher = Matcher().fit(shop.set_index(shop.index + 1000), other)
    np.testing.assert_array_equal(matcher.pairs_, pairs)
    assert matcher.feature_names_in_.tolist() == names


def test_lengths_of_vectors_and_their_type_do_not_matter():
    first, second = lists(3)
    pairs = Matcher().fit(first, second).pairs_
    scaled = Matcher().fit(first * 7, second * np.linspace(1, 2, len(second))[:, None])
    np.testing.assert_array_equal(scaled.pairs_, pairs)
    in_float32 = Matcher().fit(first.astype(np.float32), second.astype(np.float32))
    np.testing.assert_array_equal(in_float32.pairs_, pairs)


@pytest.mark.filterwarnings("ignore:cannot assign tie-breaking")
def test_an_index_finds_the_same_pairs_and_what_it_misses_is_left_out():
    first, second = lists(4)
    matcher = Matcher().fit(first, second)
    index = KNeighborsTransformer(metric="cosine", algorithm="brute")
    indexed = Matcher(neighbors=index).fit(first, second)
    np.testing.assert_array_equal(indexed.pairs_, matcher.pairs_)
    np.testing.assert_array_equal(indexed.predict(first), matcher.predict(first))
    assert indexed.neighbors_.n_neighbors == 9
    assert not hasattr(index, "n_features_in_")  # a clone was fitted
    missing = Matcher(neighbors=Half()).fit(first, second)
    i, j = missing.pairs_.T
    assert 10 < len(i) < len(matcher.pairs_)
    assert (i == j).mean() >= 0.9
    assert missing.predict(first).min() == -1


class Half(KNeighborsTransformer):
    """An index that finds nothing for every other query, and less for some."""

    def transform(self, X):
        graph = super().transform(X).tolil()
        graph[::2] = 0
        graph[1::8] = np.where(np.arange(graph.shape[1]) < 60, graph[1::8].toarray(), 0)
        return graph.tocsr()


@pytest.mark.usefixtures("minilm", "remembered")
def test_texts_of_frames_are_matched_and_a_guard_separates_numbers():
    texts = load_docstrings().data[::7]
    shop = pd.Series(texts[:177], index=range(1000, 1177))
    other = pd.Series([f"{text.lower()} Part 2." for text in texts[44:]])
    numbered = [f"{text} Part {1 + i % 2}." for i, text in enumerate(shop)]
    i, j = Matcher("minilm").fit(numbered, other).pairs_.T
    assert len(i) > 100
    assert (i - j == 44).mean() > 0.95
    guarded = Matcher("minilm", guard=DetailGuard()).fit(numbered, other)
    i, j = guarded.pairs_.T
    assert len(i) > 20
    assert (i % 2 == 1).all()  # which have "Part 2."
    predicted = guarded.predict(numbered)
    assert (predicted[0::2] == -1).all()
    np.testing.assert_array_equal(predicted[i], j)
    guarded.guard.set_params(numbers=False)  # which the next fit heeds
    np.testing.assert_array_equal(guarded.predict(numbered), predicted)
    guarded.set_params(guard=None)
    np.testing.assert_array_equal(guarded.predict(numbered), predicted)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ((np.eye(5), np.eye(3, 5)), "B has n_samples=3 records, 3 of them different"),
        ((np.ones((9, 4)), np.eye(9, 4)), "A has n_samples=9 records, 1 of them different"),
        ((np.eye(5), np.eye(6)), "B has 6 features, but X has 5"),
        ((np.eye(5), np.full((5, 5), np.nan)), "B contains NaN"),
    ],
)
def test_lists_that_cannot_be_matched_are_refused(data, message):
    matcher = Matcher()
    with pytest.raises(ValueError, match=message):
        matcher.fit(*data)
    assert not hasattr(matcher, "pairs_")


def test_a_guard_needs_texts():
    with pytest.raises(ValueError, match="guard, which reads texts, but no encoder"):
        Matcher(guard=DetailGuard()).fit(*lists(0))


def test_equal_lists_and_short_ones_give_a_warning():
    first, second = lists(4, 120, 120, 0.1)
    with pytest.warns(UserWarning, match="A and B are the same records"):
        Matcher().fit(first, first)
    with pytest.warns(UserWarning, match="A list has 15 different records"):
        Matcher().fit(first[:15], second[:15])
