"""Fixtures of the encoder's tests."""

from functools import lru_cache

import pytest
import transformers

import skcalib.encoders.model.backbone as backbone


@pytest.fixture
def loader(monkeypatch):
    """The cached function that loads models, with a cache of the test's own."""
    maxsize = backbone._load.cache_parameters()["maxsize"]
    load = lru_cache(maxsize)(backbone._load.__wrapped__)
    monkeypatch.setattr(backbone, "_load", load)
    yield load
    load.cache_clear()


@pytest.fixture
def inputs(monkeypatch):
    """Return a function that begins to note the shapes of what a family's model is given."""

    def inputs(family):
        model, shapes = getattr(transformers, f"{family.split()[0]}Model"), []
        run = model.forward

        def forward(self, input_ids, **options):
            shapes.append(tuple(input_ids.shape))
            return run(self, input_ids, **options)

        monkeypatch.setattr(model, "forward", forward)
        return shapes

    return inputs
