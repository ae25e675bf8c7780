"""A whitening inside pipelines that skl2onnx converts."""

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline

from skcalib import GroupErasure, Whitening
from skcalib.export import register_skl2onnx

runtime = pytest.importorskip("onnxruntime")


@pytest.fixture(scope="module")
def skl2onnx():
    package = pytest.importorskip("skl2onnx")
    register_skl2onnx()
    return package


@pytest.fixture
def X():
    rng = np.random.default_rng(0)
    return rng.normal(size=(300, 6)) @ rng.normal(size=(6, 6)) + 50


def _run(package, model, X):
    options = {"zipmap": False} if hasattr(model, "predict") else None
    graph = package.to_onnx(model, X[:1], options=options).SerializeToString()
    return runtime.InferenceSession(graph).run(None, {"X": X})


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("method", ["pca", "zca", "rotated", "erased"])
def test_the_graph_computes_what_the_estimators_do(skl2onnx, X, dtype, method):
    X = X.astype(dtype)
    if method == "erased":
        model = make_pipeline(GroupErasure(), Whitening(3, noise="auto"))
        model.fit(X, grouperasure__groups=np.arange(300) % 3)
    else:
        model = Whitening(3, method=method, noise="auto").fit(X)
    [vectors] = _run(skl2onnx, model, X)
    assert vectors.dtype == dtype
    np.testing.assert_allclose(vectors, model.transform(X), atol=1e-5)


def test_a_mean_taken_away_first_costs_no_digits(skl2onnx, X):
    X = (X + 1000).astype(np.float32)
    whitening = Whitening().fit(X)
    with pytest.raises(ValueError, match="to_faiss gives a map in float32"):
        whitening.to_faiss()
    [vectors] = _run(skl2onnx, whitening, X)
    np.testing.assert_allclose(vectors, whitening.transform(X), atol=1e-5)


def test_a_classifier_behind_it(skl2onnx, X):
    X = X.astype(np.float32)
    model = make_pipeline(Whitening(4), LogisticRegression()).fit(X, X[:, 0] > X[:, 0].mean())
    labels, probabilities = _run(skl2onnx, model, X)
    np.testing.assert_array_equal(labels, model.predict(X))
    np.testing.assert_allclose(probabilities, model.predict_proba(X), atol=1e-5)


def test_refuses_what_float32_cannot_hold(skl2onnx, X):
    X[:, 0] = X[:, 1] + 1e-5 * np.random.default_rng(1).normal(size=len(X))
    whitening = Whitening().fit(X)
    message = r"register_skl2onnx gives a map in float32.* lose its digits.*error of .*Keep"
    with pytest.raises(ValueError, match=message):
        skl2onnx.to_onnx(whitening, X[:1].astype(np.float32))
    [vectors] = _run(skl2onnx, whitening, X)
    np.testing.assert_allclose(vectors, whitening.transform(X), atol=1e-6)
