"""Forks, workers and threads: no deadlock, no warning, the same vectors."""

import os
import sqlite3
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing

import joblib
import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.base import clone
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline

from skcalib import BertEncoder, BiEncoder, VectorStore, Whitening
from skcalib._store import claims

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


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
def test_fork_after_encoding_neither_hangs_nor_warns(tiny_bert, texts):
    environment = {k: v for k, v in os.environ.items() if k != "TOKENIZERS_PARALLELISM"}
    texts = [f"{t} {w}" for t in texts for w in texts]
    done = subprocess.run(
        [sys.executable, "-c", FORK, tiny_bert, *texts],
        env=environment,
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert done.returncode == 0, done.stderr
    assert "TOKENIZERS_PARALLELISM" not in done.stderr


def n_encoded(folder):
    """Count texts that were put through a model for a store, in whatever process."""
    with closing(sqlite3.connect(VectorStore(folder)._path)) as db:
        return db.execute("SELECT sum(length(hashes)) FROM blocks").fetchone()[0] // 16


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
def test_parallel_search_encodes_once_and_equals_the_serial_one(
    tiny_bert, texts, tmp_path, backend
):
    texts = [f"{text} {i}" for text in texts for i in range(20)]
    search, pairs, y = search_on(tmp_path, tiny_bert, texts)
    with joblib.parallel_config(backend=backend):
        parallel = clone(search).set_params(n_jobs=2).fit(pairs, y)
    assert n_encoded(tmp_path) == len(set(texts))
    serial = search.fit(pairs, y)
    assert_array_equal(
        parallel.cv_results_["mean_test_score"], serial.cv_results_["mean_test_score"]
    )
    assert_array_equal(parallel.predict(pairs), serial.predict(pairs))


DASK = """
import sys, warnings, joblib, numpy as np
sys.path.insert(0, sys.argv[1])
from test_processes import n_encoded, search_on
from dask.distributed import Client, LocalCluster
if __name__ == "__main__":
    folder, model, *texts = sys.argv[2:]
    search, pairs, y = search_on(folder, model, texts)
    with (
        LocalCluster(2, threads_per_worker=1, dashboard_address=None) as cluster,
        Client(cluster) as client,
        joblib.parallel_config(backend="dask"),
    ):
        scores = search.set_params(n_jobs=2).fit(pairs, y).cv_results_["mean_test_score"]
    assert n_encoded(folder) == len(set(texts))
    serial = search.set_params(n_jobs=None).fit(pairs, y).cv_results_["mean_test_score"]
    assert np.array_equal(scores, serial), (scores, serial)
"""


def test_search_on_a_dask_cluster_encodes_once_and_equals_the_serial_one(
    tiny_bert, texts, tmp_path
):
    pytest.importorskip("distributed")
    script = tmp_path / "search.py"  # a file, so that spawned workers can import it
    script.write_text(DASK)
    here = os.path.dirname(__file__)
    done = subprocess.run(
        [sys.executable, str(script), here, str(tmp_path / "store"), tiny_bert, *texts],
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("backend", ["loky", "threading"])
def test_workers_share_the_texts_of_one_call(tiny_bert, texts, tmp_path, backend):
    """Started on the same texts at the same time, each text is run by one of them."""
    texts = [f"{text} {i}" for text in texts for i in range(40)]
    encoder = BertEncoder(tiny_bert, memory=tmp_path, batch_size=4).fit(texts)
    with joblib.parallel_config(backend=backend, n_jobs=3):
        first, *others = joblib.Parallel()(
            joblib.delayed(encoder.transform)(texts) for _ in range(3)
        )
    for other in others:
        assert_array_equal(other, first)
    assert n_encoded(tmp_path) == len(set(texts))


def test_a_worker_that_hangs_is_not_waited_for(tiny_bert, texts, tmp_path, monkeypatch):
    encoder = BertEncoder(tiny_bert, memory=tmp_path).fit(texts)
    monkeypatch.setattr(claims, "PATIENCE", 0.5)
    lock_files = [tmp_path / f"skcalib-vectors-{n:02}.lock" for n in range(claims.N_FILES)]
    with claims.hold(lock_files, timeout=0):
        started = time.monotonic()
        vectors = encoder.transform(texts)
        assert 0.5 < time.monotonic() - started < 300
    assert_allclose(vectors, BertEncoder(tiny_bert).fit_transform(texts), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("memory", [False, True])
def test_threads_may_share_an_encoder(tiny_bert, texts, tmp_path, memory):
    encoder = BertEncoder(tiny_bert, memory=tmp_path if memory else None).fit(texts)
    expected = encoder.transform(texts)
    with ThreadPoolExecutor(8) as pool:
        for vectors in pool.map(encoder.transform, [texts] * 16, timeout=600):
            assert_array_equal(vectors, expected)
