"""What is a fitted pipeline of an encoder and calibrators, and what is not."""

import numpy as np
import pytest
import transformers
from sklearn import config_context
from sklearn.base import clone
from sklearn.decomposition import PCA
from sklearn.exceptions import NotFittedError
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline

from skcalib import BertEncoder, BiEncoder, VectorStore, Whitening
from skcalib.export._parts import differs, probes, take_apart


@pytest.mark.parametrize(
    "estimator",
    [PCA(), "model", None, GridSearchCV(BiEncoder(PCA()), {}), make_pipeline("passthrough")],
)
def test_what_has_no_encoder_is_refused(estimator):
    with pytest.raises(TypeError, match=r"save_it takes a fitted pipeline.*best_estimator_"):
        take_apart(estimator, "save_it")


def test_not_fitted(tiny_bert):
    for estimator in (BertEncoder(tiny_bert), BiEncoder(BertEncoder(tiny_bert))):
        with pytest.raises(NotFittedError):
            take_apart(estimator, "save_it")
    encoder = BertEncoder(tiny_bert).fit(["dog"])
    with pytest.raises(NotFittedError):
        take_apart(make_pipeline(encoder, Whitening()), "save_it")


def test_probes_warn_of_nothing(tiny_bert):
    parts = take_apart(BertEncoder(tiny_bert, max_length=4).fit(["dog"]), "save_it")
    texts, vectors = probes(parts)
    assert len(texts) == len(vectors) == 5
    assert not differs(vectors, vectors + 1e-6)
    assert differs(vectors, vectors[::-1])
    assert differs(vectors * np.nan, vectors)


def test_parts_leave_the_pipeline_as_it_is(tiny_bert, tmp_path):
    encoder = BertEncoder(tiny_bert, memory=tmp_path / "store", dtype="bfloat16").fit(["dog"])
    parts = take_apart(BiEncoder(encoder, similarity="euclidean").fit(["dog"]), "save_it")
    parts.transform(["cat"])
    assert parts.similarity == "euclidean"
    assert len(VectorStore(tmp_path / "store")) == 1  # the fit wrote "dog", no part "cat"
    assert encoder.memory == tmp_path / "store"
    assert (encoder._recipe.dtype, parts.recipe.dtype) == ("bfloat16", "float32")


@pytest.mark.parametrize("globally", [False, True])
def test_frames_are_taken_for_arrays(tiny_bert, texts, globally):
    pytest.importorskip("pandas")
    pipeline = make_pipeline(BertEncoder(tiny_bert), Whitening(noise=1.0))
    expected = clone(pipeline).fit_transform(texts)
    if not globally:
        pipeline.set_output(transform="pandas")
    with config_context(transform_output="pandas" if globally else "default"):
        parts = take_apart(pipeline.fit(texts), "save")
        vectors = parts.transform(texts)
    assert isinstance(vectors, np.ndarray)
    np.testing.assert_allclose(vectors, expected, rtol=1e-4, atol=1e-4)


def test_vectors_that_padding_may_change_are_refused(save_family):
    if not hasattr(transformers, "EuroBertModel"):
        pytest.skip("this transformers knows no EuroBert")
    rope = {"rope_type": "longrope", "rope_theta": 1e4, "original_max_position_embeddings": 16}
    rope |= {"short_factor": [1.0] * 4, "long_factor": [4.0] * 4, "factor": 2.0}
    sizes = {"hidden_size": 16, "num_attention_heads": 2, "pad_token_id": 0}
    folder = save_family("EuroBert", **sizes, num_hidden_layers=1, rope_parameters=rope)
    with pytest.raises(ValueError, match=r"'longrope' the longest text of .*pipeline itself"):
        probes(take_apart(BertEncoder(folder).fit(["dog"]), "save_it"))
