"""Array API dispatch: torch tensors in, torch tensors out, float64 sums on their device."""

import os
import subprocess
import sys

import numpy as np
import pytest
from numpy.testing import assert_allclose

from skcalib import Whitening
from skcalib.calibration.moments import Moments

# SciPy reads SCIPY_ARRAY_API when it is imported, so this runs in a process of its own.
SCRIPT = """
import itertools
import numpy as np, pytest, sklearn, torch
from numpy.testing import assert_allclose
from skcalib import Whitening
from skcalib.calibration import moments
from skcalib.calibration import map as linear_map
from skcalib.monitoring import mahalanobis


rng = np.random.default_rng(0)
data = rng.normal(size=(3000, 6)) * [10, 3, 1, 1, 0.3, 0.1] @ rng.normal(size=(6, 6)) + 1000
weight = rng.integers(0, 3, size=3000).astype(float)
devices = ["cpu", "cuda"] if torch.cuda.is_available() else ["cpu"]
sklearn.set_config(array_api_dispatch=True)
for n_bytes in (2**26, 5000):  # one chunk, and several
    linear_map.TENSOR_BYTES = moments.TENSOR_BYTES = n_bytes
    for device, dtype in itertools.product(devices, (torch.float32, torch.float64)):
        X = torch.tensor(data, dtype=dtype, device=device)
        host = X.cpu().numpy()
        for params in ({}, {"n_components": 3}, {"method": "zca"}, {"noise": "auto"}):
            ours, reference = Whitening(**params).fit(X), Whitening(**params).fit(host)
            assert isinstance(ours.mean_, np.ndarray)
            assert_allclose(ours.mean_, reference.mean_, rtol=1e-14)
            assert_allclose(ours.get_covariance(), reference.get_covariance(), rtol=1e-9)
            assert_allclose(ours.shrinkage_, reference.shrinkage_, rtol=1e-7)
            Z = ours.transform(X)
            assert type(Z) is torch.Tensor and Z.dtype == dtype and Z.device == X.device
            atol = 2e-5 if dtype == torch.float32 else 1e-7
            assert_allclose(Z.cpu(), reference.transform(host), atol=atol)
            assert_allclose(ours.transform(host), reference.transform(host), atol=atol)
            assert_allclose(mahalanobis(ours, X).cpu(), mahalanobis(reference, host), rtol=1e-3)
            back = ours.inverse_transform(Z)
            assert type(back) is torch.Tensor and back.dtype == dtype
            expected = reference.inverse_transform(reference.transform(host))
            assert_allclose(back.cpu(), expected, rtol=1e-5)
        w = torch.tensor(weight, device=device)
        parts = Whitening().partial_fit(X[:50], sample_weight=w[:50])
        parts.partial_fit(X[50:], sample_weight=w[50:])
        expected = Whitening().fit(host, sample_weight=weight)
        assert_allclose(parts.get_covariance(), expected.get_covariance(), rtol=1e-9)
        X[5, 2] = float("nan")
        for call in (Whitening().fit, ours.transform):
            with pytest.raises(ValueError, match="contains NaN"):
                call(X)
"""

# Arrays that have nothing but the standard, on a device whose arrays NumPy cannot read.
STRICT = """
import itertools, warnings
import array_api_strict as xp, numpy as np, sklearn
from numpy.testing import assert_allclose
from sklearn.utils.estimator_checks import check_estimator
from skcalib import Whitening

data = np.random.default_rng(0).normal(size=(60, 5)) + 3
sklearn.set_config(array_api_dispatch=True)
for device, dtype in itertools.product(("CPU_DEVICE", "device1"), (xp.float32, xp.float64)):
    X = xp.asarray(data, dtype=dtype, device=xp.Device(device))
    whitening = Whitening().fit(X)
    expected = Whitening().fit(data)
    assert_allclose(whitening.get_covariance(), expected.get_covariance(), rtol=1e-5)
    Z = whitening.transform(X)
    back = whitening.inverse_transform(Z)
    for ours, of_numpy in ((Z, expected.transform(data)), (back, data)):
        assert ours.device == X.device and ours.dtype == dtype
        assert_allclose(xp.asarray(ours, device=xp.Device("CPU_DEVICE")), of_numpy, atol=1e-4)
    assert_allclose(whitening.transform(data), expected.transform(data), atol=1e-4)
sklearn.set_config(array_api_dispatch=False)
warnings.simplefilter("ignore")  # of few samples, and of checks without a GPU
check_estimator(Whitening())
"""


@pytest.mark.parametrize(
    ("script", "package"),
    [(SCRIPT, "array_api_compat"), (STRICT, "array_api_strict")],
    ids=["torch", "strict"],
)
def test_array_api(script, package):
    pytest.importorskip("torch")
    pytest.importorskip(package)
    environment = {**os.environ, "SCIPY_ARRAY_API": "1"}
    command = [sys.executable, "-W", "error::UserWarning", "-c", script]
    run = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert run.returncode == 0, run.stderr


@pytest.mark.parametrize("graded", [False, True], ids=["float32", "float64"])
def test_a_device_without_float64_leaves_it_to_the_cpu(monkeypatch, graded):
    torch = pytest.importorskip("torch")
    xp = pytest.importorskip("array_api_compat.torch")
    metal, moves = torch.device("mps"), []  # which need not be there to have a name

    def moved(array, device):
        moves.append((str(device), array.dtype))
        return array

    X = np.random.default_rng(0).normal(size=(300, 5)).astype(np.float32) + 7
    # Columns of other scales, rotated: a product in float32 would lose the small ones.
    X = (X - 7) * 10.0 ** -np.arange(5) @ np.linalg.qr(X[:5])[0] if graded else X
    X = X.astype(np.float32)
    tensor, fitted = torch.from_numpy(X), Whitening().fit(X)
    linear = fitted.linear_map()
    for module in ("moments", "map"):
        name = f"skcalib.calibration.{module}"
        monkeypatch.setattr(f"{name}.on_device", moved)
        monkeypatch.setattr(f"{name}.get_namespace_and_device", lambda X: (xp, True, metal))
    assert_allclose(Moments.of(tensor).scatter, Moments.of(X).scatter, rtol=1e-10)
    assert moves == [("cpu", torch.float32)]
    moves.clear()
    assert linear.float32_is_safe is not graded
    asarray = xp.asarray

    def placed(array, *, dtype, device):
        assert not (device == metal and dtype == torch.float64)
        return asarray(array, dtype=dtype)

    monkeypatch.setattr(xp, "asarray", placed)
    Z = linear.apply(tensor)
    assert_allclose(Z, linear.apply(X), atol=2e-5)
    assert moves == [("cpu" if graded else "mps", torch.float32), ("mps", torch.float32)]
    moves.clear()
    back = fitted.map_.inverse
    assert_allclose(back.apply(Z), X, atol=1e-4)
    place = "mps" if back.float32_is_safe else "cpu"
    assert moves == [(place, torch.float32), ("mps", torch.float32)]


def test_tensor_without_dispatch_is_an_array():
    torch = pytest.importorskip("torch")
    X = torch.arange(60.0).reshape(20, 3) % 7
    assert isinstance(Whitening().fit_transform(X), np.ndarray)
