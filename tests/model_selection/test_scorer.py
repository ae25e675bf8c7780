"""`SelfRetrieval`: its score, its parameters, and what it accepts."""

import re

import numpy as np
import pytest
from scipy.spatial.distance import cdist
from scipy.special import expit, logit
from scipy.stats import rankdata
from searches import chance, numbered, of_words, views_of
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.exceptions import NotFittedError
from sklearn.model_selection import GridSearchCV, KFold
from sklearn.pipeline import make_pipeline

from skcalib import BertEncoder, BiEncoder, CalibrationSearch, TextEncoder, Whitening
from skcalib.model_selection import SelfRetrieval


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


def test_score_is_the_logits_mean_of_reciprocal_ranks_both_ways():
    sentences = of_words(100)
    model = BiEncoder(TextEncoder(chance)).fit(sentences)
    views = views_of(sentences, n_texts=100, random_state=3)
    whole, one, other, odd, even = map(chance, zip(*views, strict=True))

    def found(a, b):
        alike = -cdist(a, b, "cosine")
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
    grid = {"encoder__bertencoder__layers": [0, 2], "encoder__whitening__power": [0.5, "auto"]}
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
        ({"random_state": -1}, "must be an int in the range [0, inf). Got -1 instead"),
        ({"thinned": -0.1}, "[0.0, 1.0]. Got -0.1 instead"),
    ],
)
def test_parameters_out_of_range(params, message):
    with pytest.raises(ValueError, match=re.escape(message)):
        SelfRetrieval(**params)(FirstNumber().fit([]), numbered(30))
    if "thinned" not in params:
        with pytest.raises(ValueError, match=re.escape(message)):
            CalibrationSearch("no/model", **params).fit(numbered(30))


def test_scorer_takes_fitted_estimators_and_texts():
    with pytest.raises(NotFittedError):
        SelfRetrieval()(FirstNumber(), numbered(30))
    for X, message in (
        (list(range(30)), "X has 0 of type int at position 0"),
        ("a text", "X is of type str"),
    ):
        with pytest.raises(TypeError, match=message):
            SelfRetrieval()(FirstNumber().fit([]), X)
