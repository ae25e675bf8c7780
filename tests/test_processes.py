"""Forks, workers and threads: no deadlock, no warning, the same vectors."""

import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import joblib
import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline

from skcalib import BertEncoder, BiEncoder, Whitening

FORK = """
import multiprocessing, sys, numpy as np
from skcalib import BertEncoder
model, *texts = sys.argv[1:]
encoder = BertEncoder(model).fit(texts)
expected = encoder.transform(texts)
context = multiprocessing.get_context("fork")
with context.Pool(2) as pool:
    for vectors in pool.map_async(encoder.transform, [texts] * 4).get(timeout=60):
        assert np.allclose(vectors, expected, atol=1e-5)
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
def test_fork_after_encoding_neither_hangs_nor_warns(tiny_bert, texts):
    environment = {k: v for k, v in os.environ.items() if k != "TOKENIZERS_PARALLELISM"}
    texts = [f"{t} {w}" for t in texts for w in texts]
    done = subprocess.run(
        [sys.executable, "-c", FORK, tiny_bert, *texts],
        env=environment,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    assert "TOKENIZERS_PARALLELISM" not in done.stderr


@pytest.mark.parametrize("backend", ["loky", "threading"])
def test_parallel_search_equals_the_serial_one(tiny_bert, texts, tmp_path, backend):
    pairs = np.array(list(zip(texts, texts[5:] + texts[:5], strict=True)))
    y = np.arange(len(pairs)) % 5
    pipeline = make_pipeline(BertEncoder(tiny_bert, memory=tmp_path), Whitening(shrinkage=0.5))
    grid = {"encoder__bertencoder__pooling": ["cls", "mean", "max"]}
    with joblib.parallel_config(backend=backend):
        search = GridSearchCV(BiEncoder(pipeline), grid, cv=2, n_jobs=2).fit(pairs, y)
    serial = GridSearchCV(BiEncoder(pipeline), grid, cv=2).fit(pairs, y)
    assert_allclose(
        search.cv_results_["mean_test_score"], serial.cv_results_["mean_test_score"], atol=1e-6
    )


@pytest.mark.parametrize("memory", [False, True])
def test_threads_may_share_an_encoder(tiny_bert, texts, tmp_path, memory):
    encoder = BertEncoder(tiny_bert, memory=tmp_path if memory else None).fit(texts)
    expected = encoder.transform(texts)
    with ThreadPoolExecutor(8) as pool:
        for vectors in pool.map(encoder.transform, [texts] * 16, timeout=60):
            assert_array_equal(vectors, expected)


def test_environment_is_left_as_it_was(tiny_bert, texts, monkeypatch):
    for value in (None, "true"):
        monkeypatch.delenv("TOKENIZERS_PARALLELISM", raising=False)
        if value:
            monkeypatch.setenv("TOKENIZERS_PARALLELISM", value)
        BertEncoder(tiny_bert).fit_transform(texts)
        assert os.environ.get("TOKENIZERS_PARALLELISM") == value
