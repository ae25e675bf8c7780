"""Fixtures of the encoder's tests."""

from functools import lru_cache

import pytest

import skcalib._encoder.backbone as backbone


@pytest.fixture
def loader(monkeypatch):
    """The cached function that loads models, with a cache of the test's own."""
    maxsize = backbone._load.cache_parameters()["maxsize"]
    load = lru_cache(maxsize)(backbone._load.__wrapped__)
    monkeypatch.setattr(backbone, "_load", load)
    yield load
    load.cache_clear()
