"""Matcher: pairs of two lists, few of them false, from scores without labels."""

import numpy as np
import pandas as pd
import polars as pl
import pytest
from sklearn.base import clone
from sklearn.neighbors import KNeighborsTransformer

from skcalib import DetailGuard, Matcher
from skcalib.datasets import load_docstrings
from skcalib.similarity.matcher.discoveries import Decoys, q_values

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
    np.testing.assert_array_equal(matcher.mutual_pairs_[: len(i)], matcher.pairs_)
    np.testing.assert_array_equal(matcher.mutual_q_values_[: len(i)], matcher.q_values_)
    assert (matcher.mutual_q_values_[len(i) :] > 0.05).all()
    assert (np.diff(matcher.mutual_q_values_) >= 0).all()
    assert len(matcher.mutual_pairs_) > len(i)


def shares(rates, draws, make):
    """Mean share of false pairs at each rate, and mean number of true ones at the first."""
    false, true = [], []
    for seed in range(draws):
        first, second, n_true = make(seed)
        matcher = Matcher(false_discovery_rate=0.999).fit(first, second)
        i, j = matcher.mutual_pairs_.T
        is_true = (i == j) & (i < n_true)
        listed = [matcher.mutual_q_values_ <= rate for rate in rates]
        false.append([(~is_true)[at].sum() / max(at.sum(), 1) for at in listed])
        true.append(is_true[listed[0]].sum())
    return np.mean(false, axis=0), np.mean(true)


@pytest.mark.parametrize(("shared", "groups"), [(120, 0), (60, 0), (60, 6), (20, 0)])
@pytest.mark.filterwarnings("ignore:No pair")
def test_share_of_false_pairs_is_as_promised(shared, groups):
    false, _ = shares((0.05, 0.2), 25, lambda s: (*lists(s, 120, shared, 1.0, groups), shared))
    assert false[0] <= 0.06
    assert false[1] <= 0.25


@pytest.mark.parametrize("shared", [20, 50, 100, 200, 300])
def test_few_partners_are_listed_if_they_stand_out_and_q_values_are_true(shared):
    false, true = shares((0.05, 0.2), 20, lambda s: (*lists(s, 300, shared, 0.3), shared))
    assert true >= 0.94 * shared
    assert false[0] <= 0.06
    if 20 < shared < 200:  # where there are enough false ones to list
        assert 0.09 <= false[1] <= 0.25


def families(seed, share, n=300, n_families=300, noise=0.3):
    """Two lists of variants of the same products, a share of which are in both lists."""
    rng = np.random.default_rng(seed)
    products = rng.normal(size=(n_families, 64))
    first, second = (
        products[rng.integers(n_families, size=n)] + noise * rng.normal(size=(n, 64))
        for _ in range(2)
    )
    shared = int(share * n)
    second[:shared] = first[:shared] + 0.1 * rng.normal(size=(shared, 64))
    return first, second, shared


@pytest.mark.parametrize("n_families", [50, 150, 300])
@pytest.mark.filterwarnings("ignore:No pair")
def test_variants_of_a_product_are_no_partners(n_families):
    alone, _ = shares((0.05,), 8, lambda s: families(s, 0, n_families=n_families))
    assert alone[0] <= 0.05
    false, true = shares((0.05,), 8, lambda s: families(s, 1 / 3, n_families=n_families))
    assert false[0] <= 0.06
    assert true >= 85


def half(seed, n=150, n_families=60):
    """Variants of products, and half of them again in a list that has no others."""
    rng = np.random.default_rng(seed)
    products = rng.normal(size=(n_families, 64))
    first = products[rng.integers(n_families, size=n)] + 0.5 * rng.normal(size=(n, 64))
    second = first[: n // 2] + 0.3 * rng.normal(size=(n // 2, 64))
    return first, second, n // 2


def test_all_records_of_a_shorter_list_are_matched():
    false, true = shares((0.05,), 8, half)
    assert true >= 68
    assert false[0] <= 0.05


def in_own_styles(seed, shared=60, n=120):
    """Two lists whose records resemble those of their own list in style, as code and prose."""
    rng = np.random.default_rng(seed)
    things = rng.normal(size=(2 * n - shared, 48))
    first, second = things[:n].copy(), np.vstack([things[:shared], things[n:]])
    for own in (first, second):
        own += rng.normal(size=(15, 48))[rng.integers(15, size=n)]
        own += 0.3 * rng.normal(size=own.shape)
    return first, second, shared


def test_a_style_of_each_list_hides_no_partners():
    false, true = shares((0.05,), 15, in_own_styles)
    assert true >= 40  # of 52 that are mutual nearest; 0 if decoys count as they are
    assert false[0] <= 0.06


def test_without_a_common_record_nothing_is_listed():
    listed = 0
    for seed in range(20):
        listed += len(quiet(Matcher(), *lists(seed, 100, 0)).pairs_)
    assert listed == 0


@pytest.mark.filterwarnings("ignore:No pair")
def test_details_count_beside_a_few_topics_that_hold_the_variance():
    """What a mild whitening is for."""
    rng, found = np.random.default_rng(0), 0
    for _ in range(5):
        topics = rng.normal(size=(3, WIDTH)) * 2
        things = rng.normal(size=(120, 3)) @ topics + 0.3 * rng.normal(size=(120, WIDTH))
        noise = rng.normal(size=(2, 120, 3)) @ topics * 0.4
        i, j = Matcher(false_discovery_rate=0.9).fit(*(things + noise)).mutual_pairs_.T
        found += (i == j).sum()
    assert found > 5 * 28  # 18 each without


def misnamed(seed, likeness=0.6):
    """Names of two shops, 30 of which are in both, and vectors that hardly tell them apart."""
    rng = np.random.default_rng(seed)
    letters = np.array([*"abcdefghijklmnopqrstuvwxyz"])
    words = ["".join(rng.choice(letters, n)) for n in np.tile([8, 5], 90)]
    names = [" ".join(pair) for pair in zip(words[::2], words[1::2], strict=True)]
    shop, other = names[:60], [f"{' '.join(name.split()[::-1])}, new" for name in names[30:]]
    vectors = dict(zip([*shop, *other], rng.normal(size=(120, 32)), strict=True))
    for i, name in enumerate(other[:30]):
        vectors[name] += likeness * vectors[shop[30 + i]]
    return shop, other, vectors


@pytest.mark.filterwarnings("ignore:No pair")
def test_n_grams_of_names_are_read_beside_vectors():
    shares, weights = [], []
    for seed in range(6):
        shop, other, vectors = misnamed(seed)
        matcher = Matcher(lambda asked, of=vectors: np.array([of[text] for text in asked]))
        i, j = matcher.fit(shop, other).pairs_.T
        assert (i - j == 30).sum() >= 28
        shares.append((i - j != 30).mean())
        weights.append(matcher.spelling_weight_)
        by_vectors = Matcher().fit(*([vectors[text] for text in own] for own in (shop, other)))
        assert by_vectors.spelling_weight_ == 0
        assert len(by_vectors.pairs_) < 20
    assert np.mean(shares) <= 0.06
    assert np.mean(weights) > 0.5


def test_rare_words_count_more_than_those_of_many_names():
    found = 0
    for seed in range(4):
        rng = np.random.default_rng(seed)
        letters = np.array([*"abcdefghijklmnopqrstuvwxyz"])
        usual = ["".join(rng.choice(letters, 9)) for _ in range(12)]
        rare = ["".join(rng.choice(letters, 5)) for _ in range(90)]
        shop, other = (
            [" ".join([word, *rng.choice(usual, 4, replace=False)]) for word in of_list]
            for of_list in (rare[:60], rare[30:])
        )
        vectors = dict(zip([*shop, *other], rng.normal(size=(120, 32)), strict=True))
        for name, partner in zip(shop[30:], other, strict=False):
            vectors[partner] += 0.6 * vectors[name]
        matcher = Matcher(lambda asked, of=vectors: np.array([of[text] for text in asked]))
        i, j = matcher.fit(shop, other).pairs_.T
        found += (i - j == 30).sum()
    assert found >= 118  # 80 of 120 by an idf that is not squared


def test_a_new_list_is_matched_by_the_same_rule():
    shop, other, vectors = misnamed(1, 0.7)
    matcher = Matcher(lambda asked: np.array([vectors[text] for text in asked]))
    i, j = matcher.fit(shop[:50], other).pairs_.T
    assert (i - j == 30).sum() >= 18
    vectors |= {name.upper(): vectors[name] for name in shop}
    renamed = [name.upper() for name in shop]
    partner = matcher.predict(renamed[:50])
    np.testing.assert_array_equal(partner[i], j)
    assert (partner[:30] >= 0).sum() <= 2
    later = matcher.predict(renamed[50:])
    assert (later == np.arange(20, 30)).sum() >= 9  # that were not in the fit
    # A row has one partner, also of records that come together.
    vectors |= {name.lower(): vectors[name] + 0.3 * vectors[shop[0]] for name in shop}
    both = matcher.predict([*renamed[50:], *(name.lower() for name in shop[50:])])
    given = both[both >= 0]
    assert set(later) <= set(given)
    assert len(set(given)) == len(given)


@pytest.mark.parametrize("of_texts", [True, False])
def test_exchanged_lists_give_exchanged_pairs(of_texts):
    """Of unequal length, with repeated records."""
    for seed in range(6):
        shop, other, vectors = misnamed(seed)
        shop, other = [*shop, *shop[20:40]], [*other[5:40], *other[10:15]]
        matcher = Matcher(lambda asked, of=vectors: np.array([of[text] for text in asked]))
        if not of_texts:
            matcher, (shop, other) = Matcher(), lists(seed)
            shop, other = np.vstack([shop, shop[:9]]), np.vstack([other[5:90], other[7:20]])
        back = clone(matcher).fit(other, shop)
        matcher.fit(shop, other)
        assert len(matcher.pairs_) > 15
        np.testing.assert_array_equal(matcher.mutual_pairs_, back.mutual_pairs_[:, ::-1])
        np.testing.assert_array_equal(matcher.pairs_, back.pairs_[:, ::-1])
        for name in ("scores_", "q_values_", "mutual_q_values_", "spelling_weight_"):
            np.testing.assert_allclose(getattr(matcher, name), getattr(back, name), rtol=1e-9)


def test_n_grams_of_another_language_do_not_count():
    """Words of two languages share n-grams that say nothing."""
    rng = np.random.default_rng(0)
    first, second = lists(6, 120, 60, 0.3)
    words = [
        ["".join(rng.choice([*letters], 4)) for _ in range(300)]
        for letters in ("abcde", "abcdefgh")
    ]
    texts = [[" ".join(rng.choice(own, 6)) for _ in range(120)] for own in words]
    vectors = dict(zip([*texts[0], *texts[1]], [*first, *second], strict=True))
    matcher = Matcher(lambda asked: np.array([vectors[text] for text in asked])).fit(*texts)
    assert matcher.spelling_weight_ < 0.05
    i, j = matcher.pairs_.T
    assert ((i == j) & (i < 60)).sum() >= 55


def test_q_values_bound_the_share_of_false_scores():
    rng = np.random.default_rng(0)
    shares = []
    for _ in range(200):
        # Of 160 records of each list 120 have no partner, and half of these a nearest one.
        false, true = rng.normal(size=60), rng.normal(size=40) + 3
        decoys = [Decoys(rng.normal(size=53), rng.normal(size=53) - 1, 160) for _ in "AB"]
        # Of a record with a partner the next pair is as the nearest one within the list.
        others = np.r_[rng.normal(size=13), rng.normal(size=40) - 1]
        q = q_values(np.r_[false, true], others, decoys)
        listed = q <= 0.1
        shares.append(listed[:60].sum() / max(listed.sum(), 1))
        rising = q[np.argsort(np.r_[false, true])]
        assert (rising[1:] <= rising[:-1]).all()
    assert 0.02 < np.mean(shares) <= 0.11
    nothing = np.empty(0)
    assert len(q_values(nothing, nothing, [Decoys(nothing, nothing, 5)] * 2)) == 0


def test_records_of_the_fit_and_new_ones_get_their_partner_or_none():
    first, second = lists(1)
    matcher = Matcher().fit(first, second)
    partner = matcher.predict(first)
    i, j = matcher.pairs_.T
    np.testing.assert_array_equal(partner[i], j)
    assert (partner[np.setdiff1d(np.arange(120), i)] == -1).all()


def test_a_new_list_of_the_first_side_has_few_false_partners():
    true, false = 0, 0
    for seed in range(10):
        rng, (first, second) = np.random.default_rng(seed), lists(seed)
        again = second[:60] + 2 + 0.5 * rng.normal(size=(60, WIDTH))
        partner = (
            Matcher()
            .fit(first, second)
            .predict(np.vstack([again, rng.normal(size=(60, WIDTH)) + 1]))
        )
        true += (partner[:60] == np.arange(60)).sum()
        false += (partner >= 0).sum()
    assert true >= 0.9 * 600
    assert false - true <= 0.05 * false


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
    assert indexed.neighbors_.n_neighbors == 11
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
        ((np.eye(5), np.eye(6)), "B has 6 features, but A has 5"),
        ((np.eye(5), np.full((5, 5), np.nan)), "B contains NaN"),
        ((np.full((5, 5), np.nan), np.eye(5)), "A contains NaN"),
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
