"""The encoder on a pretended CUDA device: vectors of the CPU, in whatever memory there is."""

import warnings

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from transformers import BertModel

from skcalib import BertEncoder, VectorStore, clear_caches

DTYPES = ("float32", "bfloat16", "float16")


@pytest.fixture
def cuda(pretended_cuda):
    """The machine; what is loaded onto its device is given up before it is."""
    yield pretended_cuda
    clear_caches()


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.usefixtures("cuda")
def test_vectors_are_those_of_the_cpu(tiny_bert, texts, dtype):
    for pooling in ("cls", "mean", "max", "zipf") if dtype == "float32" else ("mean",):
        encoder = BertEncoder(tiny_bert, pooling=pooling, layers=(1, -1), layer_merge="concat")
        expected = encoder.set_params(device="cpu").fit_transform(texts)
        vectors = encoder.set_params(device="cuda", dtype=dtype).fit_transform(texts)
        assert vectors.dtype == np.float32
        if dtype == "float32":
            assert_allclose(vectors, expected, rtol=1e-5, atol=1e-5)
        cosine = np.sum(vectors * expected, axis=1)
        cosine /= np.linalg.norm(vectors, axis=1) * np.linalg.norm(expected, axis=1)
        assert cosine.min() > 0.999
        assert_array_equal(encoder.transform(texts), vectors)


def test_another_device_will_do(two_pretended_cudas, tiny_bert, texts):
    expected = BertEncoder(tiny_bert, device="cpu").fit_transform(texts)
    vectors = BertEncoder(tiny_bert, device="cuda:1").fit_transform(texts)
    assert_allclose(vectors, expected, atol=1e-5)
    assert two_pretended_cudas.used(0) == 0 < two_pretended_cudas.used(1)
    clear_caches()


@pytest.mark.usefixtures("packing")
def test_half_precision_takes_less_memory(tiny_bert, cuda):
    used = {}
    for dtype in DTYPES:
        BertEncoder(tiny_bert, device="cuda", dtype=dtype).fit(["dog"])
        used[dtype] = cuda.used()
        clear_caches()
        assert cuda.used() == 0
    assert used["bfloat16"] < 0.52 * used["float32"]
    assert used["float16"] < 0.62 * used["float32"]  # embeddings stay as they are


@pytest.mark.usefixtures("packing")
def test_a_batch_that_does_not_fit_is_halved(tiny_bert, texts, cuda):
    encoder = BertEncoder(tiny_bert, device="cuda").fit(texts)
    expected = encoder.transform(texts)
    held = cuda.used()
    cuda.memory = held + 40_000
    with pytest.warns(UserWarning, match=r"Out of memory on cuda.* 11 texts of up to 22"):
        vectors = encoder.transform(texts)
    assert_allclose(vectors, expected, atol=1e-5)
    cuda.memory = held + 2000
    with (
        pytest.warns(UserWarning, match="Out of memory"),
        pytest.raises(MemoryError, match=r"with 1 texts of up to 22 tokens\. Set a lower"),
    ):
        encoder.transform(texts)
    assert cuda.used() == held


@pytest.mark.usefixtures("packing")
def test_later_batches_are_as_small_as_the_one_that_fitted(tiny_bert, words, cuda, monkeypatch):
    texts = [f"{'dog ' * 19}{word}" for word in words]
    encoder = BertEncoder(tiny_bert, device="cuda").fit(texts)
    expected = encoder.transform(texts)
    monkeypatch.setattr("skcalib.encoders.model.batches.token_budget", lambda backbone: 8 * 22)
    cuda.memory = cuda.used() + 40_000
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        vectors = encoder.transform(texts)
    assert_allclose(vectors, expected, atol=1e-5)
    assert 1 <= len(caught) <= 3  # 4 texts, 2 or 1; not one for each of seven batches


@pytest.mark.usefixtures("packing")
@pytest.mark.parametrize(("memory", "tokens"), [(50e6, 4096), (100e6, 6103), (8e9, 65536)])
def test_the_budget_of_tokens_goes_by_the_memory(tiny_bert, cuda, monkeypatch, memory, tokens):
    encoder = BertEncoder(tiny_bert, layers=0, device="cuda").fit(["dog"])
    cuda.memory = memory
    numbers, run = [], BertModel.forward
    monkeypatch.setattr(
        BertModel,
        "forward",
        lambda self, input_ids, **options: (
            numbers.append(input_ids.numel()) or run(self, input_ids, **options)
        ),
    )
    encoder.transform([f"dog {'cat ' * 30} {i}" for i in range(tokens // 26)])  # of 34 each
    assert tokens - 34 < max(numbers) <= tokens


@pytest.mark.usefixtures("cuda")
def test_a_store_tells_devices_apart_in_half_precision(tiny_bert, texts, tmp_path):
    store, n = VectorStore(tmp_path), len(set(texts))
    for dtype, n_kept in (("float32", n), ("bfloat16", 3 * n), ("float16", 5 * n)):
        for device in ("cpu", "cuda"):
            options = {"device": device, "dtype": dtype, "memory": store}
            BertEncoder(tiny_bert, **options).fit_transform(texts)
        assert len(store) == n_kept


def test_a_forked_process_goes_on_on_the_cpu(tiny_bert, texts, cuda):
    encoder = BertEncoder(tiny_bert, device="auto").fit(texts)
    expected, cuda.is_forked = encoder.transform(texts), True
    held, cuda.memory = cuda.used(), cuda.used()  # no room for more
    assert_allclose(encoder.transform(texts), expected, atol=1e-5)
    assert held > 0
    cuda.is_forked = False
