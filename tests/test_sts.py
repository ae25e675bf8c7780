"""Acceptance on real embeddings: seven benchmarks, raw and whitened layers of MiniLM."""

import numpy as np
import pytest
from sklearn.pipeline import make_pipeline

from skcalib import BertEncoder, BiEncoder, Whitening
from skcalib.datasets import fetch_sts
from skcalib.metrics import spearman

TASKS = ["stsb", "sickr", "sts12", "sts13", "sts14", "sts15", "sts16"]
FEATURES = {
    "mean(0)": ("mean", 0),
    "mean(1)": ("mean", 1),
    "mean(3)": ("mean", 3),
    "cls(3)": ("cls", 3),
    "mean(1, 6)": ("mean", (1, 6)),
    "mean(6)": ("mean", 6),
}


@pytest.fixture(scope="module")
def embedded(sts_home, minilm):
    """Vectors of the distinct sentences of every benchmark, one forward pass for all."""
    from skcalib._encoding import encode
    from skcalib._texts import distinct

    backbone = BertEncoder(minilm).fit([""])._backbone()
    tasks = {}
    for task in TASKS:
        sts = fetch_sts(task, data_home=sts_home)
        texts, inverse = distinct(sts.data.T.ravel())
        vectors = np.empty((len(texts), 7, 2, 384), dtype=np.float32)
        for batch in encode(
            backbone, texts, layers=range(7), primitives=["mean", "cls"], max_length=512
        ):
            vectors[batch.rows] = batch.vectors
        n = len(sts.target)
        tasks[task] = vectors, inverse[:n], inverse[n:], sts.target
    return tasks


def features(vectors, name):
    pooling, layers = FEATURES[name]
    layers = (layers,) if isinstance(layers, int) else layers
    return vectors[:, list(layers), 0 if pooling == "mean" else 1].mean(axis=1)


def score(Z, left, right, grades):
    Z = Z.astype(np.float64)
    Z /= np.linalg.norm(Z, axis=1, keepdims=True)
    return 100 * spearman(grades, np.sum(Z[left] * Z[right], axis=1))


def float64_reference(X):
    """Whiten by SVD in float64, to the rank of the sample."""
    X = X.astype(np.float64)
    u, s, _ = np.linalg.svd(X - X.mean(axis=0), full_matrices=False)
    return u[:, s**2 > s[0] ** 2 * X.shape[1] * np.finfo(np.float64).eps]


@pytest.mark.parametrize("name", FEATURES)
@pytest.mark.parametrize("task", TASKS)
def test_whitening_of_float32_scores_as_in_float64(embedded, task, name):
    vectors, *pairs = embedded[task]
    X = features(vectors, name)
    assert X.dtype == np.float32
    reference = float64_reference(X)
    whitening = Whitening().fit(X)
    assert whitening.n_components_ == reference.shape[1]
    for k in (None, 256):
        ours = score(Whitening(k).fit_transform(X), *pairs)
        assert abs(ours - score(reference[:, :k], *pairs)) < 0.05  # points; 0.3 is the promise


def test_whitening_lifts_raw_layers_on_average(embedded):
    def average(transform, name):
        scores = [
            score(transform(features(v, name)), *pairs) for v, *pairs in embedded.values()
        ]
        return np.mean(scores)

    for name, raw, whitened in (
        ("mean(0)", 57.9, 66.3),
        ("mean(1)", 58.0, 65.4),
        ("mean(3)", 58.6, 63.6),
    ):
        assert average(lambda X: X, name) == pytest.approx(raw, abs=1.0)
        # Fitted on distinct sentences here, on all there: a little above.
        assert average(Whitening().fit_transform, name) > whitened - 0.5


@pytest.mark.parametrize(
    ("params", "raw", "calibrated"),
    [
        ({"layers": 0}, 55.6, 71.4),
        ({"layers": 0, "pooling": "zipf"}, 70.6, 70.3),
        ({"layers": 3, "pooling": "cls"}, 39.0, 69.6),
    ],
)
def test_pipeline_on_stsb(sts_home, minilm, params, raw, calibrated):
    pairs, grades = fetch_sts("stsb", data_home=sts_home, return_X_y=True)
    encoder = BertEncoder(minilm, **params)
    assert 100 * BiEncoder(encoder).fit(pairs).score(pairs, grades) == pytest.approx(
        raw, abs=0.2
    )
    pipeline = make_pipeline(encoder, Whitening())
    score = 100 * BiEncoder(pipeline).fit(pairs).score(pairs, grades)
    assert score == pytest.approx(calibrated, abs=0.5)
