"""Both sides of a SearchEncoder in other libraries."""

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from skcalib import BertEncoder, SearchEncoder
from skcalib.export import save_onnx, save_sentence_transformer, to_torch

rng = np.random.default_rng(0)
DOCUMENTS = rng.normal(size=(200, 12))
BANK = DOCUMENTS[:80] * (np.arange(12) < 6) + 0.1 * rng.normal(size=(80, 12)) - 0.3
SEARCH = SearchEncoder().fit(DOCUMENTS, queries=BANK)


@pytest.fixture
def search(tiny_bert, texts):
    """A search, its documents and its bank."""
    documents = [*dict.fromkeys(texts)]
    bank = [" ".join(text.split()[:3]) for text in documents]
    return SearchEncoder(BertEncoder(tiny_bert)).fit(documents, queries=bank), documents, bank


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_torch_has_the_vectors_of_both_sides(dtype):
    torch = pytest.importorskip("torch")
    sides = [
        (SEARCH.document_pipeline_, DOCUMENTS, SEARCH.vectors_),
        (SEARCH.query_pipeline_, BANK, SEARCH.encode_query(BANK)),
    ]
    for pipeline, given, expected in sides:
        found = to_torch(pipeline)(torch.from_numpy(given.astype(dtype)))
        assert found.numpy().dtype == dtype
        assert_allclose(found.numpy(), expected, atol=2e-6)
        assert_allclose(pipeline.transform(given.astype(dtype)), expected, atol=2e-6)


def test_documents_are_a_graph_of_onnx(search, tmp_path):
    pytest.importorskip("onnxscript")
    fitted, *_ = search
    # It is compared with the pipeline as it is written.
    save_onnx(fitted.document_pipeline_, tmp_path / "document.onnx")
    assert (tmp_path / "document.onnx").stat().st_size > 0


def test_both_sides_are_folders_of_standard_modules(search, tmp_path):
    library = pytest.importorskip("sentence_transformers")
    fitted, documents, bank = search
    for name, pipeline, texts, expected in (
        ("queries", fitted.query_pipeline_, bank, fitted.encode_query(bank).dense),
        ("documents", fitted.document_pipeline_, documents, fitted.vectors_),
    ):
        save_sentence_transformer(pipeline, tmp_path / name)
        found = library.SentenceTransformer(str(tmp_path / name)).encode(texts)
        assert_allclose(found, expected, atol=1e-5)


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
