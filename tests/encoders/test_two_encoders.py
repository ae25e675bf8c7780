"""Two calibrated encoders side by side, as a `FeatureUnion` of pipelines."""

import pickle

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.pipeline import FeatureUnion, make_pipeline
from sklearn.preprocessing import Normalizer

from skcalib import (
    BertEncoder,
    CalibrationSearch,
    NeighborSmoothing,
    TextEncoder,
    VectorStore,
    Whitening,
    ZeroShotClassifier,
)
from skcalib.datasets import load_questions
from skcalib.export import save_onnx, save_sentence_transformer

QUESTIONS = load_questions()


def letters(texts):
    return np.array([[text.count(c) for c in "aeinorst"] for text in texts], np.float32)


@pytest.fixture
def calibrated(tiny_bert, other_bert):
    """Return a function that makes a union of two tiny BERTs, each calibrated."""

    def calibrated(**params):
        return FeatureUnion(
            [
                (name, make_pipeline(encoder, Whitening(4, power="auto"), Normalizer()))
                for name, encoder in (
                    ("tiny", BertEncoder(tiny_bert, **params)),
                    ("other", BertEncoder(other_bert, **params)),
                )
            ]
        )

    return calibrated


@pytest.fixture
def with_letters(minilm, remembered):
    """A union of MiniLM, which runs each text once, and counts of letters, each calibrated."""
    blocks = [
        make_pipeline(encoder, Whitening(power="auto"), Normalizer())
        for encoder in (BertEncoder(minilm), TextEncoder(letters))
    ]
    return FeatureUnion([("minilm", blocks[0]), ("letters", blocks[1])])


def test_both_keep_their_vectors_in_one_memory(calibrated, texts, tmp_path):
    expected = calibrated().fit_transform(texts)
    union = calibrated(memory=VectorStore(tmp_path, layers=(-1,), pooling="mean"))
    for _ in range(2):
        vectors = clone(union).fit_transform(texts)
        np.testing.assert_allclose(vectors, expected, atol=1e-5)
    assert len(VectorStore(tmp_path)) == 2 * len(set(texts))
    again = pickle.loads(pickle.dumps(clone(union).fit(texts)))
    np.testing.assert_array_equal(again.transform(texts), vectors)
    assert len(again.get_feature_names_out()) == vectors.shape[1] == 8


def test_what_takes_an_encoder_takes_a_union(with_letters):
    union, texts = with_letters.set_params(transformer_weights={"letters": 0.1}), QUESTIONS.data
    names = QUESTIONS.target_names
    found = ZeroShotClassifier(union, names.tolist()).fit(texts).predict(texts)
    assert np.mean(found == names[QUESTIONS.target]) > 0.7
    search = CalibrationSearch(union, n_texts=40).fit(texts)
    vectors = search.best_estimator_["encode"].transform(["My card was taken"])
    assert vectors.shape == (1, 392)
    smoothed = make_pipeline(union, NeighborSmoothing()).fit(texts)
    lengths = np.linalg.norm(smoothed.transform(texts), axis=1)
    np.testing.assert_allclose(lengths, 1, rtol=1e-5)


@pytest.mark.parametrize("save", [save_onnx, save_sentence_transformer])
def test_an_export_of_two_models_is_refused(calibrated, texts, tmp_path, save):
    union = calibrated().fit(texts)
    message = "An export needs .* not with a FeatureUnion.* save each .* side by side"
    for pipeline in (union, make_pipeline(union, NeighborSmoothing()).fit(texts)):
        with pytest.raises(TypeError, match=message):
            save(pipeline, tmp_path / "model")
    assert not any(tmp_path.iterdir())
