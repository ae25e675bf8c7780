"""Vectors of a GPU are those of the CPU; skipped where there is none."""

import numpy as np
import pytest
import torch

from skcalib import BertEncoder, NormalizingFlow, clear_caches

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU of CUDA")


@pytest.mark.parametrize("pooling", ["cls", "mean", "max", "zipf"])
def test_an_encoder_on_a_gpu_has_the_vectors_of_the_cpu(minilm, texts, pooling):
    encoder = BertEncoder(minilm, pooling=pooling)
    expected = encoder.set_params(device="cpu").fit_transform(texts)
    clear_caches()  # which keep vectors of any device
    found = encoder.set_params(device="cuda").fit_transform(texts)
    np.testing.assert_allclose(found, expected, atol=1e-4 * np.abs(expected).max())


def test_a_flow_of_a_gpu_transforms_on_the_cpu():
    X = np.random.default_rng(0).normal(size=(500, 8)).astype(np.float32)
    flow = NormalizingFlow(device="cuda", random_state=0).fit(X)
    found = flow.transform(X)
    np.testing.assert_allclose(flow.set_params(device="cpu").transform(X), found, atol=1e-4)
    np.testing.assert_allclose(flow.inverse_transform(found), X, atol=1e-3)
