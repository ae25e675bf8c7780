"""Another process, forks, workers and threads: no deadlock, the same vectors."""

import multiprocessing
import pickle
import sqlite3
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing

import joblib
import numpy as np
import pytest
import torch
from numpy.testing import assert_array_equal
from sklearn.base import clone
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline

from skcalib import (
    BertEncoder,
    BiEncoder,
    NormalizingFlow,
    VectorStore,
    Whitening,
    clear_caches,
)

# The tiny BERT knows fifty words.
pytestmark = pytest.mark.filterwarnings("ignore:.*unknown to this model")

OTHER = """
import multiprocessing, joblib, numpy as np, torch
from sklearn.base import clone
from skcalib.process.caches import VECTORS
made = joblib.load(folder + "/made")
found = [estimator.transform(given) for estimator, given in made]
if "fork" in multiprocessing.get_all_start_methods():
    encoder, texts = made[1]
    texts = [f"{text} {word} {i}" for text in texts[:6] for word in texts for i in range(20)]
    n_threads = torch.get_num_threads()
    torch.set_num_threads(2)  # they do not survive a fork
    expected = encoder.transform(texts)
    VECTORS.clear()  # so that the forks run the model
    fork = multiprocessing.get_context("fork")
    flow, X = made[3]
    X, before = np.repeat(X, 200, axis=0), clone(flow)
    wanted = flow.transform(X), before.fit_transform(X)
    with fork.Pool(2) as pool:  # whose workers load no model
        for estimator, Z in zip([flow, before], wanted):
            for found_Z in pool.map_async(estimator.transform, [X] * 2).get(timeout=600):
                assert np.allclose(found_Z, Z, atol=1e-5)
    with fork.Pool(2) as pool:
        for vectors in pool.map_async(encoder.transform, [texts] * 4).get(timeout=600):
            assert np.allclose(vectors, expected, atol=1e-5)
    torch.set_num_threads(n_threads)
call, torch.nn.Module.__call__ = torch.nn.Module.__call__, None  # so that no model runs
try:
    [(stored, texts)] = joblib.load(folder + "/stored")
    stored.set_params(memory=folder + "/store")  # which a pickle leaves behind
    found.append(stored.transform(texts))
finally:
    torch.nn.Module.__call__ = call
joblib.dump(found, folder + "/found")
"""


def test_another_process_gives_the_same_vectors_and_forks_after_encoding(
    tiny_bert, texts, tmp_path
):
    """Of a store without running the model; forks do not hang."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(60, 5)) @ rng.normal(size=(5, 5)) + 3
    whitening = Whitening(n_components=3, shrinkage=0.1).fit(X)
    encoder = BertEncoder(tiny_bert, pooling="max", layers=(0, 2)).fit(texts)
    settings = {"max_epochs": 1, "random_state": 0, "device": "cpu"}
    flow = NormalizingFlow(**settings).fit(X)
    pipeline = make_pipeline(encoder, Whitening(noise=1.0)).fit(texts)
    stored = BertEncoder(tiny_bert, memory=tmp_path / "store").fit(texts)
    made = [(whitening, X), (encoder, texts), (pipeline, texts), (flow, X), (stored, texts)]
    expected = [estimator.transform(given) for estimator, given in made]
    flow.set_params(depth=7)  # which the fitted flow does not heed
    assert b"torch" not in pickle.dumps(flow)
    assert len(pickle.dumps(encoder)) < 2000
    joblib.dump(made[:4], tmp_path / "made")
    joblib.dump(made[4:], tmp_path / "stored")
    # In a worker of joblib, which the searches below use, too: to import torch takes seconds.
    run = joblib.delayed(exec)(OTHER, {"folder": str(tmp_path)})
    joblib.Parallel(n_jobs=2, backend="loky")([run])
    found = joblib.load(tmp_path / "found")
    for i, (vectors, others) in enumerate(zip(found, expected, strict=True)):
        # The number of threads of a process may turn the last bit of a model's vectors.
        np.testing.assert_allclose(vectors, others, rtol=0, atol=1e-5 * (i in (1, 2)))


def is_encoded_once(folder, model, texts):
    """Whether a store has these texts, and no vector more than where one process encodes."""
    sizes = "SELECT sum(length(data)) FROM arrays"
    alone, n_bytes = f"{folder}-alone", []
    BertEncoder(model, memory=alone).fit_transform(texts)
    for place in (folder, alone):
        with closing(sqlite3.connect(f"{place}/skcalib-vectors.sqlite")) as db:
            n_bytes += db.execute(sizes).fetchone()
    return len(VectorStore(folder)) == len(VectorStore(alone)) and n_bytes[0] == n_bytes[1]


def search_on(folder, model, texts):
    """Search over poolings on pairs of texts with one store."""
    pairs = np.array(list(zip(texts, texts[5:] + texts[:5], strict=True)))
    encoder = BertEncoder(model, memory=folder)
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
    encoder = BertEncoder(tiny_bert, memory=tmp_path)  # a fitted one leaves it
    # Two, as in the search before, whose processes have imported torch already.
    with joblib.parallel_config(backend=backend, n_jobs=2):
        jobs = (joblib.delayed(encoder.fit_transform)(texts) for _ in range(2))
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


@pytest.mark.skipif(
    "fork" not in multiprocessing.get_all_start_methods(), reason="no forks here"
)
@pytest.mark.filterwarnings("ignore:.*multi-threaded:DeprecationWarning")
def test_forks_while_threads_encode_and_fit(tiny_bert, texts):
    """No child inherits a lock that another thread held, or a pass that it had begun."""
    encoder = BertEncoder(tiny_bert).fit(texts)
    X = np.random.default_rng(0).normal(size=(60, 9))
    expected, whitened = encoder.transform(texts), Whitening().fit_transform(X)
    n_threads, over, started = torch.get_num_threads(), threading.Event(), threading.Barrier(4)

    def busy(number, work):
        started.wait(60)
        while not over.is_set():
            work(number)
            number += 3

    def encode(number):
        encoder.transform([f"{text} {number}" for text in texts])

    def fit(number):
        Whitening(power="auto").fit(X + number)

    def child():
        for _ in range(3):
            clear_caches()
            found = encoder.transform(texts), Whitening().fit_transform(X)
            np.testing.assert_allclose(found[0], expected, atol=1e-5)
            np.testing.assert_allclose(found[1], whitened, atol=1e-8)

    torch.set_num_threads(1)
    try:
        with ThreadPoolExecutor(3) as pool:
            for number, work in enumerate([encode, encode, fit]):
                pool.submit(busy, number, work)
            started.wait(60)
            try:
                for _ in range(4):
                    process = multiprocessing.get_context("fork").Process(target=child)
                    process.start()
                    process.join(60)
                    code = process.exitcode
                    process.kill()
                    assert code == 0
            finally:
                over.set()
    finally:
        torch.set_num_threads(n_threads)
