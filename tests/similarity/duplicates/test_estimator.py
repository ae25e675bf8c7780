"""Duplicates: promised false pairs, groups without chains, and scikit-learn's contract."""

import pickle
import re
import tracemalloc
from functools import cache

import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.frozen import FrozenEstimator
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import normalize
from sklearn.utils.estimator_checks import check_clustering, parametrize_with_checks

from skcalib import (
    BertEncoder,
    DetailGuard,
    Duplicates,
    TextEncoder,
    Whitening,
)
from skcalib.datasets import load_questions
from skcalib.similarity.duplicates import pairs
from skcalib.similarity.null import count_pairs


@pytest.mark.filterwarnings("ignore:false_pairs=20 needs 448")
@parametrize_with_checks([Duplicates()])
def test_scikit_learn_contract(estimator, check):
    check(estimator)


@pytest.mark.filterwarnings("ignore:false_pairs=300 needs 448")
def test_blobs_are_groups_if_all_of_their_pairs_are_asked_for():
    check_clustering("Duplicates", Duplicates(false_pairs=300))


def spread(n, d=24, seed=0):
    return np.random.default_rng(seed).normal(size=(n, d))


def near(X, noise=0.1, seed=1):
    return X + noise * np.random.default_rng(seed).normal(size=X.shape)


@pytest.fixture(scope="module")
def X():
    """1,200 vectors, 300 near copies of which 200 are of ten, and some equal ones."""
    X = spread(1200)
    return np.vstack([X, near(X[:100]), near(X[:10].repeat(20, axis=0), 0.3, seed=2), X[5:25]])


def cosines_of(X):
    unit = X / np.linalg.norm(X, axis=1, keepdims=True)
    return unit @ unit.T


def test_pairs_are_all_that_reach_the_threshold(X):
    model = Duplicates().fit(X)
    cosines = cosines_of(X)
    i, j = np.nonzero(np.triu(cosines >= model.threshold_, 1))
    distinct = 1500  # the last 20 are equal to rows 5 to 24
    expected = {(a, b) for a, b in zip(i.tolist(), j.tolist(), strict=True) if b < distinct}
    expected |= {(5 + k, distinct + k) for k in range(20)}
    assert {*map(tuple, model.pairs_.tolist())} == expected
    assert len(model.pairs_) == len(expected) == len(model.cosine_)
    assert_allclose(model.cosine_, cosines[tuple(model.pairs_.T)], atol=1e-6)
    assert (np.diff(model.cosine_) <= 0).all()
    assert model.cosine_.max() == 1


def test_groups_are_no_chains(X):
    model = Duplicates().fit(X)
    cosines, chosen = cosines_of(X), model.representatives_
    assert_array_equal(model.labels_[chosen], np.arange(len(chosen)))
    to_own = cosines[np.arange(len(X)), chosen[model.labels_]]
    assert (to_own >= model.threshold_ - 1e-6).all()
    assert_allclose(to_own, cosines[:, chosen].max(axis=1), atol=1e-6)  # the most similar one
    among = cosines[np.ix_(chosen, chosen)] - 2 * np.eye(len(chosen))
    assert among.max() < model.threshold_


def test_a_chain_is_cut_at_its_middle():
    """a, b, c with b within the threshold of both, and a and c apart; and a fourth."""
    X = spread(1000)
    threshold = Duplicates(false_pairs=1).fit(X).threshold_
    step = 0.7 * np.arccos(threshold)
    first, second = np.linalg.qr(spread(2).T)[0].T
    chain = [np.cos(k * step) * first + np.sin(k * step) * second for k in range(4)]
    three = Duplicates(false_pairs=1).fit(np.vstack([X, chain[:3]]))
    assert three.representatives_[three.labels_][-3:].tolist() == [1001] * 3
    four = Duplicates(false_pairs=1).fit(np.vstack([X, chain]))
    labels = four.labels_[-4:]
    assert labels[0] != labels[3]
    assert len({*labels}) == 2


@pytest.mark.parametrize("factor", [1, 3])
def test_as_many_false_pairs_as_promised_and_every_copy(factor):
    """Unrelated vectors of two kinds of tails, 300 of 3,000 with a copy, in three draws."""
    found = []
    for seed in range(3):
        X = spread(3000, seed=seed) * np.geomspace(1, factor, 24)
        model = Duplicates().fit(np.vstack([X, near(X[:300], 0.05)]))
        listed = {*map(tuple, model.pairs_.tolist())}
        planted = {(i, 3000 + i) for i in range(300)}
        assert planted <= listed
        found.append(len(listed - planted))
    assert 20 / 8 < np.mean(found) < 2 * 20  # the line is strict on Gaussian vectors


def test_the_order_of_rows_does_not_matter(X):
    order = np.random.default_rng(0).permutation(len(X))
    model, other = Duplicates().fit(X), Duplicates().fit(X[order])
    assert model.threshold_ == other.threshold_
    first = np.r_[:1500, 5:25]  # of equal rows
    near = other.cosine_ < 1
    back = np.sort(first[order[other.pairs_[near]]], axis=1)
    assert {*map(tuple, back)} == {*map(tuple, model.pairs_[model.cosine_ < 1])}
    assert other.cosine_.tolist() == model.cosine_.tolist()
    # Groups are the same, whoever stands for two that have only each other.
    groups = np.empty(len(X), int)
    groups[order] = other.labels_
    assert len({*zip(groups, model.labels_, strict=True)}) == len(model.representatives_)
    assert groups.max() == model.labels_.max()


def peak(function):
    tracemalloc.start()
    result = function()
    used = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return result, used


def test_memory_does_not_grow_with_the_square_of_the_texts():
    X = spread(12_000, 8).astype(np.float32)
    products = 4 * len(X) ** 2
    model, used = peak(lambda: Duplicates(false_pairs=100).fit(X))
    assert used < products / 3  # most of it to count the cosines of 4,473 texts, in blocks
    (_, rows), used = peak(lambda: model.kneighbors(X))
    assert_array_equal(rows[:, 0], np.arange(len(X)))
    assert used < products / 10


def test_ten_thousand_equal_rows_are_ten_thousand_pairs():
    X = np.vstack([spread(500), np.repeat(spread(1, seed=7), 10_000, axis=0), spread(500)[:1]])
    model, used = peak(lambda: Duplicates().fit(X))
    assert used < 4 * 10_000**2 / 2
    of_copies = model.pairs_[model.cosine_ == 1]
    assert_array_equal(np.unique(of_copies[:, 0]), [0, 500])
    assert len(of_copies) == 10_000
    assert (model.labels_[500:-1] == model.labels_[500]).all()
    assert model.kneighbors(X[-2:])[1].tolist() == [[500], [0]]
    assert_array_equal(model.predict(X), model.labels_)
    alone = Duplicates().fit(X[600:800])  # none but equal rows
    assert alone.representatives_.tolist() == [0]
    assert alone.predict(X[:1]).tolist() == [-1]


def test_copies_that_differ_in_the_last_bits_count_once():
    """As after a product in float32, whose last bits depend on the other rows."""
    X = spread(900, 384).astype(np.float32)
    exact = Duplicates().fit(np.vstack([X, X]))
    rounded = X * (1 + 1e-7 * np.random.default_rng(0).normal(size=X.shape)).astype(np.float32)
    model = Duplicates().fit(np.vstack([X, rounded]))
    assert model.threshold_ == exact.threshold_
    assert_array_equal(model.labels_, exact.labels_)


def test_too_many_near_copies_are_refused(monkeypatch):
    X = spread(1000)
    X = np.vstack([X, near(X[:1].repeat(30, axis=0), 0.001)])
    assert len(Duplicates().fit(X).pairs_) > 30 * 31 / 2
    monkeypatch.setattr(pairs, "MOST_PAIRS", 200)
    model = Duplicates()
    with pytest.raises(ValueError, match=r"More than 200 pairs reach .*Remove what they"):
        model.fit(X)
    with pytest.raises(NotFittedError):
        model.predict(X)


def test_predict_finds_what_leaks_from_one_set_into_another(X):
    new = np.vstack([spread(200, seed=9), near(X[:50], 0.05, seed=3), X[-3:]])
    model = Duplicates(false_pairs=2).fit(X)
    groups = model.predict(new)
    assert (groups[:200] >= 0).sum() <= 5
    cosines = cosines_of(np.vstack([new, X]))[:253, 253:]
    assert_array_equal(groups >= 0, cosines.max(axis=1) >= model.threshold_)
    assert (groups[200:] >= 0).all()
    found, rows = model.kneighbors(new)
    assert_allclose(found[:, 0], cosines.max(axis=1), atol=1e-6)
    assert_allclose(cosines[np.arange(253), rows[:, 0]], found[:, 0], atol=1e-6)
    assert_array_equal(groups[groups >= 0], model.labels_[rows[groups >= 0, 0]])
    assert rows[-3:, 0].tolist() == [22, 23, 24]  # the first of equal ones


def test_kneighbors_are_the_nearest_distinct_rows(X):
    model, new = Duplicates().fit(X), spread(30, seed=9)
    found, rows = model.kneighbors(new, 7)
    cosines = cosines_of(np.vstack([new, X[:1500]]))[:30, 30:]  # the last 20 are copies
    expected = np.argsort(-cosines, axis=1)[:, :7]
    assert_array_equal(rows, expected)
    assert_allclose(found, np.take_along_axis(cosines, expected, axis=1), atol=1e-6)
    assert model.kneighbors(new, 10_000)[1].shape == (30, 1500)
    with pytest.raises(ValueError, match="n_neighbors == 0, must be >= 1"):
        model.kneighbors(new, 0)


def test_predict_of_the_fitted_rows_gives_their_labels(X):
    model = Duplicates()
    labels = model.fit_predict(X)
    assert_array_equal(labels, model.labels_)
    assert_array_equal(model.predict(X), labels)


@pytest.mark.parametrize("false_pairs", [2, 20, 300])
def test_other_numbers_of_false_pairs_need_no_new_fit(X, false_pairs):
    model = Duplicates().fit(X)
    before = pickle.dumps(model)
    other, fitted = model.at(false_pairs), Duplicates(false_pairs=false_pairs).fit(X)
    assert (len(other.pairs_) > len(model.pairs_)) == (false_pairs > 20)
    assert other.get_params() == fitted.get_params()
    for name, value in vars(fitted).items():
        assert_array_equal(getattr(other, name), value)
    assert_array_equal(other.predict(X), fitted.predict(X))
    assert pickle.dumps(model) == before
    assert other.at(20).pairs_.tolist() == model.pairs_.tolist()


def test_a_rate_that_was_compared_with_no_count_gives_a_warning(X):
    n_pairs = len(X) * (len(X) - 1) // 2
    with pytest.warns(UserWarning, match=r"counts, 1 or more, where up to ten times as many"):
        Duplicates(false_pairs=0.9e-6 * n_pairs).fit(X)
    Duplicates(false_pairs=1.1e-6 * n_pairs).fit(X)


def test_a_number_of_false_pairs_that_is_none_is_refused(X):
    model = Duplicates().fit(X[:600])
    with pytest.raises(ValueError, match="'false_pairs' parameter of Duplicates"):
        model.at(0)
    with pytest.raises(ValueError, match=r"false_pairs=1e\+09 of 179,700 pairs"):
        model.at(1e9)
    with pytest.raises(NotFittedError):
        Duplicates().at(3)


def copied(X, n, times):
    return np.vstack([X, *(near(X[:n], 0.1, seed + 1) for seed in range(times))])


@pytest.mark.parametrize(("n", "times"), [(100, 1), (1500, 1), (200, 5), (10, 20), (1, 60)])
def test_duplicates_do_not_raise_the_threshold(n, times):
    """Few, every text twice, and many copies of few texts, which bend the line of all pairs."""
    X = spread(1500)
    model = Duplicates().fit(copied(X, n, times))
    rate = 20 / (len(model.labels_) * (len(model.labels_) - 1) / 2)
    clean = count_pairs(normalize(X)).line().threshold(rate)
    assert model.threshold_ == pytest.approx(clean, abs=0.02)
    assert (model.labels_[:n] == model.labels_[-n:]).all()


@pytest.mark.parametrize(
    ("n", "size", "share"), [(1000, 10, 0.5), (600, 4, 0.8), (1000, 80, 0.3)]
)
def test_copies_that_are_a_large_share_of_all_pairs_are_found(n, size, share):
    """They fill the tail that the line is fitted to."""
    n_groups = int(share * n / size)
    of = np.concatenate([np.arange(n_groups).repeat(size), np.arange(n_groups, n)])[:n]
    model = Duplicates().fit(near(spread(n, d=48)[of], 0.1))
    found = of[model.pairs_]
    true = found[:, 0] == found[:, 1]
    assert true.sum() > 0.95 * n_groups * size * (size - 1) / 2
    assert (~true).sum() < 2 * 20


@pytest.mark.parametrize(
    ("size", "share", "false_pairs", "match"),
    [
        (20, 0.6, 20, r"More than 0\.3% .* as in series .* count as unrelated.* Leave out"),
        (20, 0.6, 1000, r"More than 0\.3% .* as in series .* count as unrelated.* Leave out"),
        (5, 0.3, 20, r"1.. of 1,000 texts .* series .* count as duplicates.* a guard"),
    ],
)
def test_series_are_warned_of(size, share, false_pairs, match):
    """Texts around centers, some near and some far, whose similarities have no gap."""
    n_series, rng = int(share * 1000 / size), np.random.default_rng(0)
    of = np.concatenate([np.arange(n_series).repeat(size), np.arange(n_series, 1000)])[:1000]
    centers, noise = rng.normal(size=(1000, 48))[of], rng.uniform(0.1, 1.5, size=(1000, 1))
    noise[n_series * size :] = 0
    with pytest.warns(UserWarning, match=match):
        model = Duplicates(false_pairs=false_pairs).fit(centers + noise * spread(1000, 48, 1))
    if "unrelated" in match:
        assert false_pairs / 8 < len(model.pairs_) < 1.2 * false_pairs


@pytest.mark.parametrize(("times", "share"), [(300, 0.3), (400, 3), (700, 3), (1500, 3)])
def test_a_template_that_hides_duplicates_is_warned_of(times, share):
    with pytest.warns(UserWarning, match=rf"More than {share}% of all pairs .* Leave out most"):
        Duplicates().fit(copied(spread(1500), 1, times))


def catalogs(n, seed):
    """Two of n records each, of which those of one row are the same, more or less alike."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 24)) * np.geomspace(1, 3, 24)
    unlike = rng.uniform(0.1, 1, size=(n, 1)) * rng.normal(size=(n, 24))
    return np.vstack([X, X + unlike * np.geomspace(1, 3, 24)])


def test_catalogs_with_a_partner_for_each_text_list_the_promised_pairs():
    """The true pairs fill the tail that the threshold comes from; also without any."""
    found, others = [], []
    for seed in range(3):
        model = Duplicates().fit(catalogs(600, seed))
        true = np.diff(model.pairs_, axis=1)[:, 0] == 600
        found.append(true.sum())
        others.append((~true).sum())
    assert np.mean(found) > 200
    assert 20 / 8 < np.mean(others) < 2 * 20
    alone = [len(Duplicates().fit(catalogs(1200, seed)[:1200]).pairs_) for seed in range(3)]
    assert 20 / 8 < np.mean(alone) < 1.5 * 20


def test_vectors_whose_line_is_bent_are_refused():
    with pytest.raises(ValueError, match=r"off by .* decades.*Leave out most"):
        Duplicates().fit(np.random.default_rng(0).choice([-1.0, 1.0], size=(500, 12)))


def test_too_few_texts_are_refused_or_warned_of():
    X = spread(300)
    with pytest.raises(ValueError, match=r"=5 of 44,850 pairs needs 448 .* got 300\..*10 to"):
        Duplicates(false_pairs=5).fit(X)
    with pytest.raises(ValueError, match=r"=20 of 10 pairs needs 448 .* got 5\."):
        Duplicates().fit(X[:5])
    with pytest.warns(UserWarning, match=r"=20 needs 448 distinct texts; got 300"):
        model = Duplicates().fit(X)
    assert 15 <= len(model.pairs_) <= 20
    for wrong in (0, -1, True, "20", np.nan):
        with pytest.raises(ValueError, match="'false_pairs' parameter of Duplicates"):
            Duplicates(false_pairs=wrong).fit(X)


def test_bad_input_says_what_to_do():
    with pytest.raises(
        TypeError, match=r"Got texts, such as 'a'; expected vectors. Put an encoder"
    ):
        Duplicates().fit(["a", "b"])
    with pytest.raises(ValueError, match=r"got a guard.*Duplicates\(encoder, guard"):
        Duplicates(guard=DetailGuard()).fit(spread(500))
    with pytest.raises(TypeError, match="encoder is of type int; expected the folder"):
        Duplicates(5).fit(["a", "b"])
    with pytest.raises(ValueError, match="'guard' parameter"):
        Duplicates(TextEncoder(words_as_vectors), guard="numbers").fit(["a", "b"])


@cache
def of_word(word):
    seed = int.from_bytes(word.encode(), "big") % 2**32
    return np.random.default_rng(seed).normal(size=32)


def words_as_vectors(texts):
    """Sum of a vector for each word, and little of one for each number: as encoders do."""
    vectors = []
    for text in texts:
        words = re.findall(r"\w+", text)
        weights = [0.1 if word.isdigit() else 1.0 for word in words]
        vectors.append(np.average([*map(of_word, words)], axis=0, weights=weights))
    return np.array(vectors)


@pytest.fixture(scope="module")
def texts():
    """600 texts of random words, and copies: of another number, and with words swapped."""
    rng = np.random.default_rng(0)
    texts = [" ".join(map(str, rng.choice(2000, 6))) for _ in range(600)]
    texts = [re.sub(r"(\d+)", r"w\1", text) + f" {i}" for i, text in enumerate(texts)]
    other = [re.sub(r"\d+$", lambda n: str(int(n[0]) + 1000), text) for text in texts[:40]]
    same = [" ".join(text.split()[::-1]) for text in texts[40:80]]
    return texts + other + same


@pytest.mark.parametrize("guard", [None, DetailGuard()])
def test_a_guard_keeps_numbers_apart(texts, guard):
    model = Duplicates(words_as_vectors, guard=guard, false_pairs=1).fit(texts)
    listed = {*map(tuple, model.pairs_.tolist())}
    assert {(40 + k, 640 + k) for k in range(40)} <= listed
    others = {(k, 600 + k) for k in range(40)}
    assert others <= listed if guard is None else not others & listed
    new = [texts[0] + " ", texts[0][:-1] + "77", "new words 5"]
    groups = model.predict(new).tolist()
    assert groups[0] == model.labels_[0]
    assert groups[1] in (model.labels_[[0, 600]] if guard is None else [-1])
    assert groups[2] == -1
    assert_array_equal(model.predict(texts), model.labels_)
    cosines, rows = model.kneighbors(new, 3)
    assert rows[0, 0] == 0
    if guard is not None:  # no other text has the number
        assert rows[0].tolist() == [0, -1, -1]
        assert cosines[0, 1:].tolist() == [-1, -1]


def test_texts_with_equal_vectors_are_apart_if_their_details_are(texts):
    deaf = [re.sub(r" \d+$", "", text) for text in texts]

    def encoder(given):
        return words_as_vectors([text.rstrip(" 0123456789") for text in given])

    new = [*texts, *(f"{text} 5555" for text in deaf[:30])]
    joined = Duplicates(encoder, false_pairs=1).fit(new)
    apart = Duplicates(encoder, false_pairs=1, guard=DetailGuard()).fit(new)
    assert_array_equal(joined.labels_[:30], joined.labels_[-30:])
    assert not (apart.labels_[:30] == apart.labels_[-30:]).any()


def test_texts_in_any_container_and_order_give_the_same_groups(texts):
    model = Duplicates(words_as_vectors, false_pairs=1).fit(texts)
    shuffled = pd.Series(texts, index=range(len(texts), 0, -1))
    mixed = np.random.default_rng(0).permutation(len(texts))
    frame = pd.DataFrame({"text": texts}, index=mixed)
    for own in (np.array(texts), tuple(texts), shuffled, frame["text"], frame):
        other = clone(model).fit(own)
        assert_array_equal(other.labels_, model.labels_)
        assert_array_equal(other.pairs_, model.pairs_)
    back = clone(model).fit(texts[::-1])
    assert back.threshold_ == model.threshold_
    assert len(back.representatives_) == len(model.representatives_)


def test_the_encoder_is_calibrated_unless_it_is(texts):
    bare = Duplicates(TextEncoder(words_as_vectors)).fit(texts)
    assert isinstance(bare.encoder_[-1], Whitening)
    pipeline = make_pipeline(TextEncoder(words_as_vectors), Whitening(power="auto"))
    own = Duplicates(pipeline).fit(texts)
    assert own.threshold_ == bare.threshold_
    fitted = FrozenEstimator(pipeline.fit(sorted({*texts})))
    frozen = Duplicates(fitted).fit(texts)
    assert_array_equal(frozen.labels_, bare.labels_)
    behind = make_pipeline(fitted, Duplicates())
    assert_array_equal(behind.fit_predict(texts), bare.labels_)
    assert_array_equal(behind.predict(texts[3:5]), bare.labels_[3:5])


def test_pickles_and_refits(X, texts):
    model = Duplicates(words_as_vectors, guard=DetailGuard()).fit(texts)
    again = pickle.loads(pickle.dumps(model))
    assert_array_equal(again.predict(texts), model.predict(texts))
    assert not any(text.encode() in pickle.dumps(model) for text in texts[:5])
    model.set_params(encoder=None, guard=None).fit(X)
    assert_array_equal(model.labels_, Duplicates().fit(X).labels_)
    with pytest.raises(NotFittedError):
        Duplicates().predict(X)


def test_copies_of_real_questions_are_found(minilm, recent):
    recent.bound = 2**28
    questions = load_questions().data
    assert len(questions) == 100
    swapped = [" ".join([*q.split()[1:3], q.split()[0], *q.split()[3:]]) for q in questions[:8]]
    with pytest.warns(UserWarning, match="needs 448"):
        model = Duplicates(BertEncoder(minilm)).fit([*questions, *swapped])
    assert_array_equal(model.labels_[:8], model.labels_[100:])
