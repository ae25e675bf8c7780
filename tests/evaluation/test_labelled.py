"""evaluate_labelled: search, clusters and classes against references by hand."""

import numpy as np
import pytest
from numpy.testing import assert_allclose
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.cluster import KMeans
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import average_precision_score, normalized_mutual_info_score
from sklearn.model_selection import StratifiedKFold, cross_val_score

from skcalib.evaluation import _labelled, evaluate_labelled


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


@pytest.fixture
def sample():
    """Sixty vectors of four overlapping classes of different sizes."""
    rng = np.random.default_rng(0)
    labels = np.repeat(["a", "b", "c", "d"], [10, 14, 16, 20])
    centres = rng.normal(size=(4, 5))
    codes = np.unique(labels, return_inverse=True)[1]
    vectors = centres[codes] + rng.normal(size=(60, 5)) * rng.uniform(0.3, 2, size=(60, 1))
    return Lookup(vectors), [str(i) for i in range(60)], labels


@pytest.mark.parametrize("at_a_time", [7, 1024])
def test_scores_are_those_of_the_definitions(sample, monkeypatch, at_a_time):
    monkeypatch.setattr(_labelled, "QUERIES_AT_A_TIME", at_a_time)
    encoder, texts, labels = sample
    table = evaluate_labelled({"lookup": encoder}, texts, labels, random_state=3)
    unit = encoder.vectors / np.linalg.norm(encoder.vectors, axis=1, keepdims=True)
    nearest, precision = [], []
    for i in range(60):
        order = sorted((j for j in range(60) if j != i), key=lambda j: -unit[i] @ unit[j])
        n_others = np.sum(labels == labels[i]) - 1
        nearest.append(labels[order[0]] == labels[i])
        precision.append(np.mean(labels[order[:n_others]] == labels[i]))
    clusters = KMeans(4, n_init=3, random_state=3).fit_predict(unit)
    folds = StratifiedKFold(5, shuffle=True, random_state=3)
    i, j = np.triu_indices(60, k=1)
    cosines = np.einsum("ij,ij->i", unit[i], unit[j])
    duplicates = average_precision_score(labels[i] == labels[j], cosines)
    classifier = LogisticRegression(C=10, tol=1e-6, max_iter=1000)
    nmi = normalized_mutual_info_score(labels, clusters)
    accuracy = cross_val_score(classifier, unit, labels, cv=folds).mean()
    expected = [np.mean(nearest), np.mean(precision), duplicates, nmi, accuracy]
    assert table.rows == ("lookup",)
    assert_allclose(table.scores[0, :5], 100 * np.array(expected), rtol=1e-5)


def test_few_labels_are_drawn_from_each_class(sample, monkeypatch):
    encoder, _, labels = sample
    seen, fit = [], LogisticRegression.fit

    def remember(self, X, y):
        seen.append((self.C, np.bincount(y).tolist(), X.tobytes()))
        return fit(self, X, y)

    monkeypatch.setattr(LogisticRegression, "fit", remember)
    codes = np.unique(labels, return_inverse=True)[1]
    assert _labelled.few_labels(encoder.vectors, codes, 0).shape == (3,)
    assert [C for C, *_ in seen] == 5 * [1, 10, 100]
    assert all(counts == [3, 3, 3, 3] for _, counts, _ in seen)
    assert len({X for *_, X in seen}) == 5


def test_few_labels_are_scored_on_the_other_texts():
    codes, X = np.repeat([0, 1], 5), np.repeat([[1.0, 0.0], [0.0, 1.0]], 5, axis=0)
    assert_allclose(_labelled.few_labels(X, codes, 0), 1)
    # Two texts of each class are as those of the other: a draw takes three of five.
    X[[0, 1, 5, 6]] = X[[5, 6, 0, 1]].copy()
    assert (_labelled.few_labels(X, codes, 0) < 0.7).all()


def test_a_narrow_cone_does_not_leave_the_classifier_at_chance():
    codes = np.arange(100) % 20
    narrow = np.column_stack([np.full(100, 100), np.eye(20)[codes]])
    table = evaluate_labelled(Lookup(narrow), list(map(str, range(100))), codes)
    assert_allclose(table.scores, 100, rtol=1e-5)  # a gradient below 1e-3 from the start


@pytest.mark.parametrize("magnitude", [1e-200, 1e-17, 1.0, 1e200])
def test_length_of_vectors_does_not_matter(sample, magnitude):
    encoder, texts, labels = sample
    scaled = encoder.vectors * np.random.default_rng(1).uniform(0.1, 10, (60, 1)) * magnitude
    tables = [evaluate_labelled(Lookup(v), texts, labels) for v in (encoder.vectors, scaled)]
    assert_allclose(tables[0].scores, tables[1].scores)


def test_encoders_are_fitted_without_labels_on_the_texts_or_others(sample):
    encoder, texts, labels = sample
    encoder.seen = []
    evaluate_labelled(encoder, texts, labels)
    evaluate_labelled(encoder, texts, labels, fit_on=["3", "5"])
    assert encoder.seen == [texts, ["3", "5"]]


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (lambda e, t, y: (e, t, y[:-1]), "inconsistent numbers of samples"),
        (lambda e, t, y: (e, t, ["a"] * 60), "got 1 classes.*takes two classes or more"),
        (lambda e, t, y: (e, t, [*y[:-1], "e"]), "the smallest, 'e', of 1 texts.*of 5 texts"),
        (lambda e, t, y: (e, t, np.linspace(0, 1, 60)), "Unknown label type: continuous"),
        (lambda e, t, y: ({}, t, y), "evaluate_labelled got no encoder"),
    ],
)
def test_bad_input_is_named(sample, spoil, message):
    with pytest.raises(ValueError, match=message):
        evaluate_labelled(*spoil(*sample))
