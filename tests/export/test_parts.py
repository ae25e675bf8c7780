"""What is a fitted pipeline of an encoder and calibrators, and what is not."""

import sys

import pytest
import transformers
from exported import assert_equal_vectors, exported
from numpy.testing import assert_array_equal
from sklearn import config_context
from sklearn.base import clone
from sklearn.decomposition import PCA
from sklearn.exceptions import NotFittedError
from sklearn.frozen import FrozenEstimator
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import normalize

from skcalib import BertEncoder, BiEncoder, CalibrationSearch, VectorStore, Whitening
from skcalib.export import save_onnx, save_sentence_transformer
from skcalib.export._parts import apply, take_apart

LONGER = [f"the {a} dog plays a {b} and {a}" for a in ("red", "old") for b in ("song", "flute")]
LONGER += [text.replace("dog", "cat") for text in LONGER]


@pytest.mark.parametrize(
    "estimator",
    [PCA(), "model", None, GridSearchCV(BiEncoder(PCA()), {}), make_pipeline("passthrough")],
)
def test_what_has_no_encoder_is_refused(estimator):
    with pytest.raises(TypeError, match=r"An export needs a fitted .*Fit a search first"):
        save_onnx(estimator, "model.onnx")


@pytest.mark.parametrize(
    "search",
    [
        lambda model: CalibrationSearch(model, task="duplicates"),
        lambda model: GridSearchCV(BiEncoder(model), {}, cv=2, scoring=lambda *_: 1.0),
        lambda model: FrozenEstimator(
            GridSearchCV(model, {}, cv=2, scoring=lambda *_: 1.0).fit(LONGER, None)
        ),
    ],
)
@pytest.mark.filterwarnings("ignore:Found:UserWarning")
def test_a_search_stands_for_what_it_found(search, tiny_bert):
    search = search(BertEncoder(tiny_bert, layers=3, pooling="mean")).fit(LONGER, None)
    found = getattr(search, "best_estimator_", search)
    parts = take_apart(search)
    vectors = apply(parts.steps, parts.encoder.transform(LONGER[:5]))
    assert_array_equal(vectors, getattr(found, "encoder_", found).transform(LONGER[:5]))


def test_not_fitted(tiny_bert):
    for estimator in (BertEncoder(tiny_bert), BiEncoder(BertEncoder(tiny_bert))):
        with pytest.raises(NotFittedError):
            save_onnx(estimator, "model.onnx")
    encoder = BertEncoder(tiny_bert).fit(["dog"])
    with pytest.raises(NotFittedError):
        save_onnx(make_pipeline(encoder, Whitening()), "model.onnx")


def test_the_pipeline_stays_as_it_is(tiny_bert, tmp_path):
    store, params = tmp_path / "store", {"dtype": "bfloat16", "max_length": 4}
    encoder = BertEncoder(tiny_bert, memory=store, **params).fit(["dog"])
    encoder.transform(["dog"])
    model = BiEncoder(encoder).fit(["dog"])
    # This warns of no text that is cut off.
    assert exported(model, tmp_path).similarity_fn_name == "cosine"
    assert len(VectorStore(store)) == 1  # "dog" alone: the export wrote nothing
    assert model.encoder_.get_params() == clone(encoder).get_params()


@pytest.mark.parametrize("globally", [False, True])
def test_frames_are_taken_for_arrays(globally, tiny_bert, texts, tmp_path):
    pytest.importorskip("pandas")
    pipeline = make_pipeline(BertEncoder(tiny_bert), Whitening(6, power="auto"))
    expected = normalize(clone(pipeline).fit_transform(texts))
    if not globally:
        pipeline.set_output(transform="pandas")
    with config_context(transform_output="pandas" if globally else "default"):
        model = exported(pipeline.fit(texts), tmp_path, normalize=True)
    assert_equal_vectors(model.encode(texts), expected)


@pytest.mark.parametrize(
    ("save", "module", "message"),
    [
        (save_onnx, "onnx", "pip install onnx onnxscript onnxruntime$"),
        (
            save_sentence_transformer,
            "sentence_transformers.sentence_transformer.modules",
            r"pip install 'sentence-transformers>=5\.4'$",
        ),
    ],
)
def test_a_missing_package_is_named(save, module, message, tiny_bert, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(ImportError, match=message):
        save(BertEncoder(tiny_bert).fit(["dog"]), tmp_path / "model")


def test_vectors_that_padding_may_change_are_refused(save_family, tmp_path):
    if not hasattr(transformers, "EuroBertModel"):
        pytest.skip("this transformers knows no EuroBert")
    rope = {"rope_type": "longrope", "rope_theta": 1e4, "original_max_position_embeddings": 16}
    rope |= {"short_factor": [1.0] * 4, "long_factor": [4.0] * 4, "factor": 2.0}
    sizes = {"hidden_size": 16, "num_attention_heads": 2, "pad_token_id": 0}
    folder = save_family("EuroBert", **sizes, num_hidden_layers=1, rope_parameters=rope)
    with pytest.raises(ValueError, match=r"'longrope', by which the longest .*pipeline itself"):
        save_sentence_transformer(BertEncoder(folder).fit(["dog"]), tmp_path / "model")
