"""Model selection without labels: views, their scorer, the search, and its command."""

import json
import os
import pickle
import re
import sys
import unicodedata
import zlib
from collections import Counter
from itertools import pairwise
from pathlib import Path

import joblib
import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy.spatial.distance import cdist
from scipy.special import expit, logit
from scipy.stats import rankdata
from sklearn import config_context
from sklearn.base import BaseEstimator, TransformerMixin, clone
from sklearn.decomposition import PCA
from sklearn.exceptions import NotFittedError
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV, KFold
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer

from skcalib import (
    BertEncoder,
    BiEncoder,
    CalibrationSearch,
    NeighborSmoothing,
    TextEncoder,
    Whitening,
)
from skcalib.__main__ import main
from skcalib.datasets import fetch_sts
from skcalib.evaluation import evaluate_labeled
from skcalib.model_selection import SelfRetrieval
from skcalib.model_selection._candidates import Candidate, Evidence
from skcalib.model_selection._scores import Found, Scored, choose
from skcalib.model_selection._views import near_duplicates
from skcalib.statistics.bootstrap import leads

ENGLISH = "The old man plays a flute,  and it\trains.\nA dog sleeps."
CHINESE = "我昨天在公园里看见一只小狗。"
THAI = "ผู้หญิงกำลังเล่นกีตาร์ที่บ้าน"
HINDI = "एक आदमी बगीचे में गिटार बजा रहा है"
KHMER = "ខ្ញុំចូលចិត្តស្តាប់ចម្រៀង"


@pytest.fixture(scope="module")
def sentences(words):
    """A hundred sentences that keep to a few words of their own, in both halves."""
    rng = np.random.default_rng(0)
    return [" ".join(rng.permutation(np.repeat(rng.choice(words, 4), 3))) for _ in range(100)]


@pytest.fixture
def encoded(monkeypatch):
    """A list that grows with every batch that goes through a model, by its number of texts."""
    from skcalib.encoders.model.batches import BertModel

    numbers, encode = [], BertModel.encode

    def counted(self, texts, show):
        for batch in encode(self, texts, show):
            numbers.append(len(batch.rows))
            yield batch

    monkeypatch.setattr(BertModel, "encode", counted)
    return numbers


class FirstNumber(TransformerMixin, BaseEstimator):
    """Vectors of a text without a model: its first word's number, or a constant."""

    def __init__(self, constant=False):
        self.constant = constant

    def fit(self, X, y=None):
        self.fitted_ = True
        return self

    def transform(self, X):
        if self.constant:
            return np.ones((len(X), 3))
        return np.eye(1000)[[int(text.split()[0]) for text in X]]


def chance(texts):
    """Vectors without structure."""
    seeds = [zlib.crc32(text.encode()) for text in texts]
    return np.stack([np.random.default_rng(seed).normal(size=8) for seed in seeds])


def numbered(n):
    """Texts of one word each, over and over: every view of a text names it."""
    return [" ".join([str(i)] * 8) for i in range(n)]


def hashed(texts):
    """Sum of random vectors of the words, around a mean of all entries."""
    words = [[sum(map(ord, word)) for word in text.split()] for text in texts]
    drawn = [[np.random.default_rng(w).normal(size=16) for w in of_text] for of_text in words]
    return np.array([1 + np.sum(of_text, axis=0) for of_text in drawn])


# Views


def views_of(texts, **params):
    """Views of each text, of texts none of whose views are alike: what a model is asked for."""
    asked = {}

    def model(texts):
        asked.update(dict.fromkeys(texts))
        return np.ones((len(texts), 2))

    SelfRetrieval(**params)(model, texts)
    return [tuple(view) for view in np.array(list(asked)).reshape(-1, 5).tolist()]


def of_words(n, n_words=20):
    """Texts of words that no other text has."""
    return [" ".join(f"{i}.{j}" for j in range(n_words)) for i in range(n)]


@pytest.mark.parametrize(
    ("text", "odd", "even"),
    [
        ("The  old dog\tsleeps on it.\n", "The  dog\ton", "old sleeps it."),
        ("我爱 Python 编程。好", "我Python 程好", "爱 编。"),
        (2 * "กีตาร์ที่บ้าน", 2 * "กีาที่า", 2 * "ตร์บ้น"),
        ("하나 둘 셋 넷 다섯 여섯 일곱 여덟", "하나 셋 다섯 일곱", "둘 넷 여섯 여덟"),
    ],
)
def test_odd_and_even_units_are_words_or_characters(text, odd, even):
    views = {whole: halves for whole, _, _, *halves in views_of([*of_words(199), text])}
    assert views[text.strip()] == [odd, even]


@pytest.mark.parametrize("text", [ENGLISH, CHINESE, THAI, HINDI, KHMER])
def test_halves_have_all_of_a_text_and_keep_marks_with_their_letters(text):
    views = {whole: halves for whole, _, _, *halves in views_of([*of_words(199), text])}
    odd, even = views[text]
    assert Counter("".join(text.split())) == Counter("".join((odd + even).split()))
    assert not any(unicodedata.category(half[0]).startswith("M") for half in (odd, even))


def test_three_words_of_ten_stay():
    kept = [
        [len(thinned.split()) for thinned in (one, other)]
        for _, one, other, _, _ in views_of(of_words(200))
    ]
    assert np.mean(kept) == pytest.approx(20 * 0.3 + 0.7, abs=0.2)  # one stays in any case
    assert np.min(kept) > 0
    for whole, one, other, *_ in views_of(of_words(200)):
        for view in (one, other):
            assert view.split() == [word for word in whole.split() if word in view.split()]


def test_views_of_a_text_depend_on_it_and_the_seed_alone():
    texts = of_words(100)
    views = views_of(texts, n_texts=100)
    assert views_of(texts[::-1] + texts[:7], n_texts=100) == views
    assert views_of(texts, n_texts=30) == views[:30]
    others = views_of(texts, n_texts=100, random_state=1)
    assert {v[0] for v in others[:30]} != {v[0] for v in views[:30]}
    for one, other in zip(sorted(views), sorted(others), strict=True):
        assert one[1:3] != other[1:3]
        assert (one[0], one[3:]) == (other[0], other[3:])  # nothing to draw


def test_short_texts_and_repeated_ones_are_left_out():
    texts = of_words(198), ["one two three four five", "one two three four five six", CHINESE]
    found = {whole for whole, *_ in views_of([*texts[0], *texts[1], CHINESE[:5], *texts[1]])}
    assert found == {*texts[0], *texts[1][1:]}


# SelfRetrieval


@pytest.mark.parametrize("n", [20, 300])
def test_vectors_that_tell_texts_apart_score_one(n):
    scorer = SelfRetrieval(n_texts=n)
    assert scorer(FirstNumber().fit([]), numbered(n)) == 1.0
    assert scorer(BiEncoder(FirstNumber()).fit(numbered(n)), numbered(n)) == 1.0


def test_equal_vectors_share_their_mean_rank():
    constant = FirstNumber(constant=True).fit([])
    assert SelfRetrieval(n_texts=20)(constant, numbered(20)) == pytest.approx(2 / 21)
    zero = SelfRetrieval(n_texts=30)(lambda texts: np.zeros((len(texts), 4)), numbered(30))
    assert zero == pytest.approx(2 / 31)


@pytest.mark.parametrize("similarity", ["cosine", "dot", "euclidean"])
def test_score_is_the_logits_mean_of_reciprocal_ranks_both_ways(similarity):
    sentences = of_words(100)
    model = BiEncoder(TextEncoder(chance), similarity=similarity).fit(sentences)
    views = views_of(sentences, n_texts=100, random_state=3)
    whole, one, other, odd, even = map(chance, zip(*views, strict=True))

    def found(a, b):
        alike = a @ b.T if similarity == "dot" else -cdist(a, b, similarity)
        ways = [rankdata(-m, axis=1).diagonal() for m in (alike, alike.T)]
        return np.mean([1 / way for way in ways])

    halves = found(odd, even)
    thinned = (found(whole, one) + found(whole, other)) / 2
    for weight in (0.0, 0.2, 1.0):
        scorer = SelfRetrieval(n_texts=100, random_state=3, thinned=weight)
        expected = expit((1 - weight) * logit(halves) + weight * logit(thinned))
        assert scorer(model, sentences) == pytest.approx(expected, rel=1e-3)
    assert SelfRetrieval().thinned == 0.5


def test_search_without_grades_on_texts_and_on_pairs(tiny_bert, sentences, tmp_path):
    pipeline = make_pipeline(BertEncoder(tiny_bert, memory=tmp_path), Whitening(noise=1.0))
    grid = {"encoder__bertencoder__layers": [0, 2], "encoder__whitening__noise": [0.5, "auto"]}
    scorer = SelfRetrieval(n_texts=20)
    for X in (sentences, np.array(sentences).reshape(50, 2)):
        search = GridSearchCV(
            BiEncoder(pipeline), grid, scoring=scorer, cv=KFold(2), error_score="raise"
        ).fit(X)
        scores = search.cv_results_["mean_test_score"]
        assert len(np.unique(scores)) == 4
        assert search.best_params_["encoder__bertencoder__layers"] == 0  # what knows the words
        half = len(X) // 2
        by_hand = [
            scorer(BiEncoder(search.best_estimator_.encoder).fit(fit_on), held_out)
            for fit_on, held_out in ((X[half:], X[:half]), (X[:half], X[half:]))
        ]
        assert scores.max() == pytest.approx(np.mean(by_hand))


def test_fewer_texts_than_can_be_told_apart():
    encoder = FirstNumber().fit([])
    short = ["5 words are too few"] * 50
    with pytest.raises(ValueError, match=r"Found 19 distinct texts of 6 words.* at least 20"):
        SelfRetrieval()(encoder, numbered(19) * 2 + short)
    with pytest.warns(UserWarning, match="Found 199 distinct texts.*fewer than 200"):
        SelfRetrieval()(encoder, numbered(199))
    SelfRetrieval()(encoder, numbered(200))
    SelfRetrieval(n_texts=30)(encoder, numbered(30))  # as many as were asked for


@pytest.mark.parametrize(
    ("params", "message"),
    [
        ({"n_texts": 19}, "must be an int in the range [20, inf). Got 19 instead"),
        ({"n_texts": 50.0}, "Got 50.0 instead"),
        ({"random_state": -1}, "must be an int in the range [0, inf). Got -1 instead"),
        ({"random_state": None}, "Got None instead"),
    ],
)
def test_parameters_out_of_range(params, message):
    with pytest.raises(ValueError, match=re.escape(message)):
        SelfRetrieval(**params)(FirstNumber().fit([]), numbered(30))
    with pytest.raises(ValueError, match=re.escape(message)):
        CalibrationSearch("no/model", **params).fit(numbered(30))


def test_weight_may_be_any_number_from_0_to_1():
    for weight in (0, 1.0, np.float32(0.5)):
        assert SelfRetrieval(thinned=weight)(FirstNumber().fit([]), numbered(200)) == 1.0


@pytest.mark.parametrize("weight", [-0.1, 1.1, float("nan"), "half", None])
def test_weight_out_of_range(weight):
    with pytest.raises(ValueError, match=re.escape(f"[0.0, 1.0]. Got {weight!r} instead")):
        SelfRetrieval(thinned=weight)(FirstNumber().fit([]), numbered(30))


def test_scorer_takes_fitted_estimators_and_texts():
    with pytest.raises(NotFittedError):
        SelfRetrieval()(FirstNumber(), numbered(30))
    for X, message in (
        (list(range(30)), "X has 0 of type int at position 0"),
        ("a text", "X is of type str"),
    ):
        with pytest.raises(TypeError, match=message):
            SelfRetrieval()(FirstNumber().fit([]), X)


@pytest.mark.parametrize("value", [np.nan, np.inf, 1e200])
def test_vectors_that_are_not_finite_win_no_search(value):
    encoder = make_pipeline(FirstNumber(), FunctionTransformer(lambda X: (X + 1) * value))
    model = BiEncoder(encoder, similarity="dot").fit(numbered(30))
    with pytest.raises(ValueError, match="not finite, or whose products overflow"):
        SelfRetrieval(n_texts=20)(model, numbered(30))


# CalibrationSearch


def searched(encoder, texts, groups=None, **params):
    return CalibrationSearch(encoder, **params).fit(texts, groups=groups)


def rows(search):
    """Rows of the results, as dictionaries."""
    return pd.DataFrame(search.cv_results_).to_dict("records")


def states(search):
    return {(row["pooling"], row["layers"]) for row in rows(search)}


def chosen(search):
    return rows(search)[search.best_index_]


@pytest.fixture(scope="module")
def calibrated(tiny_bert, sentences):
    return searched(tiny_bert, sentences, n_texts=100)


def test_all_hidden_states_and_calibrations_are_candidates(calibrated):
    found = {(row["pooling"], row["layers"], row["candidate"]) for row in rows(calibrated)}
    found = {candidate for candidate in found if candidate[2] != "strong"}
    expected = {(p, i) for p in ("mean", "cls", "max", "zipf") for i in range(4)} - {("cls", 0)}
    expected = {(*state, name) for state in expected for name in ("raw", "whitening")}
    assert found == expected | {("mean", 3, "mean")}
    assert calibrated.n_texts_ == 100


@pytest.mark.parametrize("outlier", [0, 30])
def test_a_strong_whitening_is_tried_where_the_mean_has_outliers(outlier, sentences):
    """As in inner layers. An output that was trained for cosines has none."""

    def vectors(texts):
        found = hashed(texts)
        return found * [1 + outlier / 10, *[1] * 15] + [outlier, *[0] * 15]

    search = searched(vectors, sentences, n_texts=60)
    strong = "Whitening(n_groups='many', noise='auto')"
    assert (strong in search.cv_results_["calibrator"]) == (outlier > 0)
    for asked in ({"task": "topics"}, {"task": "matches"}, {"n_groups": 3}):
        search = searched(vectors, sentences, n_texts=60, **asked)
        assert "strong" not in search.cv_results_["candidate"]


def test_scores_of_raw_candidates_are_those_of_the_scorer_on_either_half(
    calibrated, tiny_bert, sentences, tmp_path
):
    asked = []
    SelfRetrieval(n_texts=100)(lambda texts: asked.extend(texts) or chance(texts), sentences)
    sample = [text for text in dict.fromkeys(asked) if text in sentences]
    kinds = [SelfRetrieval(n_texts=50, thinned=weight) for weight in (0, 1)]
    for row in rows(calibrated):
        if row["candidate"] == "raw":
            state = {"pooling": row["pooling"], "layers": row["layers"]}
            encoder = BertEncoder(tiny_bert, **state, memory=tmp_path).fit(sentences)
            halves, thinned = (
                np.mean([scorer(encoder, sample[i::2]) for i in (0, 1)]) for scorer in kinds
            )
            assert row["halves"] == pytest.approx(halves, abs=2e-3)
            expected = expit((logit(halves) + logit(thinned)) / 2)
            assert row["score"] == pytest.approx(expected, abs=2e-3)


def test_the_results_are_a_frame_that_starts_with_the_raw_model(calibrated):
    frame = pd.DataFrame(calibrated.cv_results_)
    described = ["pooling", "layers", "candidate", "calibrator"]
    assert frame.loc[0, described].tolist() == ["mean", 3, "raw", "passthrough"]
    assert frame[described].astype(str).duplicated().sum() == 0
    assert ((frame["score"] > 0) & (frame["score"] <= 1) & (frame["halves"] <= 1)).all()
    raw = frame["candidate"] == "raw"
    assert (frame.loc[raw, "gain"] == 0).all()
    assert (frame.loc[~raw, "gain_low"] < frame.loc[~raw, "gain_high"]).all()
    by_state = frame.groupby(["pooling", "layers"])
    assert (by_state["lead"].count() == 1).all()  # that of its best calibration
    own = by_state["score"].transform("first")  # raw vectors come first in each
    np.testing.assert_allclose(frame["gain"], frame["score"] - own, atol=1e-12)
    led = frame.dropna(subset=["lead"])
    np.testing.assert_allclose(led["lead"], led["halves"] - led["halves"].iloc[0], atol=1e-12)
    # Evidence for another candidate on the raw model's layer and pooling, or for another one.
    best = frame.loc[calibrated.best_index_]
    assert best["candidate"] == "raw" or best["gain_low"] > 0
    assert best["layers"] == 3 or best["lead_low"] > 0


def test_the_best_estimator_is_the_candidate_chosen_fitted_on_all_texts(
    calibrated, tiny_bert, sentences
):
    best, pipeline = chosen(calibrated), calibrated.best_estimator_
    assert list(pipeline.named_steps) == ["encode", "calibrate"]
    assert best["calibrator"] == str(pipeline["calibrate"])
    encoder = BertEncoder(tiny_bert, pooling=best["pooling"], layers=best["layers"])
    expected = make_pipeline(encoder, clone(pipeline["calibrate"], safe=False))
    expected = expected.fit_transform(sentences)
    assert_allclose(pipeline.transform(sentences), expected, rtol=1e-4, atol=1e-4)
    assert_array_equal(calibrated.transform(sentences), pipeline.transform(sentences))


@pytest.mark.parametrize("as_pairs", [False, True])
def test_the_search_is_deterministic_in_any_order(calibrated, tiny_bert, sentences, as_pairs):
    texts = np.array(sentences).reshape(2, 50).T if as_pairs else sentences[::-1]
    again = searched(tiny_bert, texts, n_texts=100)
    assert_allclose(again.cv_results_["score"], calibrated.cv_results_["score"], atol=2e-3)
    assert again.best_index_ == calibrated.best_index_


def test_it_is_a_step_of_a_pipeline_and_of_a_grid_search(tiny_bert, sentences):
    classes = np.arange(100) % 2
    search = CalibrationSearch(tiny_bert, task="duplicates", layers=[3], pooling="mean")
    model = make_pipeline(search, LogisticRegression()).fit(sentences, classes)
    back = pickle.loads(pickle.dumps(model))
    assert_array_equal(back.predict_proba(sentences), model.predict_proba(sentences))
    assert len(model[:1].get_feature_names_out()) == model[0].transform(["a dog"]).shape[1]
    grid = {"calibrationsearch__task": ["duplicates", "topics"]}
    grid = GridSearchCV(model, grid, cv=2, error_score="raise").fit(sentences, classes)
    assert len(grid.cv_results_["params"]) == 2
    assert grid.best_estimator_[0].task == grid.best_params_["calibrationsearch__task"]
    with pytest.raises(NotFittedError):
        clone(model[0]).transform(sentences)


def test_whatever_takes_an_encoder_takes_a_search(tiny_bert, sentences):
    search = CalibrationSearch(tiny_bert, task="duplicates", layers=[3], pooling="mean")
    model = BiEncoder(search).fit(sentences)
    expected = BiEncoder(search.fit(sentences).best_estimator_).fit(sentences)
    pairs = list(pairwise(sentences))
    assert_allclose(model.predict(pairs), expected.predict(pairs), atol=1e-6)


def test_own_candidates_are_tried_and_chosen_by_both_scores(sentences):
    class Signal(TransformerMixin, BaseEstimator):
        """Keep the columns that words have, and drop those of noise."""

        def fit(self, X, y=None):
            self.n_kept_ = 16
            return self

        def transform(self, X):
            return X[:, : self.n_kept_]

    def noisy(texts):
        return np.hstack([hashed(texts), 6 * chance(texts)])

    own = [("signal", Signal()), ("pca", PCA(2))]
    search = searched(noisy, sentences, candidates=own, n_texts=100)
    names = search.cv_results_["candidate"].tolist()
    assert names == ["raw", "mean", "whitening", "signal", "pca"]
    assert chosen(search)["candidate"] == "signal"
    assert re.match(r"'signal' improves the score by .* and the halves, bey", search.reason_)
    assert isinstance(search.best_estimator_["calibrate"], Signal)
    search = searched(noisy, sentences, candidates=own, task="matches", n_texts=100)
    assert chosen(search)["candidate"] == "signal"  # rather than what the task asks for


def test_a_candidate_under_a_name_of_the_default_ones_replaces_it(sentences):
    own = [("mean", PCA(2))]
    search = searched(hashed, sentences, candidates=own, task="matches")
    assert isinstance(search.best_estimator_["calibrate"], PCA)
    search = searched(hashed, sentences, candidates=own, n_texts=100)
    assert search.cv_results_["candidate"].tolist() == ["raw", "mean", "whitening"]
    assert search.cv_results_["calibrator"][1] == "PCA(n_components=2)"


def test_candidates_stay_as_they_are(sentences):
    pca = PCA(2)
    search = CalibrationSearch(hashed, candidates=[("mean", pca)], task="matches")
    search.fit(sentences)
    assert not hasattr(pca, "components_")
    twin = clone(search)
    assert twin.candidates[0][1] is not pca
    assert repr(twin) == repr(search)


def test_another_hidden_state_is_chosen_where_its_lead_is_beyond_chance(tiny_bert, sentences):
    search = searched(tiny_bert, sentences, pooling=["mean"], n_texts=100)
    best = chosen(search)
    assert best["layers"] < 3  # random blocks spoil what the embeddings know
    assert 0 < best["lead_low"] < best["lead"] < best["lead_high"]
    lead = f"{100 * best['lead']:+.1f} ({100 * best['lead_low']:+.1f} to"
    assert f"leads that of the raw model by {lead}" in search.reason_


def test_shipped_hidden_state_is_kept_where_the_lead_may_be_chance(tiny_bert, sentences):
    params = {"layers": [2, 3], "pooling": ["mean", "zipf"], "n_texts": 100}
    for seed in range(5):
        search = searched(tiny_bert, sentences, random_state=seed, **params)
        is_kept = (chosen(search)["pooling"], chosen(search)["layers"]) == ("mean", 3)
        frame = pd.DataFrame(search.cv_results_)
        leader = frame.loc[frame["lead"].idxmax()]
        assert is_kept == (not leader["lead_low"] > 0), seed
        assert ("leads that of the raw model" in search.reason_) == (not is_kept), seed


def lead_of_best(ranks, groups, seed=0):
    """The best of several candidates, and how far it leads the first."""
    found = leads(ranks, groups, seed)
    return max(enumerate(found), key=lambda one: one[1].mean)


def even(rng, shape):
    """Differences between hard and easy texts, and of candidates."""
    return rng.normal(size=(1, shape[1])) + rng.normal(size=shape)


def skewed(rng, shape):
    """Rare large losses: the mean is 0, the median a small gain."""
    return 0.3 * (1 - rng.exponential(size=shape)) * (np.arange(shape[0])[:, None] > 0)


@pytest.mark.parametrize("drawn", [even, skewed])
@pytest.mark.parametrize(("n", "n_candidates"), [(20, 15), (60, 5), (200, 15)])
def test_the_best_of_many_equal_candidates_is_rarely_called_better(drawn, n, n_candidates):
    # With one standard error for all resamples, skewed ones are in 43, 15 and 8 % of runs.
    rng, groups, found = np.random.default_rng(0), np.arange(n), 0
    for seed in range(200):
        ranks = drawn(rng, (n_candidates + 1, n))
        found += lead_of_best(ranks, groups, seed)[1].is_gain
    assert found <= 11  # 2.5 % are 5


def test_a_clear_lead_among_many_candidates_is_found():
    rng, n = np.random.default_rng(0), 200
    ranks = rng.normal(size=(1, n)) + rng.normal(size=(28, n))
    ranks[17] += 0.5
    groups = np.arange(n)
    best, lead = lead_of_best(ranks, groups)
    assert best == 17
    assert 0 < lead.low < lead.mean < lead.high


def scored(seed=0, asked=False, **gains):
    """Candidates of one layer and pooling; gains of halves and of copies with words dropped."""
    rng = np.random.default_rng(seed)
    shared, found = rng.uniform(0.2, 0.6, size=(2, 300)), []
    for name in ("raw", "mean", "whitening", "strong"):
        ranks = shared + np.reshape(gains.get(name, (0, 0)), (2, 1))
        ranks = ranks + rng.normal(scale=0.05, size=shared.shape) * (name != "raw")
        evidence = Evidence.BOTH if name == "strong" else Evidence.SCORE
        evidence = Evidence.NONE if asked and name == "whitening" else evidence
        found.append(Scored(("mean", 6), Candidate(name, "passthrough", evidence), ranks))
    return found


@pytest.mark.parametrize(
    ("gains", "asked", "expected"),
    [
        ({}, False, "raw"),
        ({}, True, "whitening"),
        ({"mean": (0.03, 0.03)}, False, "mean"),
        ({"mean": (0.03, 0.03)}, True, "whitening"),
        ({"whitening": (0.03, 0.03)}, False, "whitening"),
        ({"mean": (0.03, 0.03), "whitening": (0.05, 0.05)}, False, "whitening"),
        # Copies with words dropped alone are no evidence for a strong whitening.
        ({"strong": (0, 0.1)}, False, "raw"),
        ({"strong": (0.01, 0.1), "whitening": (0.03, 0.03)}, False, "whitening"),
        ({"strong": (0, 0.1)}, True, "whitening"),
        ({"strong": (0.05, 0.1), "whitening": (0.03, 0.03)}, True, "strong"),
        ({"strong": (0.05, 0.1)}, False, "strong"),
    ],
)
def test_a_calibration_is_chosen_by_evidence(gains, asked, expected):
    chosen, reason = choose(
        Found([scored(asked=asked, **gains)], True, True), np.arange(300), seed=0
    )
    assert chosen.candidate.name == expected
    assert repr(expected) in reason or expected == "raw"


def test_of_equal_calibrations_one_is_rarely_called_better():
    found = 0
    for seed in range(60):
        chosen, _ = choose(Found([scored(seed=seed)], True, True), np.arange(300), seed=0)
        found += chosen.candidate.name != "raw"
    assert found <= 5  # 2.5 % are 1.5


@pytest.mark.filterwarnings("ignore:There are fewer than 5 samples")
@pytest.mark.parametrize("task", [None, "topics"])
def test_a_narrow_domain_is_not_made_worse(task, minilm, sts_home, remembered):
    # MiniLM reads altered copies of real texts: some 3 s.
    folder = Path(sts_home).parent / "narrow"
    if not folder.exists():
        pytest.skip("no folder narrow beside SKCALIB_DATA")
    fit, score = (pd.read_csv(folder / f"intents-{half}.csv") for half in ("train", "test"))
    fit_on = fit["text"].sample(200, random_state=0).tolist()
    search = searched(minilm, fit_on, task=task, n_texts=100)
    some = score.sample(150, random_state=0)
    some = some[some["label"].map(some["label"].value_counts()) >= 5]
    table = evaluate_labeled(
        {"raw": search.best_estimator_["encode"], "calibrated": search},
        some["text"],
        some["label"],
        scores=("R-precision",),
    )
    raw, calibrated = table.scores[:, 0]
    assert calibrated >= raw - 1
    # A strong whitening finds each text by what is rare in it, and loses the intents.
    assert "strong" not in search.cv_results_["candidate"]


def templated(n_templates, n_each, n_words=9):
    """Texts of which ``n_each`` differ in one word only."""
    return [
        " ".join([*(f"{i}.{j}" for j in range(n_words)), f"name{i}.{k}"])
        for i in range(n_templates)
        for k in range(n_each)
    ]


def test_near_duplicates_of_near_duplicates_are_one_group():
    """Five words each, of which neighbors in a chain share four; its ends share none."""
    chains = [" ".join(f"{c}.{i + j}" for j in range(5)) for c in range(3) for i in range(8)]
    expected = np.repeat(np.arange(3), 8)
    for draw in range(5):
        order = np.random.default_rng(draw).permutation(24)
        with config_context(working_memory=7 * 24 * 8 / 2**20):  # blocks of seven texts
            groups = near_duplicates([chains[i] for i in order])
        same = groups[:, None] == groups
        assert_array_equal(same, expected[order][:, None] == expected[order])
        assert sorted({*groups.tolist()}) == [0, 1, 2]


def test_texts_of_one_template_are_one_piece_of_evidence():
    # Taken for independent, two equal encoders are told apart in 30 % of these runs.
    groups = near_duplicates(templated(30, 20))
    assert_array_equal(groups, np.repeat(np.arange(30), 20))
    rng, found = np.random.default_rng(0), 0
    for seed in range(200):
        ranks = rng.normal(size=(2, 30))[:, groups] + rng.normal(size=(2, 600))
        found += lead_of_best(ranks, groups, seed)[1].is_gain
    assert found <= 7  # of one side, 2.5 % are 5


@pytest.mark.parametrize(
    ("n_templates", "n_each", "reason"),
    [
        (40, 10, "no candidate gains"),
        (5, 80, "400 texts share most of their words and count as 5 groups"),
        (300, 1, "no candidate gains"),
    ],
)
def test_reason_counts_near_duplicates_once(n_templates, n_each, reason):
    search = searched(chance, templated(n_templates, n_each), n_texts=400)
    assert reason in search.reason_
    assert (search.cv_results_["gain_high"][1] == 1) == (n_templates < 20)


def test_repeated_texts_count_once(tiny_bert, sentences):
    params = {"layers": [3], "pooling": "mean", "n_texts": 100, "task": "topics"}
    once = searched(tiny_bert, sentences, **params)
    repeated = searched(tiny_bert, sentences + 9 * sentences[:20], **params)
    expected = once.transform(sentences)
    assert_allclose(repeated.transform(sentences), expected, atol=1e-5)


def test_texts_too_short_to_compare_layers_keep_the_raw_ones(tiny_bert, words):
    # Half of a text says nothing of its other half.
    rng = np.random.default_rng(0)
    texts = [" ".join(rng.permutation(words)[:6]) for _ in range(300)]
    search = searched(tiny_bert, texts, n_texts=300)
    assert (chosen(search)["pooling"], chosen(search)["layers"]) == ("mean", 3)
    assert "layer" not in search.reason_


def test_a_search_fits_encoders_without_the_texts_they_are_scored_on(sentences):
    class Memorizing(TransformerMixin, BaseEstimator):
        """Knows the texts that it has seen, and nothing else."""

        def fit(self, X, y=None):
            self.seen_ = {word: i for i, word in enumerate(sorted(set(" ".join(X).split())))}
            return self

        def transform(self, X):
            rows = np.full((len(X), len(self.seen_) + 1), 1e-3)
            for row, text in zip(rows, X, strict=True):
                for word in text.split():
                    row[self.seen_.get(word, -1)] += 1
            return rows

    texts = [f"{i}a {i}b " * 4 for i in range(200)]  # no word in two of them
    for unfitted in (Memorizing(), Memorizing().fit(texts)):
        assert searched(unfitted, texts, n_texts=200).cv_results_["score"][0] < 0.1
    frozen = searched(FrozenEstimator(Memorizing().fit(texts)), texts, n_texts=200)
    assert frozen.cv_results_["score"][0] > 0.9


def test_nothing_is_calibrated_where_that_does_not_help(tiny_bert, words):
    # One word over and over: raw embeddings find every view, and nothing finds more.
    texts = [" ".join([word] * 20) for word in words]
    search = searched(tiny_bert, texts, layers=[0], pooling=["mean"], n_texts=40)
    assert chosen(search)["candidate"] == "raw"
    assert search.best_estimator_["calibrate"] == "passthrough"
    assert search.transform(texts[:1]).shape == (1, 16)


def test_several_hidden_states_may_be_merged(tiny_bert, sentences):
    params = {"pooling": "mean", "layers": ["last2", (0, 1), 0, -4]}
    search = searched(tiny_bert, sentences, **params, n_texts=100)
    assert {*search.cv_results_["layers"]} == {3, 0, (2, 3), (0, 1)}
    layers = chosen(search)["layers"]
    expected = layers if isinstance(layers, tuple) else (layers,)
    assert search.best_estimator_["encode"].layers_ == expected


@pytest.mark.parametrize("globally", [False, True])
def test_frames_change_nothing(tiny_bert, sentences, globally):
    pytest.importorskip("pandas")
    params = {"layers": [0], "pooling": "mean", "n_texts": 100}
    expected = searched(tiny_bert, sentences, **params)
    encoder = BertEncoder(tiny_bert)
    if not globally:
        encoder.set_output(transform="pandas")
    with config_context(transform_output="pandas" if globally else "default"):
        search = searched(encoder, sentences, **params)
        vectors = np.asarray(search.transform(sentences))
    assert search.best_index_ == expected.best_index_
    assert_allclose(vectors, expected.transform(sentences), rtol=1e-4, atol=1e-4)


@pytest.mark.filterwarnings("ignore:.*unknown to this model")
def test_texts_that_the_model_cannot_tell_apart_are_named(tiny_bert):
    texts = [" ".join([f"unbekannt{i}"] * 8) for i in range(20)]
    with pytest.raises(ValueError, match="the same vector with pooling='mean', lay"):
        searched(tiny_bert, texts, n_texts=20)


def test_zipf_is_left_out_of_a_vocabulary_without_frequencies(
    make_bert, words, sentences, tmp_path
):
    model = make_bert(tmp_path / "model", words=tuple(sorted(words)))
    search = searched(model, sentences, n_texts=100)
    assert {*search.cv_results_["pooling"]} == {"mean", "cls", "max"}


@pytest.fixture
def declaring(tiny_bert_copy):
    """Folder of a model that declares its pooling."""
    folder = tiny_bert_copy()
    (folder / "1_Pooling").mkdir()
    (folder / "1_Pooling" / "config.json").write_text('{"pooling_mode_cls_token": true}')
    return folder


def test_declared_layer_and_pooling_stay_unless_others_are_asked_for(declaring, sentences):
    assert states(searched(declaring, sentences, n_texts=100)) == {("cls", 3)}
    for asked in ({"layers": [0, 3]}, {"pooling": ["mean", "cls"]}):
        assert len(states(searched(declaring, sentences, n_texts=100, **asked))) > 2


def test_declared_pooling_is_a_candidate_whatever_was_asked_for(declaring, sentences):
    search = searched(declaring, sentences, layers=[0], pooling=["mean"], n_texts=100)
    first = rows(search)[0]
    assert (first["pooling"], first["layers"], first["candidate"]) == ("cls", 3, "raw")
    assert states(search) == {("cls", 3), ("mean", 0)}


def test_memory_is_used_and_kept(tiny_bert, sentences, tmp_path, encoded):
    encoder = BertEncoder(tiny_bert, memory=tmp_path)
    first = searched(encoder, sentences, n_texts=50)
    assert encoded
    assert first.best_estimator_["encode"].memory == tmp_path
    encoded.clear()
    again = searched(encoder, sentences, n_texts=50)
    assert encoded == []
    assert_array_equal(again.cv_results_["score"], first.cv_results_["score"])


@pytest.mark.parametrize("n_texts", [20, 100], ids=["a sample", "all texts"])
@pytest.mark.parametrize("own", [False, True])
def test_progress_of_the_search_is_not_pipelines(tiny_bert, sentences, n_texts, own, capsys):
    encoder = BertEncoder(tiny_bert, verbose=own)
    params = {"layers": [0], "pooling": ["mean"], "n_texts": n_texts}
    short = [" ".join(text.split()[:4]) for text in sentences]  # for the last fit alone
    search = searched(encoder, sentences + short, verbose=True, **params)
    assert "search" in capsys.readouterr().err
    assert search.best_estimator_["encode"].verbose is own


@pytest.mark.parametrize("n_texts", [50, 100], ids=["a sample", "all texts"])
def test_without_memory_no_folder_is_left(tiny_bert, sentences, n_texts, tmp_path, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    search = searched(tiny_bert, sentences, n_texts=n_texts)
    assert search.best_estimator_["encode"].memory is None
    assert search.transform(["a man plays"]).shape[0] == 1
    assert list(tmp_path.iterdir()) == []


def test_candidates_share_the_other_parameters_of_an_encoder(tiny_bert, sentences, tmp_path):
    encoder = BertEncoder(tiny_bert, max_length=7, truncate_dim=9, pooling="zipf")
    cut = rf"\d+ of {len(set(sentences))} texts were cut off at max_length=7"
    with pytest.warns(UserWarning, match=cut) as seen:
        search = searched(encoder, sentences, layers=[1], pooling=["mean"], n_texts=100)
    assert len([w for w in seen if "cut off" in str(w.message)]) == 1  # none of its views
    used = search.best_estimator_["encode"]
    assert (used.max_length, used.truncate_dim) == (7, 9)
    assert used.pooling == "mean"
    assert not hasattr(encoder, "layers_")  # what was given stays unfitted


@pytest.mark.parametrize(
    ("params", "error", "message"),
    [
        ({"texts": numbered(19)}, ValueError, "Found 19 distinct texts of 6 words"),
        ({"texts": []}, ValueError, "X has no texts"),
        ({"texts": "a text"}, TypeError, "X is of type str"),
        ({"layers": [9]}, ValueError, "hidden state 9"),
        ({"pooling": ["median"]}, ValueError, "pooling"),
        ({"task": "clusters"}, ValueError, "'task' parameter of CalibrationSearch must be"),
        ({"groups": ["b"]}, ValueError, r"groups has shape \(1,\) for 100 texts"),
        ({"encoder": chance, "pooling": "mean"}, ValueError, "pooling or layers with a TextE"),
        ({"n_groups": 1}, ValueError, "'n_groups' parameter of CalibrationSearch"),
        ({"n_groups": 4, "task": "matches"}, ValueError, "n_groups=4 with task='matches'"),
        ({"candidates": "pca"}, ValueError, "'candidates' parameter of CalibrationSearch"),
        (
            {"candidates": [PCA(2)]},
            TypeError,
            r"has PCA\(n_components=2\); expected pairs of a",
        ),
        ({"candidates": [("pca", PCA)]}, TypeError, "has .*; expected pairs of a name and a"),
        ({"candidates": [("raw", PCA(2))]}, ValueError, "name 'raw', which another"),
        ({"candidates": 2 * [("pca", PCA(2))]}, ValueError, "name 'pca', which another"),
        ({"layers": [0.5]}, ValueError, "'layers' parameter of BertEncoder"),
        ({"encoder": "no/where"}, OSError, "neither a local folder"),
    ],
)
def test_errors_of_a_search(tiny_bert, sentences, params, error, message, encoded):
    arguments = {"encoder": tiny_bert, "texts": sentences, "n_texts": 100} | params
    with pytest.raises(error, match=message):
        searched(**arguments)
    assert encoded == []  # found out before anything is encoded


# The command


@pytest.fixture
def file(sentences, tmp_path):
    path = tmp_path / "texts.txt"
    path.write_text("\n\n".join(sentences) + "\n", encoding="utf-8")
    return str(path)


def command(model, file, output, *options):
    fixed = ["--n-texts", "100", "--layers", "0,3", "--pooling", "mean, max"]
    return main(["calibrate", str(model), file, "--output", str(output), *fixed, *options])


# Tasks and groups


def test_topics_are_smoothed(tiny_bert, sentences):
    params = {"layers": [3], "pooling": "mean", "n_texts": 100}
    search = searched(tiny_bert, sentences, task="topics", **params)
    assert list(search.best_estimator_.named_steps) == ["encode", "calibrate", "smooth"]
    expected = make_pipeline(
        BertEncoder(tiny_bert), Whitening(noise="auto"), NeighborSmoothing()
    ).fit_transform(sentences)
    assert_allclose(search.transform(sentences), expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(
    ("params", "step"),
    [
        ({"task": "similarity"}, Whitening(noise="auto", n_groups="many")),
        ({"task": "duplicates"}, Whitening(power=0)),
        ({"task": "matches"}, Whitening(power=0)),
        ({"task": "topics"}, Whitening(noise="auto")),
        ({"task": "topics", "n_groups": 4}, Whitening(noise="auto", n_groups=4)),
        ({"n_groups": 4}, Whitening(noise="auto", n_groups=4)),
    ],
)
@pytest.mark.parametrize("n_words", [2, 12])
def test_a_task_determines_the_calibration_of_texts_of_any_length(
    params, step, n_words, tiny_bert, sentences
):
    texts = list(dict.fromkeys(" ".join(text.split()[:n_words]) for text in sentences))
    encoder = BertEncoder(tiny_bert, layers=3, pooling="mean")
    for given, n_texts in ((FrozenEstimator(encoder.fit(texts)), 100), (tiny_bert, 20)):
        search = searched(given, texts, n_texts=n_texts, **params)
        assert str(search.best_estimator_["calibrate"]) == str(step)
        if n_words == 2 or given is not tiny_bert:
            name, *_ = [f"{key}={value!r}" for key, value in params.items()]
            assert f"follows from {name}" in search.reason_
            encoder = search.best_estimator_["encode"]
            assert getattr(encoder, "layers_", (3,)) == (3,)
            expected = clone(step).fit_transform(encoder.transform(texts))
            found = search.best_estimator_[:2].transform(texts)
            assert_allclose(found, expected, rtol=1e-4, atol=1e-4)


def test_where_there_is_nothing_to_choose_nothing_is_scored(sentences):
    asked = []

    def counted(texts):
        asked.extend(texts)
        return chance(texts)

    search = searched(counted, sentences, task="topics")
    assert {*asked} == {*sentences}  # no fragments of them
    assert search.n_texts_ == search.best_index_ == 0
    assert np.isnan(search.cv_results_["score"]).tolist() == [True]
    assert "there is nothing else to compare" in search.reason_
    assert searched(counted, sentences, n_texts=100).n_texts_ == 100


def test_a_number_of_clusters_reaches_the_whitening(tiny_bert, sentences):
    params = {"layers": [3], "pooling": "mean", "n_texts": 100}
    pipeline = searched(tiny_bert, sentences, n_groups=4, **params).best_estimator_
    vectors = pipeline["encode"].transform(sentences)
    expected = Whitening(noise="auto", n_groups=4).fit(vectors)
    assert pipeline["calibrate"].noise_ == pytest.approx(expected.noise_, rel=1e-4)


def test_groups_of_pairs_are_read_as_a_bi_encoder_reads_them(tiny_bert, sentences):
    params = {"layers": [3], "pooling": "mean", "n_texts": 100}
    pairs, groups = np.array(sentences).reshape(50, 2), np.tile([0, 1], (50, 1))
    search = searched(tiny_bert, pairs, groups=groups, **params)
    assert list(search.best_estimator_.named_steps) == ["encode", "erase", "calibrate"]
    left, right = (search.transform(column).mean(axis=0) for column in pairs.T)
    assert_allclose(left, right, atol=1e-5)
    with pytest.raises(ValueError, match=r"groups has shape \(100,\) for 50 pairs"):
        searched(tiny_bert, pairs, groups=groups.ravel(), **params)


@pytest.mark.parametrize("scale", [1e-12, 1.0])
def test_short_vectors_are_no_equal_ones(sentences, scale):
    def vectors(texts):
        return scale * chance(texts)

    searched(vectors, sentences, n_texts=100)


@pytest.mark.parametrize("routed", [False, True])
def test_groups_are_taken_out(tiny_bert, sentences, routed):
    params = {"layers": [3], "pooling": "mean", "n_texts": 100}
    groups = np.arange(100) % 3
    with config_context(enable_metadata_routing=routed):
        Z = searched(tiny_bert, sentences, groups=groups, **params).transform(sentences)
    assert_allclose(Z[groups == 0].mean(axis=0), Z[groups == 1].mean(axis=0), atol=1e-5)


def test_a_difference_that_may_be_chance_keeps_the_model(sentences):
    texts = [f"{text} {i} {i}" for i, text in enumerate(sentences)]
    search = searched(chance, texts, n_texts=100)
    assert all(row["gain_low"] <= 0 <= row["gain_high"] for row in rows(search))
    assert search.best_index_ == 0
    assert "no candidate gains" in search.reason_


def test_command_writes_pipeline_and_report(tiny_bert, file, sentences, tmp_path, capsys):
    output = tmp_path / "new" / "calibrated"
    assert command(tiny_bert, file, output, "--random-state", "5") == 0
    files = ["README.md", "pipeline.joblib", "report.json"]
    assert sorted(path.name for path in output.iterdir()) == files
    card = (output / "README.md").read_text("utf-8")
    assert card.startswith("# ")
    assert "## Data and figures" in card
    assert list(output.parent.iterdir()) == [output]  # nothing unfinished beside it
    pipeline = joblib.load(output / "pipeline.joblib")
    params = {"pooling": ["mean", "max"], "layers": [0, 3], "n_texts": 100, "random_state": 5}
    expected = searched(tiny_bert, sentences, **params)
    assert_allclose(
        pipeline.transform(sentences), expected.transform(sentences), rtol=1e-5, atol=1e-5
    )
    report = json.loads((output / "report.json").read_text(encoding="utf-8"))
    assert report["fingerprint"] == pipeline["encode"].fingerprint_
    assert (report["texts"], report["n_texts"], report["random_state"]) == (file, 100, 5)
    assert report["chosen"] == report["candidates"][expected.best_index_]
    found = pd.DataFrame(report["candidates"])
    described = ["pooling", "layers", "candidate", "calibrator"]
    assert found[described].to_dict() == pd.DataFrame(expected.cv_results_)[described].to_dict()
    assert_allclose(found["score"], expected.cv_results_["score"], atol=1e-6)
    assert report["reason"] == expected.reason_
    assert {"skcalib", "python", "scikit-learn", "torch"} <= set(report["versions"])
    printed = capsys.readouterr()
    assert printed.err == ""
    assert f"\n\n{expected.reason_}\n\nWrote " in printed.out
    table = printed.out.split("\n\n")[0]
    lines = [re.split(r" *\| *", line)[1:-1] for line in table.splitlines()]
    assert lines[0] == ["", "pooling", "layer", "candidate", "score", "halves", "gain"]
    assert lines[2][:4] == ["raw", "mean", "3", "raw"]
    best = chosen(expected)
    assert lines[3][:4] == ["chosen", best["pooling"], str(best["layers"]), best["candidate"]]
    assert [float(cell) for cell in lines[3][4:6]] == pytest.approx(
        [100 * best["score"], 100 * best["halves"]], abs=0.051
    )
    assert len(lines) == 2 + len(rows(expected)) + (expected.best_index_ == 0)
    assert f"Load it with joblib.load({str(output / 'pipeline.joblib')!r})" in printed.out
    assert pipeline["encode"].memory is None


def test_command_takes_a_number_of_clusters(tiny_bert, file, tmp_path):
    assert command(tiny_bert, file, tmp_path / "out", "--quiet", "--n-groups", "4") == 0
    whitening = joblib.load(tmp_path / "out" / "pipeline.joblib")["calibrate"]
    assert whitening.n_groups == 4


def test_a_reader_that_stops_reading_loses_nothing(tiny_bert, file, tmp_path, monkeypatch):
    reader, writer = os.pipe()
    os.close(reader)  # as `| head` closes it
    with open(writer, "w") as pipe:
        monkeypatch.setattr("sys.stdout", pipe)
        assert command(tiny_bert, file, tmp_path / "out") == 0
    assert (tmp_path / "out" / "report.json").is_file()


def test_command_writes_a_sentence_transformer(tiny_bert, file, sentences, tmp_path, capsys):
    package = pytest.importorskip("sentence_transformers", minversion="6")
    output = tmp_path / "calibrated"
    options = ["--prompt", "the dog ", "--format", "sentence-transformers"]
    assert command(tiny_bert, file, output, *options) == 0
    assert {path.name for path in tmp_path.iterdir()} == {"calibrated", Path(file).name}
    report = json.loads((output / "report.json").read_text(encoding="utf-8"))
    card = (output / "README.md").read_text("utf-8").partition("## Data and figures")[2]
    assert all(part in card for part in (Path(file).name, report["reason"], "| raw "))
    chosen, prompt = report["chosen"], report["prompt"]
    params = {"pooling": chosen["pooling"], "layers": chosen["layers"], "prompt": prompt}
    calibrator = chosen["calibrator"]
    calibrator = calibrator if calibrator == "passthrough" else eval(calibrator)
    expected = make_pipeline(BertEncoder(tiny_bert, **params), calibrator)
    expected = expected.fit_transform(sentences)
    model = package.SentenceTransformer(str(output), device="cpu")
    assert_allclose(model.encode(sentences), expected, atol=1e-4 * np.abs(expected).max())


def test_a_format_that_cannot_hold_a_task_is_refused(
    tiny_bert, file, tmp_path, capsys, encoded
):
    pytest.importorskip("sentence_transformers", minversion="6")
    options = ["--format", "sentence-transformers", "--task", "topics"]
    assert command(tiny_bert, file, tmp_path / "model", *options) == 2
    assert re.search("NeighborSmoothing.*; or use save_onnx", capsys.readouterr().err)
    assert encoded == []


def test_command_takes_groups(tiny_bert, file, sentences, tmp_path, capsys):
    # A line ends at a line feed or a carriage return alone.
    lines = "\ufeff" + 25 * "a\u2028b\r\n\r\nc\x0cd\x85e\n\n third\r\rlast\n\n"
    (tmp_path / "groups.txt").write_bytes(lines.encode())
    options = ["--groups", str(tmp_path / "groups.txt")]
    assert command(tiny_bert, file, tmp_path / "m", *options) == 0
    erasure = joblib.load(tmp_path / "m" / "pipeline.joblib")["erase"]
    assert erasure.groups_.tolist() == ["a\u2028b", "c\x0cd\x85e", "last", "third"]


def test_lines_of_texts_and_groups_belong_together(tiny_bert, sentences, tmp_path, capsys):
    groups = [f"g{i % 3}" for i in range(100)]
    texts, options = tmp_path / "texts.txt", ["--groups", str(tmp_path / "groups.txt")]

    def run(text_lines, group_lines, name):
        texts.write_text("\n".join(text_lines), "utf-8")
        (tmp_path / "groups.txt").write_text("\n".join(group_lines), "utf-8")
        return command(tiny_bert, str(texts), tmp_path / name, *options)

    def mean_of_group(name):
        return joblib.load(tmp_path / name / "pipeline.joblib")["erase"].means_

    assert run(sentences, groups, "whole") == 0
    blank = ["", *sentences[:50], "", *sentences[50:]]
    assert run(blank, ["", *groups[:50], "g1", *groups[50:], "", ""], "blank") == 0
    assert_allclose(mean_of_group("blank"), mean_of_group("whole"), atol=1e-6)
    capsys.readouterr()
    for text_lines, group_lines, message in (
        (sentences, [*groups[:50], "", *groups[51:]], "groups.txt' has '' in line 51, and"),
        (sentences, groups[:99], "groups.txt' has '' in line 100, and"),
        (sentences, [*groups, "g0"], "groups.txt' has 'g0' in line 101, and"),
        (["", " "], ["g0"], "texts.txt' has no text; give a file"),
    ):
        assert run(text_lines, group_lines, "none") == 2
        assert message in capsys.readouterr().err


@pytest.mark.parametrize("package", ["sentence-transformers", "onnx"])
def test_a_missing_package_is_found_out_before_anything_is_encoded(
    package, tiny_bert, file, tmp_path, capsys, encoded, monkeypatch
):
    monkeypatch.setitem(sys.modules, package.replace("-", "_"), None)
    assert command(tiny_bert, file, tmp_path / "out", "--format", package) == 2
    assert re.search(rf"The package (skcalib\[)?{package}", capsys.readouterr().err)
    assert encoded == []


def test_quiet_command_prints_nothing(tiny_bert, file, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr("sys.stderr.isatty", lambda: True)
    assert command(tiny_bert, file, tmp_path / "shown") == 0
    assert "search" in capsys.readouterr().err
    assert command(tiny_bert, file, tmp_path / "out", "-q") == 0
    assert capsys.readouterr() == ("", "")


def test_command_takes_layers_by_name_and_several(tiny_bert, file, tmp_path):
    command(tiny_bert, file, tmp_path / "out", "-q", "--layers", "first_last,-2+-1")
    report = json.loads((tmp_path / "out" / "report.json").read_text(encoding="utf-8"))
    found = [c["layers"] for c in report["candidates"] if c["layers"] != 3]
    # Two poolings; raw and whitened.
    assert sorted(found) == 4 * [[1, 3]] + 4 * [[2, 3]]


def test_output_that_exists_is_never_touched(tiny_bert, file, tmp_path, capsys, encoded):
    folder = tmp_path / "out"
    folder.mkdir()
    (folder / "thesis.txt").write_text("mine")
    for output in (folder, folder / "thesis.txt", Path(file) / "below"):
        assert command(tiny_bert, file, output) == 2
        assert capsys.readouterr().err.startswith("error: ")
    assert [path.read_text() for path in folder.iterdir()] == ["mine"]
    assert encoded == []  # found out before anything is encoded
    (folder / "thesis.txt").unlink()
    assert command(tiny_bert, file, folder, "-q") == 0  # an empty folder will do
    assert (folder / "pipeline.joblib").is_file()


@pytest.mark.parametrize("error", [OSError("no space left"), KeyboardInterrupt()])
def test_failure_in_the_middle_leaves_nothing(tiny_bert, file, error, tmp_path, monkeypatch):
    def dump(pipeline, path):
        path.write_bytes(b"half of it")
        raise error

    monkeypatch.setattr(joblib, "dump", dump)
    output = tmp_path / "below" / "out"
    assert command(tiny_bert, file, output, "-q") == (2 if isinstance(error, OSError) else 130)
    assert list(output.parent.iterdir()) == []


@pytest.mark.filterwarnings("default:Found:UserWarning")
def test_command_on_few_texts_warns_in_one_line(tiny_bert, sentences, tmp_path, capsys):
    path = tmp_path / "texts.txt"
    path.write_text("\n".join(sentences))
    arguments = ["calibrate", tiny_bert, str(path), "--output", str(tmp_path / "out")]
    assert main([*arguments, "--layers", "3", "--pooling", "mean"]) == 0
    assert re.fullmatch(r"warning: .*fewer than 200.*\n", capsys.readouterr().err)


@pytest.mark.usefixtures("minilm")
@pytest.mark.filterwarnings("ignore:.*unknown to this model")  # the tiny BERT knows few words
@pytest.mark.parametrize("named", ["model", "texts"])
def test_command_on_the_embedded_defaults(named, tiny_bert, file, tmp_path, capsys):
    output = tmp_path / "calibrated"
    model, texts = ("minilm", file) if named == "model" else (tiny_bert, "toy")
    options = ["--layers", "-1", "--pooling", "mean", "--n-texts", "20"]
    assert main(["calibrate", model, texts, "--output", str(output), *options]) == 0
    assert "Load it with joblib.load" in capsys.readouterr().out
    pipeline = joblib.load(output / "pipeline.joblib")
    assert pipeline.named_steps["encode"].layers_ == ((6,) if named == "model" else (3,))


# MiniLM reads altered copies of real texts, from which layers are chosen: some 4 s.
@pytest.mark.usefixtures("remembered")  # each text goes through the model once
def test_what_is_chosen_without_labels_is_as_good_as_what_is_shipped(sts_home, minilm):
    texts = fetch_sts("stsb", "train", data_home=sts_home).data.ravel()
    texts = np.random.default_rng(0).choice(np.unique(texts.astype(str)), 100, replace=False)
    params = {"layers": [0, 3, 6], "pooling": ["mean", "zipf"], "n_texts": 80}
    search = searched(minilm, texts, **params)
    assert search.best_estimator_["encode"].layers_ == (6,)
    pairs, grades = fetch_sts("stsb", "dev", data_home=sts_home, return_X_y=True)
    pairs, grades = pairs[::16], grades[::16]
    chosen, shipped = (
        100 * BiEncoder(FrozenEstimator(encoder)).fit(pairs).score(pairs, grades)
        for encoder in (search, BertEncoder(minilm).fit([""]))
    )
    assert chosen > shipped - 0.3
