"""Forks, workers and threads: no deadlock, no warning, the same vectors."""

import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import joblib
import numpy as np
import pytest
from numpy.testing import assert_array_equal
from sklearn.base import clone
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline

from skcalib import BertEncoder, BiEncoder, VectorStore, Whitening

# The tiny BERT knows fifty words.
pytestmark = pytest.mark.filterwarnings("ignore:.*unknown to this model")

FORK = """
import multiprocessing, sys, numpy as np
from skcalib import BertEncoder
model, *texts = sys.argv[1:]
encoder = BertEncoder(model).fit(texts)
expected = encoder.transform(texts)
context = multiprocessing.get_context("fork")
with context.Pool(2) as pool:
    for vectors in pool.map_async(encoder.transform, [texts] * 4).get(timeout=600):
        assert np.allclose(vectors, expected, atol=1e-5)
"""


def run(command):
    """Run Python; return what it told of errors and warnings."""
    command = [sys.executable, *command]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr
    return done.stderr


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
def test_fork_after_encoding_neither_hangs_nor_warns(tiny_bert, texts):
    texts = [f"{t} {w}" for t in texts[:6] for w in texts]
    assert "TOKENIZERS_PARALLELISM" not in run(["-c", FORK, tiny_bert, *texts])


def is_encoded_once(folder, model, texts):
    """Whether a store has these texts, and is as large as where one process encodes them."""
    store, alone = VectorStore(folder), VectorStore(f"{folder}-alone")
    BertEncoder(model, memory=alone, batch_size=4).fit_transform(texts)
    return len(store) == len(alone) and store.n_bytes < 1.1 * alone.n_bytes


def search_on(folder, model, texts):
    """Search over poolings on pairs of texts with one store."""
    pairs = np.array(list(zip(texts, texts[5:] + texts[:5], strict=True)))
    encoder = BertEncoder(model, memory=folder, batch_size=4)
    search = GridSearchCV(
        BiEncoder(make_pipeline(encoder, Whitening(shrinkage=0.5))),
        {"encoder__bertencoder__pooling": ["cls", "mean", "max"]},
        cv=3,
        error_score="raise",
    )
    return search, pairs, np.arange(len(pairs)) % 5


@pytest.mark.parametrize("backend", ["loky", "threading"])
def test_parallel_search_encodes_once_and_equals_a_serial(tiny_bert, texts, tmp_path, backend):
    texts = [f"{text} {i}" for text in texts for i in range(20)]
    search, pairs, y = search_on(tmp_path, tiny_bert, texts)
    with joblib.parallel_config(backend=backend):
        parallel = clone(search).set_params(n_jobs=2).fit(pairs, y)
    assert is_encoded_once(tmp_path, tiny_bert, texts)
    serial = search.fit(pairs, y)
    assert_array_equal(
        parallel.cv_results_["mean_test_score"], serial.cv_results_["mean_test_score"]
    )
    assert_array_equal(parallel.predict(pairs), serial.predict(pairs))


@pytest.mark.parametrize("backend", ["loky", "threading"])
def test_workers_share_the_texts_of_one_call(tiny_bert, texts, tmp_path, backend):
    """Started on the same texts at the same time, each text is run by one of them."""
    texts = [f"{text} {i}" for text in texts for i in range(40)]
    encoder = BertEncoder(tiny_bert, memory=tmp_path, batch_size=4).fit(texts)
    # Two, as in the search before, whose processes have imported torch already.
    with joblib.parallel_config(backend=backend, n_jobs=2):
        jobs = (joblib.delayed(encoder.transform)(texts) for _ in range(2))
        vectors = joblib.Parallel()(jobs)
    assert_array_equal(vectors, vectors[:1] * 2)
    assert is_encoded_once(tmp_path, tiny_bert, texts)


@pytest.mark.parametrize("memory", [False, True])
def test_threads_may_share_an_encoder(tiny_bert, texts, tmp_path, memory):
    encoder = BertEncoder(tiny_bert, memory=tmp_path if memory else None).fit(texts)
    expected = encoder.transform(texts)
    with ThreadPoolExecutor(8) as pool:
        for vectors in pool.map(encoder.transform, [texts] * 16, timeout=600):
            assert_array_equal(vectors, expected)
