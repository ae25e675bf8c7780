"""Frequencies of tokens from counts, and texts that a vocabulary cannot read."""

import json
import pickle

import numpy as np
import pytest
import torch
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from transformers import AutoModel, AutoTokenizer

from skcalib import BertEncoder
from skcalib.encoders.model.zipf import counted_weights


def test_weights_are_logarithms_of_ranks_among_counts():
    counts = np.array([9, 0, 5, 7, 5, 0])
    weights = counted_weights(counts, special_ids=[0])
    assert_allclose(weights, np.log1p([0, 4.5, 2.5, 1, 2.5, 4.5]), rtol=1e-6)


@pytest.fixture
def alphabetical(tiny_bert_copy):
    """A model whose vocabulary is not sorted by frequency."""
    folder = tiny_bert_copy()
    file = folder / "tokenizer.json"
    content = json.loads(file.read_text())
    vocab = content["model"]["vocab"]
    words = [token for token in vocab if len(token) > 1 and token[0] != "["]
    numbers = sorted(map(vocab.get, words))
    vocab.update(zip(sorted(words), numbers, strict=True))
    file.write_text(json.dumps(content))
    return folder


def test_texts_tell_frequencies_that_the_vocabulary_does_not(alphabetical):
    texts = ["the dog sleeps", "the cat", "the dog"]
    with pytest.raises(ValueError, match="Pass token_counts"):
        BertEncoder(alphabetical, pooling="zipf").fit(texts)
    counts = {"the": 3, "dog": 2, "sleeps": 1, "cat": 1}
    by_texts = BertEncoder(alphabetical, pooling="zipf", token_counts=texts).fit(texts)
    by_mapping = BertEncoder(alphabetical, pooling="zipf", token_counts=counts).fit(texts)
    X = by_texts.transform(texts)
    assert_array_equal(X, by_mapping.transform(texts))
    zipf = by_texts.set_params(layers=0).fit(texts).transform(["the dog sleeps"])
    ids = AutoTokenizer.from_pretrained(alphabetical)("the dog sleeps", return_tensors="pt")
    model = AutoModel.from_pretrained(alphabetical).eval()
    weights = np.log1p([1, 2, 3.5])  # of these ranks
    with torch.inference_mode():
        states = model.embeddings(ids["input_ids"])[0, 1:4].numpy()
    expected = weights @ states / weights.sum()
    assert_allclose(zipf[0], expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("memory", [False, True])
def test_other_counts_have_vectors_of_their_own(tiny_bert, tmp_path, memory):
    store = tmp_path if memory else None
    texts = ["the dog sleeps on a bridge", "a small cat"]
    zipf = BertEncoder(tiny_bert, pooling="zipf", memory=store)
    X = zipf.fit_transform(texts)
    counted = clone(zipf).set_params(token_counts=["a small small dog"])
    Z = counted.fit_transform(texts)
    assert not np.allclose(X, Z)
    assert_array_equal(pickle.loads(pickle.dumps(counted)).transform(texts), Z)
    assert_array_equal(zipf.transform(texts), X)
    assert zipf.fingerprint_ != counted.fingerprint_


@pytest.mark.parametrize(
    ("counts", "error", "message"),
    [
        ({"no-such-token": 1}, ValueError, "1 for 'no-such-token'; expected .* tokens of"),
        ({"dog": -1}, ValueError, "-1 for 'dog'"),
        ({"dog": "many"}, ValueError, "'many' for 'dog'"),
        ({"[CLS]": 3}, ValueError, "counts no token"),
        ([1, 2], TypeError, "token_counts"),
        ("the dog", TypeError, "token_counts"),
    ],
)
def test_bad_counts_are_named(tiny_bert, counts, error, message):
    encoder = BertEncoder(tiny_bert, pooling="zipf", token_counts=counts)
    with pytest.raises(error, match=message):
        encoder.fit(["dog"])
    with pytest.raises(NotFittedError):
        encoder.transform(["dog"])


@pytest.mark.parametrize("memory", [False, True])
def test_unknown_tokens_are_told_of_with_their_share(tiny_bert, tmp_path, memory):
    encoder = BertEncoder(tiny_bert, memory=tmp_path if memory else None).fit(["dog"])
    for texts in (["the dog", "天 气 好"], ["天 气 好", "the dog"]):
        with pytest.warns(UserWarning, match="60% of the tokens are unknown"):
            encoder.transform(texts)
    # One of fourteen is not worth a word.
    encoder.transform(["the dog sleeps on a small red bridge with a cat", "the zebra"])


@pytest.mark.parametrize("pooling", ["cls", "last"])
def test_a_special_token_of_layer_0_is_no_vector_of_a_text(tiny_bert, pooling):
    encoder = BertEncoder(tiny_bert, pooling=pooling, layers=0)
    match = f"'{pooling}' with layers=0 uses .*all texts get the same vector"
    with pytest.warns(UserWarning, match=match):
        X = encoder.fit_transform(["the dog", "a cat"])
    assert_array_equal(X[0], X[1])
    encoder.set_params(layers=(0, 1)).fit(["dog"])  # without a word


def test_a_token_that_the_model_does_not_embed_is_refused_in_a_text(tiny_bert_copy):
    folder = tiny_bert_copy()
    tokenizer = AutoTokenizer.from_pretrained(folder)
    tokenizer.add_tokens(["zebra"])
    tokenizer.add_special_tokens({"additional_special_tokens": ["<mark>"]})
    tokenizer.save_pretrained(folder)
    encoder = BertEncoder(folder, pooling="zipf").fit(["the zebra"])
    texts = ["the dog", "a small cat"]
    expected = BertEncoder(tiny_bert_copy(), pooling="zipf").fit_transform(texts)
    assert_array_equal(encoder.transform(texts), expected)
    message = "text 'the zebra' has the token 'zebra', which the model"
    with pytest.raises(ValueError, match=message):
        encoder.transform(["the dog", "the zebra"])
