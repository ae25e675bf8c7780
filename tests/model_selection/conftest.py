"""Texts and searches that several files share."""

import numpy as np
import pytest
from searches import searched


@pytest.fixture(scope="module")
def sentences(words):
    """A hundred sentences that keep to a few words of their own, in both halves."""
    rng = np.random.default_rng(0)
    return [" ".join(rng.permutation(np.repeat(rng.choice(words, 4), 3))) for _ in range(100)]


@pytest.fixture
def encoded(monkeypatch):
    """A list that grows with every batch that goes through a model, by its number of texts."""
    from skcalib.encoders.model.batches import BackboneModel

    numbers, encode = [], BackboneModel.encode

    def counted(self, texts):
        for batch in encode(self, texts):
            numbers.append(len(batch.rows))
            yield batch

    monkeypatch.setattr(BackboneModel, "encode", counted)
    return numbers


@pytest.fixture(scope="module")
def calibrated(tiny_bert, sentences):
    return searched(tiny_bert, sentences, n_texts=100)
