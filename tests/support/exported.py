"""Models that other libraries load from exports, and how near their vectors must be."""

import numpy as np
import pytest
from numpy.testing import assert_allclose

from skcalib.export import save_sentence_transformer


def exported(pipeline, folder, save=save_sentence_transformer, **params):
    """Export a pipeline to a new folder, and load it from there."""
    package = pytest.importorskip("sentence_transformers", minversion="6")
    save(pipeline, folder / "model", **params)
    return package.SentenceTransformer(
        str(folder / "model"), device="cpu", local_files_only=True
    )


def assert_equal_vectors(found, expected):
    """Equal to 1e-5 of a typical entry, the root mean square."""
    typical = np.sqrt(np.mean(np.square(expected, dtype=np.float64)))
    assert found.dtype == np.float32
    assert_allclose(found, expected, rtol=0, atol=1e-5 * typical)
