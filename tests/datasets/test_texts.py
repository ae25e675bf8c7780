"""Texts that every machine has: sentences of scipy's docstrings, and questions of customers."""

import sys
import types
from collections import Counter

import numpy as np
import pytest
from scipy.linalg import svdvals

from skcalib.datasets import load_docstrings, load_questions
from skcalib.datasets._texts import PARTS, first_sentence


@pytest.fixture(params=[load_docstrings, load_questions])
def load(request):
    return request.param


def test_every_text_has_a_label_with_a_name(load):
    bunch = load()
    assert bunch.data.dtype == object
    assert {type(text) for text in bunch.data} == {str}
    assert bunch.data.shape == bunch.target.shape
    assert set(bunch.target.tolist()) == set(range(len(bunch.target_names)))
    assert bunch.DESCR


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
    assert docstrings.target_names.tolist() == list(PARTS)
    assert 1000 < len(docstrings.data) < 3000
    assert min(Counter(docstrings.target.tolist()).values()) >= 20
    assert all(len(text.split()) >= 5 for text in docstrings.data)
    assert not any("\n" in text or "`" in text or ":math:" in text for text in docstrings.data)


def test_a_known_function_is_there_with_its_part():
    docstrings = load_docstrings()
    row = docstrings.data.tolist().index(first_sentence(svdvals.__doc__))
    assert docstrings.target_names[docstrings.target[row]] == "linalg"


def test_a_part_that_another_scipy_lacks_is_left_out(monkeypatch):
    monkeypatch.setitem(PARTS, "stats", ("no_such_module",))
    assert len(load_docstrings().data) > 1000


def test_questions_are_ten_of_each_intent():
    questions = load_questions()
    assert np.bincount(questions.target).tolist() == [10] * 10


@pytest.mark.parametrize(
    ("docstring", "sentence"),
    [
        ("One line", "One line"),
        ("Two lines\n    of one sentence. And another.", "Two lines of one sentence."),
        ("\n    Indented.\n\n    More.", "Indented."),
        ("f(x, /, out=None)\n\nf(a)\n\nCompute `f` of ``x``.\n", "Compute f of x."),
        ("f(x)\nCompute **it** by :func:`~scipy.linalg.svd`.", "Compute it by svd."),
        ("Heading\n=======\n\n.. note:: x\n\nOne, e.g. this.", "One, e.g. this."),
        ("", ""),
        ("f(x)", ""),
    ],
)
def test_the_first_sentence_of_a_docstring(docstring, sentence):
    assert first_sentence(docstring) == sentence


def test_numbers_and_lists_have_no_docstring_of_their_own(monkeypatch):
    module = types.ModuleType("scipy.stats.numbers")
    module.number, module.names = 3.5, ["a"]
    monkeypatch.setitem(sys.modules, module.__name__, module)
    before = load_docstrings().data.tolist()
    monkeypatch.setitem(PARTS, "stats", (*PARTS["stats"], "numbers"))
    assert load_docstrings().data.tolist() == before
