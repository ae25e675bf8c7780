"""Ctrl-C at any moment: what was being done is undone or done, and all goes on."""

import os
import signal
import subprocess
import sys
import threading
import time

import numpy as np
import pytest

from skcalib import BertEncoder
from skcalib._machine.threads import in_threads
from skcalib._store.vectors import Vectors

posix = pytest.mark.skipif(os.name == "nt", reason="no signals to a thread")

SCRIPT = """
import random, signal, sys, time, warnings
import numpy as np, threadpoolctl, torch
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from skcalib import BertEncoder, BiEncoder, NormalizingFlow, VectorStore, Whitening
from skcalib._machine import threads

threads.ROWS_PER_THREAD = 2048
threadpoolctl.threadpool_limits(2, user_api="blas")  # two threads for the samples below
folder, model, *texts = sys.argv[1:]
signal.signal(signal.SIGALRM, signal.default_int_handler)  # what Ctrl-C does, on time
warnings.filterwarnings("error")
rng = np.random.default_rng(0)
X = rng.normal(size=(9000, 12)) @ rng.normal(size=(12, 12)) + 5
Y = X[::-1] * 2 + 1
pairs = np.array([(a, b) for a in texts for b in texts[:4]])

def whitening(memory=None):
    estimator = Whitening(shrinkage="auto", memory=memory).fit(X)
    return estimator, lambda: estimator.fit(Y), lambda: estimator.transform(Y[:50])

def cached():
    return whitening(folder)

def partial():
    # A batch counts or does not: 9000 samples or 18000.
    estimator = Whitening().fit(X)
    def act():
        Whitening.fit(estimator, X)
        estimator.partial_fit(Y)
    return estimator, act, lambda: estimator.transform(Y[:50])

def flow():
    estimator = NormalizingFlow(random_state=0).fit(X[:100])
    return estimator, lambda: estimator.fit(Y[:1000]), lambda: estimator.transform(Y[:50])

def encoder(memory=None):
    estimator = BertEncoder(model, memory=memory).fit(texts)
    return estimator, lambda: estimator.fit_transform(texts), lambda: estimator.transform(texts)

def kept():
    estimator, encode, look = encoder(folder)
    def act():
        VectorStore(folder).clear()
        encode()
    return estimator, act, look

def search():
    pipeline = make_pipeline(BertEncoder(model, memory=folder), Whitening(shrinkage=0.5))
    grid = {"encoder__bertencoder__pooling": ["cls", "mean"]}
    estimator = GridSearchCV(BiEncoder(pipeline), grid, cv=2, error_score="raise")
    y = np.arange(len(pairs)) % 5
    def act():
        VectorStore(folder).clear()
        estimator.fit(pairs, y)
    return estimator, act, lambda: estimator.predict(pairs)

def usable(kind):
    estimator, act, look = kind()
    state = lambda: (
        [lib["num_threads"] for lib in threadpoolctl.threadpool_info()],
        torch.get_num_threads(),
    )
    before = state()
    act()
    started = time.perf_counter()
    act()
    duration = time.perf_counter() - started
    expected = look()
    interrupts = trials = 0
    while interrupts < 15:
        trials += 1
        assert trials < 500, interrupts
        try:
            started = time.perf_counter()
            signal.setitimer(signal.ITIMER_REAL, random.uniform(1e-5, 1.1 * duration))
            act()
            signal.setitimer(signal.ITIMER_REAL, 0)
            duration = min(duration, time.perf_counter() - started)
        except KeyboardInterrupt:
            interrupts += 1
        assert state() == before
        try:
            found = look()
        except NotFittedError:
            act()  # and then it can be fitted
            found = look()
        if kind is not partial:
            assert np.allclose(found, expected, rtol=1e-5, atol=1e-6)
    act()
    assert np.allclose(look(), expected, rtol=1e-5, atol=1e-6)

random.seed(0)
for kind in (whitening, cached, partial, flow, encoder, kept, search):
    print(kind.__name__, flush=True)
    usable(kind)
"""


@posix
def test_ctrl_c_at_any_moment_leaves_a_usable_state(tiny_bert, texts, tmp_path):
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, str(tmp_path), tiny_bert, *texts],
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert done.returncode == 0, done.stdout + done.stderr


@posix
def test_an_interrupt_waits_for_what_must_not_be_broken_into():
    ended = []

    def interrupted():
        signal.pthread_kill(threading.main_thread().ident, signal.SIGINT)
        time.sleep(0.2)
        ended.append(threading.current_thread() is threading.main_thread())

    # A process that was started in the background may ignore Ctrl-C.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with pytest.raises(KeyboardInterrupt):
            in_threads([interrupted])
    finally:
        signal.signal(signal.SIGINT, before)
    assert ended == [False]


def test_jobs_in_threads_return_and_raise_in_the_callers_context():
    with np.errstate(divide="raise"), pytest.raises(FloatingPointError):
        in_threads([lambda: np.divide(1.0, np.zeros(2))])
    assert in_threads([lambda: 1, lambda: 2]) == [1, 2]


def test_a_job_whose_thread_starts_after_the_interrupt_never_runs(monkeypatch):
    def start_late(run, args):
        started.append(run)
        raise KeyboardInterrupt

    started, ran = [], []
    with monkeypatch.context() as patch:
        patch.setattr("skcalib._machine.threads._thread.start_new_thread", start_late)
        with pytest.raises(KeyboardInterrupt):
            in_threads([lambda: ran.append(True)])
    (run,) = started
    run()
    assert not ran


@posix
def test_claims_are_given_up_while_the_traceback_is_kept(
    tiny_bert, texts, tmp_path, monkeypatch
):
    # As interactive shells keep the last one, and with it every frame and its generators.
    def interrupt(*args):
        raise KeyboardInterrupt

    encoder = BertEncoder(tiny_bert, memory=tmp_path).fit(texts)
    with monkeypatch.context() as patch:
        patch.setattr(Vectors, "write", interrupt)
        with pytest.raises(KeyboardInterrupt) as kept:
            encoder.transform(texts)
    assert kept.traceback
    started = time.monotonic()
    assert len(encoder.transform(texts)) == len(texts)
    assert (
        time.monotonic() - started < 300
    )  # and not the ten minutes that a claim is waited for
