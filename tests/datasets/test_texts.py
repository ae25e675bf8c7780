"""Texts that every machine has: sentences of scipy's docstrings, and questions of customers."""

import sys
import types
from collections import Counter

import numpy as np
import pytest
import scipy.fft

from skcalib.datasets import load_docstrings, load_questions


@pytest.fixture(params=[load_docstrings, load_questions])
def load(request):
    return request.param


def test_every_text_has_a_label_with_a_name(load):
    bunch = load()
    assert bunch.data.dtype == object
    assert {type(text) for text in bunch.data} == {str}
    assert bunch.data.shape == bunch.target.shape
    assert set(bunch.target.tolist()) == set(range(len(bunch.target_names)))


def test_no_text_comes_twice(load):
    texts = load().data.tolist()
    assert len(set(texts)) == len(texts)
    assert all(text and text == " ".join(text.split()) for text in texts)


def test_texts_and_labels_may_come_alone(load):
    data, target = load(return_X_y=True)
    assert data.tolist() == load().data.tolist()
    np.testing.assert_array_equal(target, load().target)


def test_docstrings_are_sentences_of_each_part():
    docstrings = load_docstrings()
    names = "cluster fft integrate interpolate io linalg ndimage optimize signal sparse "
    assert docstrings.target_names.tolist() == (names + "spatial special stats").split()
    assert 1000 < len(docstrings.data) < 3000
    assert min(Counter(docstrings.target.tolist()).values()) >= 20
    assert all(len(text.split()) >= 5 for text in docstrings.data)
    assert not any("\n" in text or "`" in text or ":math:" in text for text in docstrings.data)


def test_a_known_function_is_there_with_its_part():
    docstrings = load_docstrings()
    row = docstrings.data.tolist().index("Compute singular values of a matrix.")
    assert docstrings.target_names[docstrings.target[row]] == "linalg"


def test_a_part_that_another_scipy_lacks_is_left_out(monkeypatch):
    everything = load_docstrings().data
    monkeypatch.setitem(sys.modules, "scipy.stats.qmc", None)
    assert 1000 < len(load_docstrings().data) < len(everything)


def test_questions_are_ten_of_each_intent():
    questions = load_questions()
    assert np.bincount(questions.target).tolist() == [10] * 10


@pytest.mark.parametrize(
    ("docstring", "sentence"),
    [
        ("One line of five words", "One line of five words"),
        ("Two lines\n    of one sentence. And another.", "Two lines of one sentence."),
        ("\n    Indented by four spaces here.\n\n    More.", "Indented by four spaces here."),
        ("f(x, /, out=None)\n\nf(a)\n\nCompute `f` of a ``x``.\n", "Compute f of a x."),
        ("f(x)\nCompute **it** now by :func:`~scipy.linalg.svd`.", "Compute it now by svd."),
        ("Heading\n===\n\n.. note:: x\n\nOne or two, e.g. this.", "One or two, e.g. this."),
        ("Of four words only.", None),
        ("", None),
        ("f(x)", None),
    ],
)
def test_the_first_sentence_of_a_docstring(docstring, sentence, monkeypatch):
    function = types.SimpleNamespace(__doc__=docstring)
    monkeypatch.setattr(scipy.fft, "function", function, raising=False)
    monkeypatch.setattr(scipy.fft, "__all__", ["function"])
    texts, parts = load_docstrings(return_X_y=True)
    assert texts[parts == 1].tolist() == ([] if sentence is None else [sentence])
