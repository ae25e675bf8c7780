"""Fitted steps as maps of torch, and as modules after a model."""

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.decomposition import PCA, IncrementalPCA, TruncatedSVD
from sklearn.exceptions import NotFittedError
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import MinMaxScaler, Normalizer, StandardScaler

from skcalib import BertEncoder, NeighborSmoothing, NormalizingFlow, Whitening
from skcalib.calibration import CalibratorTags, LinearMap
from skcalib.datasets import load_toy_sts
from skcalib.export import to_torch


@pytest.fixture
def X():
    rng = np.random.default_rng(0)
    return (rng.normal(size=(600, 12)) @ rng.normal(size=(12, 12)) + 3).astype(np.float32)


@pytest.fixture(scope="module")
def of_toy_texts(minilm):
    """Vectors of MiniLM, and the subset that each text is from."""
    toy = load_toy_sts()
    return BertEncoder(minilm).fit_transform(toy.data[::2, 0]), toy.subset[::2]


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
        {"power": "auto", "n_groups": 4},
    ],
)
@pytest.mark.parametrize("data", ["X", "steep"])
def test_torch_module_equals_transform(params, data, request):
    torch = pytest.importorskip("torch")
    X = request.getfixturevalue(data)
    whitening = Whitening(**params).fit(X)
    module = to_torch(whitening)
    expected = whitening.transform(X)
    Z = module(torch.from_numpy(X))
    assert Z.dtype == torch.float32
    assert_allclose(Z, expected, atol=1e-5 * np.abs(expected).max())
    assert not list(module.parameters())
    three_axes = module(torch.from_numpy(X.reshape(20, 30, 12)))
    assert_allclose(three_axes.reshape(600, -1), Z, atol=1e-5 * np.abs(expected).max())
    double = X.astype(float)
    expected = Whitening(**params).fit(double).transform(double)
    Z = to_torch(Whitening(**params).fit(double))(torch.from_numpy(double))
    assert_allclose(Z, expected, atol=1e-10 * np.abs(expected).max())


def test_torch_module_is_saved_and_differentiable(X, tmp_path):
    torch = pytest.importorskip("torch")
    module = to_torch(Whitening(4).fit(X))
    torch.save(module.state_dict(), tmp_path / "w.pt")
    other = to_torch(Whitening(4).fit(X[:100]))
    other.load_state_dict(torch.load(tmp_path / "w.pt", weights_only=True))
    x = torch.from_numpy(X[:5]).requires_grad_()
    assert_array_equal(other(x).detach(), module(x).detach())
    module(x).sum().backward()
    assert_allclose(x.grad[0], module.weight.sum(dim=1), rtol=1e-5)


def test_to_torch_refuses_what_is_not_fitted_and_no_step(X):
    with pytest.raises(NotFittedError):
        to_torch(Whitening())
    with pytest.raises(ValueError, match="Got no step"):
        to_torch()
    with pytest.raises(TypeError, match=r"MinMaxScaler\(\) cannot be exported.* Normalizer"):
        to_torch(MinMaxScaler().fit(X))
    with pytest.raises(TypeError, match=r"Normalizer\(norm='l1'\) cannot be exported"):
        to_torch(Normalizer("l1"))
    with pytest.raises(ValueError, match="returns 5 features, but the next expects 12"):
        to_torch(Whitening(5).fit(X), Whitening().fit(X))


def test_to_torch_of_a_pipeline_is_its_transform(X):
    torch = pytest.importorskip("torch")
    scaler = StandardScaler(with_mean=False).fit(X)
    rest = make_pipeline(
        Whitening(power="auto"), Normalizer(), "passthrough", NeighborSmoothing()
    )
    rest.fit(scaler.transform(X))
    expected = rest.transform(scaler.transform(X))
    assert_allclose(to_torch(scaler, rest)(torch.from_numpy(X)), expected, atol=1e-5)
    flow = NormalizingFlow(max_epochs=1, device="cpu").fit(X)
    expected = flow.transform(X)
    for shape in [(600, 12), (20, 30, 12)]:
        z = to_torch(flow)(torch.from_numpy(X.reshape(shape)))
        assert_allclose(z, expected.reshape(shape), atol=1e-5)
    assert_allclose(to_torch(flow)(torch.from_numpy(X[0])), expected[0], atol=1e-5)


OF_SKLEARN = [
    PCA(random_state=0),
    PCA(5, whiten=True, random_state=0),
    PCA(0.9, svd_solver="full", whiten=True),
    IncrementalPCA(5, whiten=True),
    TruncatedSVD(5, random_state=0),
    TruncatedSVD(11, algorithm="arpack", random_state=0),
    StandardScaler(),
    StandardScaler(with_mean=False),
]


@pytest.mark.parametrize("step", [*OF_SKLEARN, StandardScaler(with_std=False)], ids=str)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_steps_of_scikit_learn_are_linear_maps(step, dtype, of_toy_texts):
    torch = pytest.importorskip("torch")
    X = of_toy_texts[0].astype(dtype)
    expected = step.fit(X).transform(X.astype(np.float64))
    typical = np.sqrt(np.mean(expected**2))
    module = to_torch(step)
    assert_allclose(module(torch.from_numpy(X)), expected, atol=2e-5 * typical)
    found = module(torch.from_numpy(X.astype(np.float64)))
    assert_allclose(found, expected, atol=(1e-5 if dtype == np.float32 else 1e-10) * typical)


def test_a_large_mean_costs_no_digits(X):
    torch, centered = pytest.importorskip("torch"), StandardScaler(with_std=False).fit(X + 1000)
    far = (X + 1000).astype(np.float64)
    found = to_torch(centered)(torch.from_numpy(far.astype(np.float32)))
    assert_allclose(found, far.astype(np.float32) - far.mean(axis=0), atol=1e-4)


def of_own(name, **tags):
    """A class of steps that center and double, which nobody has registered."""

    class Doubling(TransformerMixin, BaseEstimator):
        def fit(self, X, y=None):
            self.mean_ = X.mean(axis=0)
            return self

        def transform(self, X):
            return 2 * (X - self.mean_)

        def linear_map(self):
            W = 2 * np.eye(len(self.mean_))
            return LinearMap(self.mean_, W, np.zeros(len(W)))

        def __sklearn_tags__(self):
            found = super().__sklearn_tags__()
            found.transformer_tags = CalibratorTags(**tags)
            return found

    Doubling.__name__ = name
    return Doubling()


def test_a_step_of_ones_own_gives_its_map_or_the_reason_why_not(X):
    torch, step = pytest.importorskip("torch"), of_own("Doubling").fit(X)
    pipeline = make_pipeline(step, Whitening(4)).fit(X)
    expected = pipeline.transform(X)
    assert_allclose(to_torch(pipeline)(torch.from_numpy(X)), expected, atol=1e-5)
    step = of_own("Other", not_linear="a kernel. Leave it out").fit(X)
    with pytest.raises(TypeError, match=r"Other\(\) cannot be exported: it is not linear"):
        to_torch(step)


def test_to_torch_scales_the_smallest_vectors_to_unit_length():
    torch = pytest.importorskip("torch")
    X = np.array([[3e-20, 4e-20], [0, 0]])
    module = to_torch(Normalizer().fit(X))
    assert_allclose(module(torch.from_numpy(X)), [[0.6, 0.8], [0, 0]])
