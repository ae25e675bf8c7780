"""Both sides of a SearchEncoder in other libraries."""

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from skcalib import BertEncoder, SearchEncoder
from skcalib.export import save_onnx, save_sentence_transformer, to_torch

rng = np.random.default_rng(0)
DOCUMENTS = rng.normal(size=(200, 12))
DOCUMENTS[:, 6:] *= rng.uniform(0.8, 1.6, size=(200, 1))  # those with little there are hubs
BANK = DOCUMENTS[:80] * (np.arange(12) < 6) + 0.1 * rng.normal(size=(80, 12)) - 0.3
SEARCH = SearchEncoder().fit(DOCUMENTS, queries=BANK)


@pytest.fixture
def search(tiny_bert, texts):
    """Fitted on a few texts, with a weight that these would not give."""
    documents = [*dict.fromkeys(texts)]
    bank = [" ".join(text.split()[:3]) for text in documents]
    search = SearchEncoder(BertEncoder(tiny_bert)).fit(documents, queries=bank)
    assert search.n_queries_ > 3
    return search, documents, bank


@pytest.mark.parametrize("weight", [0, 0.75])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_torch_has_the_vectors_of_both_sides(weight, dtype):
    torch = pytest.importorskip("torch")
    # Each asks for a document of its own, so that hubs are none that are popular.
    noise = 0.3 * np.random.default_rng(1).normal(size=(80, 12))
    bank = DOCUMENTS[:80] * (np.arange(12) < 6) + noise
    search = SearchEncoder(hub_weight=weight).fit(DOCUMENTS, queries=bank)
    assert (search.hub_weight_ > 0) == (weight > 0)
    sides = [
        (search.document_pipeline_, DOCUMENTS, search.vectors_),
        (search.query_pipeline_, BANK, search.encode_query(BANK)),
    ]
    for pipeline, given, expected in sides:
        found = to_torch(pipeline)(torch.from_numpy(given.astype(dtype)))
        assert found.numpy().dtype == dtype
        assert_allclose(found.numpy(), expected, atol=2e-6)
        assert_allclose(pipeline.transform(given.astype(dtype)), expected, atol=2e-6)


def test_documents_are_a_graph_of_onnx(search, tmp_path):
    pytest.importorskip("onnxscript")
    fitted, *_ = search
    # It is compared with the pipeline as it is written. That of queries has fewer steps.
    save_onnx(fitted.document_pipeline_, tmp_path / "document.onnx")
    assert (tmp_path / "document.onnx").stat().st_size > 0


def test_queries_are_a_folder_of_standard_modules(search, tmp_path):
    library = pytest.importorskip("sentence_transformers")
    fitted, documents, bank = search
    save_sentence_transformer(fitted.query_pipeline_, tmp_path / "queries")
    found = library.SentenceTransformer(str(tmp_path / "queries")).encode(bank)
    assert_allclose(found, fitted.encode_query(bank).dense, atol=1e-5)
    if fitted.hub_weight_ > 0:
        with pytest.raises(ValueError, match=r"hubs of a SearchEncoder.*hub_weight=0.*onnx"):
            save_sentence_transformer(fitted.document_pipeline_, tmp_path / "documents")
    means = SearchEncoder(fitted.encoder, hub_weight=0).fit(documents, queries=bank)
    save_sentence_transformer(means.document_pipeline_, tmp_path / "documents")
    found = library.SentenceTransformer(str(tmp_path / "documents")).encode(documents)
    assert_allclose(found, means.vectors_, atol=1e-5)


def test_an_index_of_faiss_by_inner_product_finds_the_same(tmp_path):
    faiss = pytest.importorskip("faiss")
    index = faiss.IndexFlatIP(SEARCH.vectors_.shape[1])
    index.add(SEARCH.vectors_)
    faiss.write_index(index, str(tmp_path / "index"))
    index = faiss.read_index(str(tmp_path / "index"))
    scores, rows = index.search(SEARCH.encode_query(BANK), 5)
    expected_scores, expected = SEARCH.kneighbors(BANK, 5)
    assert_array_equal(rows, expected)
    assert_allclose(scores, expected_scores, atol=1e-6)
