"""NearestAnswer: the promised rate, one of the stored answers or none, and a growing store."""

import pickle
from dataclasses import dataclass, field
from itertools import count

import numpy as np
import pandas as pd
import polars as pl
import pytest
from counting import Counting
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.frozen import FrozenEstimator
from sklearn.model_selection import cross_val_score
from sklearn.pipeline import make_pipeline

from skcalib import (
    BertEncoder,
    NearestAnswer,
    SearchEncoder,
    TextEncoder,
    Whitening,
)
from skcalib.datasets import load_questions


def vectors(texts):
    """Texts "a i" lie around the place of answer a, in a cone, as raw vectors do."""
    answer, number = np.array([text.split() for text in texts], dtype=int).T
    return 1 + PLACES[answer] + 0.7 * NOISE[(31 * answer + number) % 10_007]


PLACES, NOISE = (np.random.default_rng(7).normal(size=(n, 30)) for n in (10_000, 10_007))


def texts_of(answers, numbers):
    return [f"{answer} {number}" for answer in answers for number in numbers]


def truth(texts):
    return [int(text.split()[0]) for text in texts]


def drawn(rate=0.1, **params):
    """Vectors alone: the words of these texts say all."""
    search = SearchEncoder(TextEncoder(vectors), lexical_weight=0)
    return NearestAnswer(search, false_positive_rate=rate, **params)


STORED = texts_of(range(40), range(5))
LOG = texts_of(range(20, 70), range(10, 18))
UNANSWERABLE = texts_of(range(100, 140), range(5))


def fitted(**params):
    return drawn(**params).fit(STORED, truth(STORED), queries=LOG)


def test_it_finds_answers_and_gives_none_to_others():
    model, asked = fitted(), texts_of(range(40), range(20, 24))
    rates = model.hit_rates([*asked, *UNANSWERABLE], [*truth(asked), *[None] * 200])
    assert rates.right > 0.9
    assert rates.wrong < 0.02
    assert rates.false < 0.2
    predicted = model.predict([*asked, *UNANSWERABLE])
    assert predicted.dtype == object
    assert_array_equal(model.decision_function([*asked, *UNANSWERABLE]) > 0, predicted != None)  # noqa: E711
    known = np.isin(np.arange(360), np.arange(160))
    right = [a == t for a, t in zip(predicted, [*truth(asked), *[None] * 200], strict=True)]
    score = model.score([*asked, *UNANSWERABLE], [*truth(asked), *[None] * 200])
    assert score == np.mean(right)
    assert rates.right == np.mean(np.array(right)[known])


@pytest.mark.parametrize("log", [None, LOG])
@pytest.mark.parametrize("rate", [0.02, 0.1])
def test_nearest_answer_false_answer_rate_is_exact_for_unanswerable(rate, log):
    """The mean rate over many samples is at most the promise, and near it."""
    population, n = np.array(texts_of(range(200, 3200), [0])), round(1 / rate) + 5
    model = drawn(rate).fit(STORED, truth(STORED), unanswerable=population[:n], queries=log)
    best = model.decision_function(population) + model.threshold_
    assert model.threshold_ == pytest.approx(promised_of(best[:n], rate), abs=3e-6)
    rng, shares = np.random.default_rng(0), []
    for _ in range(300):
        order = rng.permutation(best)
        shares.append(np.mean(order[n:] > promised_of(order[:n], rate)))
    # Promised is the rank that keeps the rate, of n + 1; its share is what is expected.
    kept = np.floor((n + 1) * rate + 1e-9) / (n + 1)
    assert np.mean(shares) == pytest.approx(kept, rel=0.15)
    assert kept <= rate


def test_repeated_unanswerable_questions_count_once_or_more_often_if_that_is_stricter():
    def of(unanswerable):
        return drawn(0.1).fit(STORED, truth(STORED), unanswerable=unanswerable)

    unknown = texts_of(range(200, 240), [0])
    once = of(unknown)
    assert of(unknown * 4).threshold_ == once.threshold_
    popular = unknown[int(np.argmax(once.decision_function(unknown)))]
    assert once.predict([popular]).tolist() != [None]  # one of the three that pass
    often = of([*unknown, *[popular] * 40])
    assert often.predict([popular]).tolist() == [None]
    with pytest.raises(ValueError, match=r"needs 9 distinct questions .* got 8"):
        of(unknown[:8] * 5)


def promised_of(best, rate):
    """The k-th of n, where k = ceil((n + 1) (1 - rate))."""
    return np.sort(best)[int(np.ceil((len(best) + 1) * (1 - rate) - 1e-9)) - 1]


@pytest.mark.parametrize("rate", [0.05, 0.2])
@pytest.mark.parametrize("log", [False, True])
def test_without_a_sample_the_promise_holds_for_answers_left_out(rate, log):
    shares = []
    for draw in range(8):
        groups = 1000 * draw + np.arange(80)
        stored, new = texts_of(groups[:40], range(6)), texts_of(groups[40:], range(6))
        extra = {"queries": texts_of(groups, range(10, 14))} if log else {}
        model = drawn(rate).fit(stored, truth(stored), **extra)
        shares.append(np.mean(model.predict(new) != None))  # noqa: E711
    assert np.mean(shares) == pytest.approx(rate, rel=0.5)


def test_a_new_answer_counts_with_the_one_that_it_meets():
    """Of m + 2 c of n + c questions at most the rate, with c for each answer that has any."""
    stored = texts_of(range(12), range(9))
    model = drawn(0.2).fit(stored, truth(stored))
    cosines, rows = model.kneighbors(stored, 108)
    own = np.array(truth(stored))
    best = np.where(model.answers_[rows] == own[:, None], -1, cosines).max(axis=1)

    def expected(threshold):
        exceed = best > threshold
        c = exceed.sum() / len({*own[exceed]})
        return (exceed.sum() + 2 * c) / (108 + c)

    assert expected(model.threshold_) <= 0.2
    following = np.sort(best)[::-1][(best > model.threshold_).sum() :][:2]
    assert min(expected(following[0] - 1e-5), expected(following[1] - 1e-5)) > 0.2


@pytest.mark.parametrize(("n_answers", "rate"), [(19, 0.1), (39, 0.05)])
def test_too_few_answers_for_the_rate_are_warned_of_once(n_answers, rate):
    enough = texts_of(range(n_answers), range(6))
    drawn(rate).fit(enough, truth(enough))  # no warning
    few = enough[:-6]
    with pytest.warns(UserWarning, match=f"needs {n_answers} different answers") as caught:
        model = drawn(rate).fit(few, truth(few))
    assert len(caught) == 1
    assert str(caught[0].message).count(".") == 3  # two sentences, with a rate
    model.fit(few, truth(few), unanswerable=UNANSWERABLE)  # no warning


def test_neither_the_order_of_questions_nor_that_of_the_log_matters():
    rng, model = np.random.default_rng(0), fitted()
    order = rng.permutation(STORED).tolist()
    other = drawn().fit(
        order + order[:9], truth(order + order[:9]), queries=rng.permutation(LOG)
    )
    assert other.threshold_ == model.threshold_
    assert_array_equal(other.predict(UNANSWERABLE), model.predict(UNANSWERABLE))
    assert_array_equal(other.questions_, model.questions_)
    alone, stored = (drawn().fit(STORED, truth(STORED), queries=Q) for Q in (None, STORED))
    assert stored.threshold_ == alone.threshold_  # stored ones show nothing of queries


@pytest.mark.parametrize("sample", [None, UNANSWERABLE])
def test_a_store_grows_in_any_number_of_parts(sample):
    model, other = (
        drawn().fit(STORED[:120], truth(STORED[:120]), unanswerable=sample) for _ in range(2)
    )
    before = model.threshold_
    for part in (STORED[120:150], STORED[100:]):
        model.partial_fit(part, truth(part))
    other.partial_fit(STORED[100:], truth(STORED[100:]))
    assert model.threshold_ == pytest.approx(other.threshold_, abs=1e-6) != before
    assert sorted(model.questions_) == sorted(STORED)
    assert_array_equal(model.predict(LOG), other.predict(LOG))
    # The calibration stays, and each answer has all of its questions.
    whole = drawn().fit(STORED, truth(STORED), unanswerable=sample)
    assert np.mean(model.predict(LOG) == whole.predict(LOG)) > 0.95


def test_a_stored_question_gets_a_new_answer():
    model = fitted().partial_fit(["3 1"], [77])
    assert model.predict(["3 1"]).tolist() == [77]
    assert len(model.questions_) == len(STORED)


class Article:
    """An object that is equal to no other."""


@dataclass
class Entry:
    """An answer that defines equality, so that it cannot be hashed."""

    answer: int
    note: int = field(default_factory=count().__next__, compare=False)


KINDS = {
    "text": "answer {}".format,
    "nested tuple": lambda a: (a, [a]),
    "dict": lambda a: {"id": a, "tags": [{"see": str(a)}]},
    "list": lambda a: [a, {"see": {a, "all"}}],
    "array": lambda a: np.arange(a, a + 3),
    "frame": lambda a: pd.DataFrame({"id": [a, a + 1]}),
    "series": lambda a: pl.Series([a, a]),
    "record": lambda a: pd.DataFrame({"id": [a], "note": ["x"]}).to_records(index=False)[0],
    "date": lambda a: np.datetime64(a, "ns"),
    "the same object": [Article() for _ in range(40)].__getitem__,
    "equal objects": Entry,
}


@pytest.mark.parametrize("kind", KINDS)
def test_answers_of_any_kind_are_returned_as_given_and_equal_ones_are_one(kind):
    of, plain = KINDS[kind], fitted()
    model = drawn().fit(STORED, [of(a) for a in truth(STORED)], queries=LOG)
    assert model.threshold_ == plain.threshold_
    assert_array_equal(model.search_.vectors_, plain.search_.vectors_)
    [answer] = model.predict(["3 50"])
    assert any(answer is stored for stored in model.answers_)
    asked = [*texts_of(range(40), [30]), *UNANSWERABLE]
    answers = [of(a) if a < 40 else None for a in truth(asked)]
    assert model.hit_rates(asked, answers) == plain.hit_rates(asked, truth(asked))
    model.partial_fit(STORED[:9], [of(a) for a in truth(STORED[:9])])
    assert model.threshold_ == plain.threshold_
    if kind != "the same object":
        back = pickle.loads(pickle.dumps(model))
        assert back.hit_rates(asked, answers) == plain.hit_rates(asked, truth(asked))


def test_a_question_is_moved_halfway_to_the_mean_of_those_with_its_answer():
    search, stored = drawn().encoder, sorted(STORED)
    alone = search.fit(stored).vectors_
    of_answer = [
        alone[np.equal(truth(stored), answer)].mean(axis=0) for answer in truth(stored)
    ]
    expected = alone + np.array(of_answer)
    expected /= np.linalg.norm(expected, axis=1, keepdims=True)
    model = NearestAnswer(search, false_positive_rate=0.1).fit(stored, truth(stored))
    assert_allclose(model.search_.vectors_, expected, atol=1e-5)


def test_an_answer_that_is_not_stored_counts_as_none():
    model = fitted()
    asked = [*texts_of(range(40), [30]), *UNANSWERABLE]
    assert model.score(asked, truth(asked)) == model.score(
        asked, [t if t < 40 else None for t in truth(asked)]
    )
    assert np.isnan(model.hit_rates(UNANSWERABLE, [None] * 200).right)
    assert np.isnan(model.hit_rates(STORED, truth(STORED)).false)


def test_kneighbors_are_sorted_and_exact():
    model = fitted()
    cosines, rows = model.kneighbors(["3 50", "999 1", "3 50"], 7)
    assert cosines.shape == rows.shape == (3, 7)
    assert (np.diff(cosines) <= 0).all()
    assert_array_equal(rows[0], rows[2])
    assert set(model.answers_[rows[0, :5]]) == {3}
    assert model.kneighbors(["3 50"], 1000)[1].shape == (1, 200)
    assert_allclose(model.decision_function(["3 50"]), cosines[:1, 0] - model.threshold_)
    by_hand = model.search_.encode_query(["3 50"]) @ model.search_.vectors_.T
    assert_allclose(by_hand[0, rows[0]], cosines[0], atol=1e-6)
    with pytest.raises(ValueError, match="n_neighbors == 0, must be >= 1"):
        model.kneighbors(["3 50"], 0)


def test_each_text_is_encoded_once(recent):
    recent.bound = 2**20
    encoder = TextEncoder(model := Counting(vectors))
    NearestAnswer(encoder, false_positive_rate=0.1).fit(STORED + STORED, truth(STORED + STORED))
    assert sorted(model.asked) == sorted(STORED)
    model.asked.clear()
    NearestAnswer(encoder, false_positive_rate=0.1).fit(
        STORED, truth(STORED), unanswerable=UNANSWERABLE, queries=LOG
    )
    assert len(model.asked) <= len({*UNANSWERABLE, *LOG, *STORED})


def test_what_is_not_fitted_says_so():
    with pytest.raises(NotFittedError):
        clone(fitted()).predict(["1 1"])
    with pytest.raises(NotFittedError):
        drawn().partial_fit(STORED, truth(STORED))


def test_encoders_are_chosen_by_cross_validation():
    scores = cross_val_score(drawn(), STORED, truth(STORED), cv=3)
    assert scores.shape == (3,)


def test_a_calibration_by_the_stored_questions_warns():
    pipeline = make_pipeline(TextEncoder(vectors), Whitening(power="auto"))
    model = NearestAnswer(pipeline, false_positive_rate=0.1)
    with pytest.warns(UserWarning, match="is calibrated on the stored questions"):
        model.fit(STORED, truth(STORED))
    frozen = make_pipeline(TextEncoder(vectors), Whitening(power="auto"))
    model = NearestAnswer(FrozenEstimator(frozen.fit(LOG)), false_positive_rate=0.1)
    model.fit(STORED, truth(STORED))
    asked = texts_of(range(40), [30])
    assert model.score(asked, truth(asked)) > 0.7


ONE = "All 30 questions have one answer. Give questions with other answers, or"
UNKNOWN = "needs 19 distinct questions without an answer; got 8. "
FEW = "false_positive_rate=0.05 needs 39 stored questions; got 20. .* Or give `unanswerable`"


@pytest.mark.parametrize(
    ("questions", "answers", "more", "error", "match"),
    [
        (STORED, truth(STORED)[:-1], {}, ValueError, "inconsistent numbers of samples"),
        ([], [], {}, ValueError, "X has no texts"),
        ("one text", [1], {}, TypeError, "X is of type str; expected"),
        (STORED[:30], [5] * 30, {}, ValueError, ONE),
        (STORED[:20], truth(STORED[:20]), {}, ValueError, FEW),
        (["1 1"], "one answer", {}, TypeError, "y is of type str .*Wrap a single answer"),
        (STORED, truth(STORED), {"unanswerable": UNANSWERABLE[:8]}, ValueError, UNKNOWN),
        (STORED, truth(STORED), {"unanswerable": []}, ValueError, "unanswerable has no texts"),
        (["1 1", "1 2"], ["a", None], {}, ValueError, "y has a missing answer, None"),
        (["1 1", "1 1"], ["a", "b"], {}, ValueError, "'1 1' has the answers 'a' and 'b'"),
        (["1 1", "1 2"], np.array([[1], [2]]), {}, TypeError, r"shape \(2, 1\); .*ravel"),
        (
            ["1 1", "1 1"],
            [{"a": [1]}, {"a": [2]}],
            {},
            ValueError,
            r"the answers \{'a': \[1\]\}",
        ),
    ],
)
def test_what_it_cannot_use_is_refused(questions, answers, more, error, match):
    model = fitted(rate=0.05)
    with pytest.raises(error, match=match):
        model.fit(questions, answers, **more)
    with pytest.raises(NotFittedError):  # nothing is half fitted
        model.predict(["1 1"])


def test_a_refused_part_leaves_the_store_as_it_was():
    model = fitted()
    before = model.predict(LOG)
    with pytest.raises(ValueError, match="a missing answer, nan"):
        model.partial_fit(["500 1", "500 2"], [7, np.nan])
    model.set_params(false_positive_rate=0.001)
    with pytest.raises(ValueError, match=r"false_positive_rate=.* needs"):
        model.partial_fit(["500 1"], [7])
    assert_array_equal(model.predict(LOG), before)
    assert "500 1" not in model.questions_


@pytest.mark.parametrize(
    ("model", "name"),
    [
        (drawn(1), "'false_positive_rate' parameter of NearestAnswer"),
        (drawn("some"), "'false_positive_rate' parameter of NearestAnswer"),
        (
            NearestAnswer(SearchEncoder(vectors, lexical_weight=-1)),
            "'lexical_weight' parameter of SearchEncoder",
        ),
    ],
)
def test_parameters_out_of_range_are_refused_also_of_its_search(model, name):
    with pytest.raises(ValueError, match=name):
        model.fit(STORED, truth(STORED))


@pytest.mark.parametrize(("has_log", "least"), [(False, 0.6), (True, 0.4)])
def test_real_questions_get_their_answers(minilm, recent, has_log, least):
    """Of ten intents five are stored, one question of each aside; others get no answer."""
    recent.bound = 2**28
    texts, intents = load_questions(return_X_y=True)
    stored = (intents < 5) & (np.arange(100) % 10 > 2)
    asked = (intents < 5) & ~stored
    model = NearestAnswer(BertEncoder(minilm), false_positive_rate=0.1)
    more = {
        "unanswerable": texts[intents >= 8],
        "queries": texts[intents == 7] if has_log else None,
    }
    model.fit(texts[stored], intents[stored], **more)
    rates = model.hit_rates(
        [*texts[asked], *texts[(intents >= 5) & (intents < 7)]], [*intents[asked], *[None] * 20]
    )
    assert rates.right >= least
    assert rates.wrong <= 0.1
    assert rates.false <= 0.2


def test_answers_of_unequal_size_count_as_one_each():
    """The rate of a new answer, where some stored ones have a hundred times as many."""
    shares = []
    for draw in range(40):
        rng = np.random.default_rng(draw)
        sizes = np.minimum(rng.zipf(1.6, size=100), 100)
        stored = [f"{100 * draw + a} {i}" for a in range(50) for i in range(sizes[a])]
        new = [f"{100 * draw + a} {i}" for a in range(50, 100) for i in range(sizes[a])]
        answers = np.array(truth(new))
        hit = drawn(0.1).fit(stored, truth(stored)).decision_function(new) > 0
        shares.append(np.mean([hit[answers == a].mean() for a in np.unique(answers)]))
    assert 0.03 < np.mean(shares) < 0.12


def letters(texts):
    return np.array(
        [[text.count(c) for c in "abcdefghijklmnopqrstuvwxyz"] for text in texts], float
    )


@pytest.mark.parametrize("n", [120, 90])
def test_the_rate_holds_for_the_fit_from_a_hundred_questions_on(n):
    """One fit after another, each with thousands of new questions: nine of ten keep it."""
    population = texts_of(range(200, 4200), [0])
    model = drawn(0.05).fit(STORED, truth(STORED), unanswerable=population[:n])
    best = model.decision_function(population) + model.threshold_
    rng, shares = np.random.default_rng(n), []
    for _ in range(100):
        sample = rng.permutation(len(population))[:n]
        model.fit(STORED, truth(STORED), unanswerable=[population[i] for i in sample])
        shares.append(np.mean(np.delete(best, sample) > model.threshold_))
    if n >= 100:
        assert 0.83 < np.mean(np.array(shares) <= 0.05) < 0.98
    else:
        kept = np.floor((n + 1) * 0.05) / (n + 1)
        assert np.mean(shares) == pytest.approx(kept, rel=0.15)
        assert np.mean(np.array(shares) <= 0.05) < 0.8  # a single fit may exceed it


def test_words_count_where_vectors_are_equal():
    stored = [f"{word} account" for word in ("open", "close", "merge", "rename")] * 10
    stored = [f"{text} {i}" for i, text in enumerate(stored)]
    model = NearestAnswer(TextEncoder(letters), false_positive_rate=0.5)
    model.fit(stored, [text.split()[0] for text in stored])
    assert model.answers_[model.kneighbors(["merge my account"], 1)[1][0]].tolist() == ["merge"]


UNSPACED = ["如何重置密码", "怎么取消订单", "在哪里查看账单", "退款需要多久", "如何更改地址"]


@pytest.mark.parametrize(
    ("stored", "answers"),
    [
        (["", "  ", "open account", "close account"], [1, 1, 2, 3]),
        (["open account"] * 3 + ["close account"] * 2, [1, 1, 1, 2, 2]),
        (UNSPACED, [1, 2, 3, 4, 5]),
        (["12 34", "?", "open"], [1, 2, 3]),
    ],
)
@pytest.mark.filterwarnings("ignore")
def test_odd_stores_and_questions_give_finite_scores(stored, answers):
    def vectors(texts):
        return np.array(
            [[len(text), *map(text.count, "acemnop账如?1")] for text in texts], float
        )

    model = NearestAnswer(TextEncoder(vectors), false_positive_rate=0.9).fit(stored, answers)
    asked = ["", "  ", "zzz", "如何重置", "12 34", "open accounts", stored[0]]
    scores, rows = model.kneighbors(asked, 9)
    assert np.isfinite(scores).all()
    assert np.isfinite(model.decision_function(asked)).all()
    assert rows.shape[1] == len({*stored})
    assert model.predict(asked)[-1] == answers[0]  # what is stored gets its answer


def test_dates_keep_what_they_are():
    dates = np.datetime64("2026-01-01", "ns") + np.array(truth(STORED)).astype("timedelta64[D]")
    for answers in (dates, pd.Series(dates), [*dates]):
        model = drawn().fit(STORED, answers)
        [answer] = model.predict(["3 50"])
        assert answer == np.datetime64("2026-01-04")
        assert isinstance(answer, np.datetime64 | pd.Timestamp)
    assert model.hit_rates(["3 50", "999 1"], [dates[15], None]) == (1, 0, 0)


def near(text):
    """A text with nearly the vector of another one."""
    return f"{text} again"


def almost(texts):
    """Vectors in which a repeated word changes little."""
    plain = vectors([text.removesuffix(" again") for text in texts])
    return plain + 0.01 * np.array([[text.endswith("again")] for text in texts])


@pytest.mark.parametrize("change", [str, near])
def test_what_is_stored_is_answered_though_it_is_called_unanswerable(change):
    clean = drawn().fit(STORED, truth(STORED), unanswerable=UNANSWERABLE)
    search = SearchEncoder(TextEncoder(almost), lexical_weight=0)
    model = NearestAnswer(search, false_positive_rate=0.1)
    wrong = [change(text) for text in STORED[:60:2]]
    with pytest.warns(
        UserWarning, match=r"30 of 230 unanswerable .*: '0 0.*' by '0 0', .*\.\.\."
    ):
        model.fit(STORED, truth(STORED), unanswerable=[*UNANSWERABLE, *wrong])
    assert model.threshold_ == pytest.approx(clean.threshold_, abs=1e-6)
    asked = texts_of(range(40), [30])
    assert model.hit_rates(asked, truth(asked)) == clean.hit_rates(asked, truth(asked))
    with (
        pytest.warns(UserWarning, match="30 of 30 unanswerable"),
        pytest.raises(ValueError, match=r"needs 9 distinct .* got 0"),
    ):
        model.fit(STORED, truth(STORED), unanswerable=wrong)


def test_what_is_answered_later_no_longer_counts_as_unanswerable():
    asked, few = texts_of(range(40), [30]), UNANSWERABLE[::10]
    model = NearestAnswer(TextEncoder(vectors), false_positive_rate=0.1)
    model.fit(STORED, truth(STORED), unanswerable=few)
    before = model.hit_rates(asked, truth(asked))
    with pytest.warns(UserWarning, match="4 of 20 unanswerable questions are answered"):
        model.partial_fit(few[:4], truth(few[:4]))
    assert model.predict(few[:4]).tolist() == truth(few[:4])
    for part, answered, n_left in ((few[:14], "10 of 16", 6), (few, "6 of 6", 0)):
        with (
            pytest.warns(UserWarning, match=f"{answered} unanswerable questions are"),
            pytest.warns(UserWarning, match=f"Only {n_left} of the unanswerable questions"),
        ):
            model.partial_fit(part, truth(part))
        assert model.hit_rates(asked, truth(asked)).right >= before.right - 0.05
    with pytest.warns(UserWarning, match="Only 0"):
        model.partial_fit(["500 1"], [500])
