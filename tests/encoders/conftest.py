"""Fixtures of the encoder's tests."""

from types import SimpleNamespace

import pytest
import transformers

from skcalib import clear_caches
from skcalib.encoders.model.tokens import Tokens


@pytest.fixture
def loads(monkeypatch):
    """Names of the folders from which tokenizers are loaded from now on, none in memory."""
    clear_caches()
    folders, load = [], transformers.AutoTokenizer.from_pretrained

    def noted(folder, **options):
        folders.append(folder.name)
        return load(folder, **options)

    monkeypatch.setattr(transformers.AutoTokenizer, "from_pretrained", noted)
    yield folders
    clear_caches()


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


@pytest.fixture
def split():
    """Return a function that splits texts into windows of a tokenizer."""

    def split(tokenizer, texts, max_length, prompt="", windows=False):
        read = {"max_length": max_length, "prompt": prompt, "windows": windows}
        recipe = SimpleNamespace(truncation_side="right", **read)
        return Tokens(tokenizer, len(tokenizer)).windows(texts, recipe)

    return split
