"""Vectors of unit length, where the model's folder declares it or the user asks for it."""

import pickle

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.preprocessing import normalize

from skcalib import BertEncoder, VectorStore
from skcalib.datasets import load_questions
from skcalib.process import caches

TEXTS = ["the dog", "a cat and the dog", "dog", "the the cat dog " * 4]


def test_vectors_are_those_of_sentence_transformers(minilm):
    package = pytest.importorskip("sentence_transformers")
    model = package.SentenceTransformer(str(minilm), device="cpu", local_files_only=True)
    questions = [*load_questions().data[:20], ""]
    vectors = BertEncoder("minilm").fit_transform(questions)
    assert vectors.dtype == np.float32
    assert_allclose(vectors, model.encode(questions), rtol=0, atol=1e-6)
    assert_allclose(np.diag(vectors @ vectors.T), 1, atol=1e-6)


@pytest.mark.parametrize(
    ("params", "scales"),
    [
        ({}, True),
        ({"layers": 3}, True),  # the last, by its number
        ({"pooling": "mean"}, True),  # the declared one, by its name
        ({"truncate_dim": 8}, True),
        ({"overflow": "windows", "max_length": 6}, True),
        ({"prompt": "the "}, True),
        ({"layers": 1}, False),
        ({"layers": "first_last"}, False),
        ({"pooling": "max"}, False),
        ({"pooling": "mean_own"}, False),
        ({"normalize": False}, False),
        ({"normalize": True, "pooling": "max", "layers": (0, 2)}, True),
        ({"normalize": True, "layers": (1, 2), "layer_merge": "concat"}, True),
    ],
    ids=str,
)
def test_auto_is_what_the_folder_declares(unit_bert, params, scales):
    encoder = BertEncoder(unit_bert, **params).fit(TEXTS)
    vectors = encoder.transform(TEXTS)
    assert encoder.normalize_ is scales
    plain = BertEncoder(unit_bert, **params | {"normalize": False}).fit_transform(TEXTS)
    assert_allclose(vectors, normalize(plain) if scales else plain, rtol=0, atol=1e-6)
    assert np.ptp(np.linalg.norm(plain, axis=1)) > 1e-3
    assert_array_equal(pickle.loads(pickle.dumps(encoder)).transform(TEXTS), vectors)


def test_a_folder_that_declares_nothing_keeps_lengths(tiny_bert):
    encoder = BertEncoder(tiny_bert).fit(TEXTS)
    assert not encoder.normalize_
    assert not encoder.declared_.normalizes


def test_a_store_serves_both_without_another_pass(unit_bert, tmp_path, inputs):
    store, shapes = VectorStore(tmp_path / "vectors"), inputs("Bert")
    unit = BertEncoder(unit_bert, memory=store).fit_transform(TEXTS)
    n_passes = len(shapes)
    caches.VECTORS.clear()  # the model stays loaded
    plain = BertEncoder(unit_bert, memory=store, normalize=False).fit_transform(TEXTS)
    assert_allclose(unit, normalize(plain), rtol=0, atol=1e-6)
    assert 0 < n_passes == len(shapes)
