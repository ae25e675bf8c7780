"""Probabilities of a classifier: the temperature fits labels of texts that are left out."""

import numpy as np
import pytest
from scipy.special import softmax

from skcalib import ZeroShotClassifier
from skcalib.similarity.classifier.temperature import FACTOR, USUAL, temperature

D = 16


def classified(noise, n_labels, names=None, seed=0, sizes=(1, 1, 1)):
    """A model of three classes with labels of the first texts; new texts, and their classes."""
    rng = np.random.default_rng(seed)
    codes = rng.choice(3, 900, p=np.divide(sizes, sum(sizes)))
    texts = [f"{i}" for i in range(900)]
    vectors = np.eye(D)[codes] + noise * rng.normal(size=(900, D)) / D**0.5
    of_names = np.eye(D)[:3] * (1 + noise**2) ** 0.5  # as long as texts
    known = dict(zip([*texts, *"abc"], [*vectors, *of_names], strict=True))
    y = np.full(600, None, object)
    rows = np.arange(600) < 3 * n_labels  # of skewed classes, the frequent have more
    if sizes == (1, 1, 1):
        rows = [(codes[:i] == codes[i]).sum() < n_labels for i in range(600)]
    y[rows] = np.array([*"abc"])[codes[:600][rows]]
    model = ZeroShotClassifier(lambda some: np.stack([known[text] for text in some]), names)
    return model.fit(texts[:600], y), texts[600:], np.array([*"abc"])[codes[600:]]


def log_loss(probabilities, model, labels):
    return -np.log(
        probabilities[np.arange(len(labels)), np.searchsorted(model.classes_, labels)]
    )


# The vectors of the names have no noise, and so the length 1.
@pytest.mark.filterwarnings("ignore:The vectors have lengths of about 1")
@pytest.mark.parametrize("sizes", [(1, 1, 1), (8, 2, 1)])
@pytest.mark.parametrize("names", [None, ["a", "b", "c"]])
@pytest.mark.parametrize("noise", [1.0, 2.5])
def test_probabilities_are_the_share_that_is_correct(noise, names, sizes):
    model, new, labels = classified(noise, 20, names, sizes=sizes)
    probabilities = model.predict_proba(new)
    confidence, right = probabilities.max(axis=1), model.predict(new) == labels
    assert confidence.mean() == pytest.approx(right.mean(), abs=0.08)
    scores = model.decision_function(new)
    losses = [log_loss(softmax(scores / t, axis=1), model, labels).mean() for t in (1e-2, 1)]
    assert log_loss(probabilities, model, labels).mean() < min(losses) + 0.01


def test_easy_classes_have_lower_temperatures_than_hard_ones():
    easy, hard = classified(0.5, 20)[0], classified(3.0, 20)[0]
    assert easy.temperature_ < USUAL < hard.temperature_


def test_two_labels_that_are_correct_make_no_certainty():
    model, new, _ = classified(0.3, 2)
    assert USUAL / FACTOR**3 < model.temperature_ < USUAL
    assert model.predict_proba(new).max() < 1


@pytest.mark.parametrize("n_labels", [0, 1])
def test_without_two_labels_of_a_class_the_temperature_is_the_usual_one(n_labels):
    model, new, _ = classified(1.0, n_labels, [*"abc"])
    assert model.temperature_ == USUAL
    expected = softmax(model.decision_function(new) / USUAL, axis=1)
    np.testing.assert_allclose(model.predict_proba(new), expected)


def test_wrong_names_beside_labels_make_no_wrong_certainty():
    model, new, labels = classified(1.0, 8, {"a": "b", "b": "c", "c": "a"})
    assert log_loss(model.predict_proba(new), model, labels).mean() < np.log(3)


def test_each_text_is_left_out_once_and_each_class_keeps_one():
    rng = np.random.default_rng(0)
    rows, codes = np.arange(23), np.repeat([0, 1, 2, 3], [1, 2, 7, 13])
    texts, left_out = rng.normal(size=(40, 4)), []

    def without(kept):
        gone = np.setdiff1d(np.arange(40), kept)
        left_out.append(gone)
        stay = np.bincount(np.delete(codes, gone), minlength=4)
        assert stay.min() > 0
        return texts, None

    assert np.isfinite(temperature(40, without, rows, codes))
    assert sorted(np.concatenate(left_out)) == [*range(1, 23)]
