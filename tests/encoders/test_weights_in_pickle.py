"""A pickle may hold the files of the model, so that it needs no folder where it is loaded."""

import pickle
import shutil
import tempfile
from pathlib import Path

import pytest
from numpy.testing import assert_array_equal
from sklearn.base import clone
from sklearn.pipeline import make_pipeline

from skcalib import BertEncoder, Whitening, clear_caches

TEXTS = ["a dog plays in the rain", "the cat sleeps", "snow", "the man plays", "a red train"]


@pytest.fixture
def folder(tiny_bert_copy):
    return tiny_bert_copy()


@pytest.fixture
def temporary(tmp_path, monkeypatch):
    """Folder in which temporary files appear."""
    place = tmp_path / "temporary"
    place.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(place))
    return place


def fitted(folder, **params):
    pipeline = make_pipeline(BertEncoder(folder, **params), Whitening(power="auto")).fit(TEXTS)
    pipeline[0].store_weights_in_pickle()
    return pipeline


@pytest.mark.parametrize("params", [{}, {"pooling": "zipf"}, {"layers": (0, 1)}], ids=str)
def test_a_pickle_with_weights_needs_no_folder(folder, temporary, params):
    pipeline = fitted(folder, **params)
    expected, dumped = pipeline.transform(TEXTS), pickle.dumps(pipeline)
    shutil.rmtree(folder)
    clear_caches()
    loaded = pickle.loads(dumped)
    assert not [*temporary.iterdir()]  # nothing is written until it is used
    assert_array_equal(loaded.transform(TEXTS), expected)
    again = pickle.loads(pickle.dumps(loaded))  # it still holds them
    clear_caches()
    assert_array_equal(again.transform(TEXTS), expected)
    del loaded, again
    clear_caches()
    assert not [*temporary.iterdir()]


def test_without_weights_the_folder_is_needed(folder):
    encoder = BertEncoder(folder).fit(TEXTS)
    dumped = pickle.dumps(encoder)
    weights = (Path(folder) / "model.safetensors").stat().st_size
    assert len(dumped) < 10_000 < weights
    assert len(pickle.dumps(encoder.store_weights_in_pickle())) > weights
    shutil.rmtree(folder)
    clear_caches()
    with pytest.raises(FileNotFoundError, match="If the model of a fitted pipeline has moved"):
        pickle.loads(dumped).transform(TEXTS)


def test_only_a_fitted_encoder_carries_weights(folder):
    encoder = fitted(folder)[0]
    assert len(pickle.dumps(clone(encoder))) < 10_000


def test_weights_are_those_of_the_fit(folder, make_bert):
    encoder = BertEncoder(folder).fit(TEXTS)
    stored = fitted(folder)
    expected = stored.transform(TEXTS)
    make_bert(Path(folder), seed=5)
    with pytest.raises(ValueError, match="its files have changed"):
        encoder.store_weights_in_pickle()
    with pytest.raises(ValueError, match="its files have changed"):
        stored.transform(TEXTS)
    assert_array_equal(pickle.loads(pickle.dumps(stored)).transform(TEXTS), expected)


def test_a_temporary_folder_that_is_gone_is_written_again(folder, temporary):
    pipeline = fitted(folder)
    expected, loaded = pipeline.transform(TEXTS), pickle.loads(pickle.dumps(pipeline))
    loaded.transform(TEXTS)
    shutil.rmtree(next(temporary.iterdir()))
    clear_caches()
    assert_array_equal(loaded.transform(TEXTS), expected)


def test_a_fit_uses_the_named_model_again(folder, tiny_bert):
    loaded = pickle.loads(pickle.dumps(fitted(folder)))
    shutil.rmtree(folder)
    clear_caches()
    with pytest.raises(FileNotFoundError):
        clone(loaded).fit(TEXTS)
    loaded.set_params(bertencoder__model=tiny_bert).fit(TEXTS)
    assert loaded.transform(TEXTS).shape[0] == len(TEXTS)
