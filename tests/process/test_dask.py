"""Searches and fits over a cluster of dask."""

import gc
import warnings

import joblib
import numpy as np
import pytest
from loading import load
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline

from skcalib import BertEncoder, BiEncoder, VectorStore, Whitening

dask = pytest.importorskip("dask")
da = pytest.importorskip("dask.array")
distributed = pytest.importorskip("distributed")
pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning")


@pytest.fixture(scope="module")
def cluster():
    """A process of two threads, which imports torch and transformers: some 8 s.

    Each test process may make one, so the system chooses the port of the dashboard.
    """
    options = {"n_workers": 1, "threads_per_worker": 2, "dashboard_address": ":0"}
    with distributed.LocalCluster(**options) as one, distributed.Client(one) as client:
        yield client
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)
        gc.collect()  # what dask leaves open is closed here, not in the midst of a later test


def test_search_on_the_cluster_equals_the_serial_one(tiny_bert, texts, cluster, tmp_path):
    pairs = np.array(list(zip(texts, texts[5:] + texts[:5], strict=True)))
    y = np.arange(len(pairs)) % 5
    pipeline = make_pipeline(BertEncoder(tiny_bert, memory=tmp_path), Whitening(shrinkage=0.5))
    grid = {"encoder__bertencoder__pooling": ["cls", "mean"]}
    search = GridSearchCV(BiEncoder(pipeline), grid, cv=2, n_jobs=2)
    with joblib.parallel_config(backend="dask", client=cluster):
        scores = search.fit(pairs, y).cv_results_["mean_test_score"]
    assert len(VectorStore(tmp_path)) == len(set(texts))
    serial = GridSearchCV(BiEncoder(pipeline), grid, cv=2).fit(pairs, y)
    assert_array_equal(scores, serial.cv_results_["mean_test_score"])


def test_a_whitening_is_the_same_even_if_a_worker_dies(cluster, tmp_path):
    X = np.random.default_rng(0).normal(size=(1000, 8)) @ np.diag(np.arange(1, 9)) + 50
    # What is defined here travels to the workers by value.

    def slow(block, deadly):
        """A worker dies when the first comes by the deadly block; another takes its place."""
        import os
        import time

        time.sleep(0.02)
        if deadly and not (tmp_path / "died").exists():
            (tmp_path / "died").touch()
            os._exit(1)
        return block

    def source(deadly):
        parts = enumerate(np.array_split(X, 10))
        blocks = [(dask.delayed(slow)(part, deadly and i == 6), part) for i, part in parts]
        return da.concatenate([da.from_delayed(b, p.shape, p.dtype) for b, p in blocks])

    with cluster.as_current():
        whitening = Whitening(4).fit(source(True))
        mapped = source(False).map_blocks(whitening.transform, dtype=X.dtype, chunks=(100, 4))
        Z = mapped.compute()
    reference = Whitening(4).fit(X)
    assert (tmp_path / "died").exists()
    assert whitening.n_samples_seen_ == 1000
    covariances = (fitted.moments_.covariance() for fitted in (whitening, reference))
    assert_allclose(*covariances, rtol=1e-10)
    assert_allclose(Z, reference.transform(X), rtol=1e-5, atol=1e-5)


@pytest.mark.filterwarnings(
    "ignore:There are fewer than 5 samples", "ignore:.*unknown to this model"
)
@pytest.mark.parametrize("way", ["by_joblib", "by_dask", "by_ray"])
def test_each_way_over_several_machines_equals_one_fit(tiny_bert, texts, cluster, way):
    if way == "by_ray":
        pytest.importorskip("ray")
    encoder = BertEncoder(tiny_bert).fit(texts)
    whole = Whitening(power="auto").fit(encoder.transform(texts))
    merged = getattr(load("benchmarks/cluster.py"), way)(encoder, [texts[:7], texts[7:]])
    assert_allclose(
        merged.transform(whole.mean_[None] + 1),
        whole.transform(whole.mean_[None] + 1),
        rtol=1e-4,
        atol=1e-5,
    )
