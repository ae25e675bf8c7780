"""Whitening as the linear map of torch, sentence-transformers, faiss, and in skops files."""

import sys

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.exceptions import NotFittedError
from sklearn.pipeline import make_pipeline

from skcalib import BertEncoder, Whitening


@pytest.fixture
def X():
    rng = np.random.default_rng(0)
    return (rng.normal(size=(600, 12)) @ rng.normal(size=(12, 12)) + 3).astype(np.float32)


@pytest.fixture
def steep():
    """A large mean and eigenvalues over ten decades: float32 products cannot serve."""
    rng = np.random.default_rng(0)
    rotation = np.linalg.qr(rng.normal(size=(12, 12)))[0]
    X = rng.normal(size=(600, 12)) * 10.0 ** np.linspace(0, -5, 12) @ rotation
    return (X + 100).astype(np.float32)


@pytest.mark.parametrize(
    "params",
    [
        {},
        {"n_components": 3, "method": "rotated"},
        {"method": "zca"},
        {"noise": "auto", "n_groups": 4},
    ],
)
@pytest.mark.parametrize("data", ["X", "steep"])
def test_torch_module_equals_transform(params, data, request):
    torch = pytest.importorskip("torch")
    X = request.getfixturevalue(data)
    whitening = Whitening(**params).fit(X)
    module = whitening.to_torch()
    expected = whitening.transform(X)
    Z = module(torch.from_numpy(X))
    assert Z.dtype == torch.float32
    assert_allclose(Z, expected, atol=1e-5 * np.abs(expected).max())
    assert not list(module.parameters())
    three_axes = module(torch.from_numpy(X.reshape(20, 30, 12)))
    assert_allclose(three_axes.reshape(600, -1), Z, atol=1e-5 * np.abs(expected).max())
    double = X.astype(float)
    expected = Whitening(**params).fit(double).transform(double)
    Z = Whitening(**params).fit(double).to_torch()(torch.from_numpy(double))
    assert_allclose(Z, expected, atol=1e-10 * np.abs(expected).max())


def test_torch_module_is_saved_and_differentiable(X, tmp_path):
    torch = pytest.importorskip("torch")
    module = Whitening(4).fit(X).to_torch()
    torch.save(module.state_dict(), tmp_path / "w.pt")
    other = Whitening(4).fit(X[:100]).to_torch()
    other.load_state_dict(torch.load(tmp_path / "w.pt", weights_only=True))
    x = torch.from_numpy(X[:5]).requires_grad_()
    assert_array_equal(other(x).detach(), module(x).detach())
    module(x).sum().backward()
    assert_allclose(x.grad[0], module.weight.sum(dim=1), rtol=1e-5)


def test_sentence_transformer_gives_the_vectors_of_the_pipeline(tiny_bert, texts, tmp_path):
    package = pytest.importorskip("sentence_transformers")
    modules = pytest.importorskip("sentence_transformers.sentence_transformer.modules")
    pipeline = make_pipeline(BertEncoder(tiny_bert), Whitening(4, noise="auto")).fit(texts)
    transformer = modules.Transformer(tiny_bert)
    pooling = modules.Pooling(16, pooling_mode="mean")
    dense = pipeline[-1].to_sentence_transformers()
    model = package.SentenceTransformer(modules=[transformer, pooling, dense], device="cpu")
    expected = pipeline.transform(texts)
    assert_allclose(model.encode(texts), expected, atol=1e-5)
    model.save(str(tmp_path / "model"))
    loaded = package.SentenceTransformer(str(tmp_path / "model"), device="cpu")
    assert_allclose(loaded.encode(texts), expected, atol=1e-5)


@pytest.mark.parametrize("noise", [0.0, "auto"])
def test_faiss_maps_and_its_index_of_cosines_takes_raw_vectors(X, noise):
    faiss = pytest.importorskip("faiss")
    whitening = Whitening(4, noise=noise).fit(X)
    Z = whitening.transform(X).astype(np.float64)
    assert_allclose(whitening.to_faiss().apply(X), Z, atol=1e-5)
    index = whitening.to_faiss(normalize=True)
    index.add(X)
    cosines, found = index.search(X[:50], 600)
    Z /= np.linalg.norm(Z, axis=1, keepdims=True)
    assert_array_equal(found[:, 0], np.arange(50))
    assert_allclose(cosines, np.sort(Z[:50] @ Z.T, axis=1)[:, ::-1], atol=1e-5)
    again = faiss.deserialize_index(faiss.serialize_index(index))
    assert_array_equal(again.search(X[:50], 5)[1], found[:, :5])


@pytest.mark.parametrize("method", ["to_faiss", "to_sentence_transformers"])
def test_maps_that_would_lose_the_digits_are_refused(steep, method):
    whitening = Whitening().fit(steep)
    with pytest.raises(ValueError, match=rf"{method} gives a map in float32.*error of .*Keep"):
        getattr(whitening, method)()


@pytest.mark.parametrize(
    ("method", "module", "package"),
    [
        ("to_faiss", "faiss", "faiss-cpu"),
        ("to_sentence_transformers", "sentence_transformers", "sentence-transformers"),
    ],
)
def test_missing_package_is_named(X, monkeypatch, method, module, package):
    for name in [n for n in sys.modules if n.split(".")[0] == module]:
        monkeypatch.setitem(sys.modules, name, None)
    monkeypatch.setitem(sys.modules, module, None)
    whitening = Whitening(3).fit(X)
    with pytest.raises(ImportError, match=f"{method} needs the package {package}.*pip install"):
        getattr(whitening, method)()


@pytest.mark.parametrize("method", ["to_torch", "to_faiss", "to_sentence_transformers"])
def test_not_fitted(method):
    with pytest.raises(NotFittedError):
        getattr(Whitening(), method)()
