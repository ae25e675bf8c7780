"""evaluate_labeled: search, clusters and classes against references by hand."""

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.cluster import KMeans
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import normalized_mutual_info_score
from sklearn.model_selection import StratifiedKFold, cross_val_score
from sklearn.preprocessing import FunctionTransformer

from skcalib.evaluation import evaluate_labeled


class Lookup(TransformerMixin, BaseEstimator):
    """Vectors of numbered texts; remembers what it was fitted on."""

    def __init__(self, vectors, seen=None):
        self.vectors = vectors
        self.seen = seen

    def __sklearn_clone__(self):
        return type(self)(self.vectors, self.seen)

    def fit(self, X, y=None):
        if self.seen is not None:
            self.seen.append(list(X))
        self.fitted_ = True
        return self

    def transform(self, X):
        return self.vectors[[int(text) for text in X]]


def overlapping(n):
    """Return vectors of four overlapping classes of different sizes, texts and labels."""
    rng = np.random.default_rng(0)
    labels = np.repeat(["a", "b", "c", "d"], np.array([10, 14, 16, 20]) * n // 60)
    codes = np.unique(labels, return_inverse=True)[1]
    vectors = rng.normal(size=(4, 5))[codes]
    vectors += rng.normal(size=(n, 5)) * rng.uniform(0.3, 2, size=(n, 1))
    return Lookup(vectors), [str(i) for i in range(n)], labels


@pytest.fixture
def sample():
    return overlapping(60)


@pytest.mark.parametrize("n", [60, 1080])
def test_scores_are_those_of_the_definitions(n):
    encoder, texts, labels = overlapping(n)
    table = evaluate_labeled({"lookup": encoder}, texts, labels, random_state=3)
    unit = encoder.vectors / np.linalg.norm(encoder.vectors, axis=1, keepdims=True)
    precision = []
    for i, row in enumerate(unit @ unit.T):
        order = np.argsort(-row)
        same = labels[order[order != i]] == labels[i]
        precision.append(np.mean(same[: same.sum()]))
    clusters = KMeans(4, n_init=3, random_state=3).fit_predict(unit)
    folds = StratifiedKFold(5, shuffle=True, random_state=3)
    classifier = LogisticRegression(C=10, tol=1e-6, max_iter=1000)
    nmi = normalized_mutual_info_score(labels, clusters)
    accuracy = cross_val_score(classifier, unit, labels, cv=folds).mean()
    expected = [np.mean(precision), nmi, accuracy]
    assert table.rows == ("lookup",)
    assert_allclose(table.scores[0], 100 * np.array(expected), rtol=1e-5)


@pytest.mark.parametrize(
    "asked",
    [["R-precision"], ("k-means NMI", "R-precision", "k-means NMI"), np.array(["k-means NMI"])],
)
def test_only_the_scores_asked_for_are_computed(sample, asked, monkeypatch):
    every = evaluate_labeled(*sample)
    monkeypatch.setattr(LogisticRegression, "fit", None)
    found = evaluate_labeled(*sample, scores=asked)
    assert found.columns == tuple(dict.fromkeys(asked))
    columns = [every.columns.index(name) for name in found.columns]
    assert_array_equal(found.scores, every.scores[:, columns])


@pytest.mark.parametrize("wanted", [["R-precision", "mAP"], "mAP", [None]])
def test_unknown_scores_are_refused_before_a_fit(sample, wanted):
    encoder, texts, labels = sample
    encoder.seen = []
    with pytest.raises(
        ValueError, match=r"scores has .*; expected a list of some of \['R-prec"
    ):
        evaluate_labeled(encoder, texts, labels, scores=wanted)
    assert encoder.seen == []


def test_a_narrow_cone_does_not_leave_the_classifier_at_chance():
    codes = np.arange(100) % 20
    narrow = np.column_stack([np.full(100, 100), np.eye(20)[codes]])
    table = evaluate_labeled(Lookup(narrow), list(map(str, range(100))), codes)
    assert_allclose(table.scores, 100, rtol=1e-5)  # a gradient below 1e-3 from the start


@pytest.mark.parametrize("magnitude", [1e-200, 1e-17, 1.0, 1e200])
def test_length_of_vectors_does_not_matter(sample, magnitude):
    encoder, texts, labels = sample
    scaled = encoder.vectors * np.random.default_rng(1).uniform(0.1, 10, (60, 1)) * magnitude
    tables = [evaluate_labeled(Lookup(v), texts, labels) for v in (encoder.vectors, scaled)]
    assert_allclose(tables[0].scores, tables[1].scores)


def test_encoders_are_fitted_without_labels_on_the_texts_or_others(sample):
    encoder, texts, labels = sample
    encoder.seen = []
    evaluate_labeled(encoder, texts, labels)
    evaluate_labeled(encoder, texts, labels, fit_on=["3", "5"])
    assert encoder.seen == [texts, ["3", "5"]]


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (lambda e, t, y: (e, t, y[:-1]), "inconsistent numbers of samples"),
        (lambda e, t, y: (e, t, ["a"] * 60), "labels has 1 classes.*two classes or more"),
        (lambda e, t, y: (e, t, [*y[:-1], "e"]), "the smallest, 'e', with 1 texts.* 5 texts"),
    ],
)
def test_bad_input_is_named(sample, spoil, message):
    with pytest.raises(ValueError, match=message):
        evaluate_labeled(*spoil(*sample))


def test_equal_cosines_are_in_the_order_of_the_texts():
    """Entries of -1, 0 and 1, so that many cosines are equal; in more than one block."""
    n = 1100
    rng, labels = np.random.default_rng(0), np.arange(n) % 3
    vectors = rng.integers(-1, 2, (n, 5)).astype(float)
    encoder = FunctionTransformer(lambda asked: vectors[[int(text) for text in asked]])
    found = evaluate_labeled(encoder, [f"{i}" for i in range(n)], labels).scores[0, 0]
    lengths = np.linalg.norm(vectors, axis=1)
    cosines = vectors @ vectors.T / np.maximum(np.outer(lengths, lengths), 1e-9)
    cosines, same = cosines.round(9), labels[:, None] == labels
    order = np.argsort(-(cosines - 9 * np.eye(n)), axis=1, kind="stable")
    right = np.take_along_axis(same, order, axis=1)
    n_others = np.bincount(labels)[labels] - 1
    among = np.arange(n) < n_others[:, None]
    expected = np.mean((right & among).sum(axis=1) / n_others)
    assert_allclose(found, 100 * expected, rtol=1e-12)


def test_an_encoder_of_too_few_rows_is_refused():
    encoder = FunctionTransformer(lambda texts: np.eye(len(texts))[:-1])
    with pytest.raises(ValueError, match="returned 9 rows for 10 texts"):
        evaluate_labeled(encoder, [f"{i}" for i in range(10)], [0, 1] * 5)
