"""Acceptance on real embeddings: benchmarks, raw and whitened layers of MiniLM."""

import numpy as np
import pytest
from sklearn.pipeline import make_pipeline

from skcalib import BertEncoder, BiEncoder, VectorStore, Whitening
from skcalib.datasets import fetch_sts
from skcalib.metrics import spearman

TASKS, PAIRS = ["stsb", "sts13"], 750  # of seven, and of some 1,400, for the sake of time
FEATURES = {
    "mean(0)": ("mean", 0),
    "mean(1)": ("mean", 1),
    "mean(3)": ("mean", 3),
    "cls(3)": ("cls", 3),
    "mean(1, 6)": ("mean", (1, 6)),
    "mean(6)": ("mean", 6),
}
# All that `power="auto"` must do well on, with raw vectors to compare with.
NOISY = {f"{p}({i})": (p, i) for p in ("mean", "zipf") for i in (0, 3, 6)}
NOISY["cls(3)"] = FEATURES["cls(3)"]

pytestmark = pytest.mark.filterwarnings("ignore:There are fewer than 5 samples")


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    """A store of all features, so that each sentence goes through the model once.

    This takes some 20 s: only real sentences show what calibration is worth.
    """
    slots = {"layers": (0, 1, 3, 6), "pooling": ("mean", "cls", "zipf")}
    return VectorStore(tmp_path_factory.mktemp("vectors"), **slots)


@pytest.fixture(scope="module")
def embed(minilm, store):
    """Return a function from texts to their features, all by one forward pass."""

    def features(texts):
        return {
            name: BertEncoder(
                minilm, pooling=pooling, layers=layers, memory=store
            ).fit_transform(texts)
            for name, (pooling, layers) in (FEATURES | NOISY).items()
        }

    return features


@pytest.fixture(scope="module")
def embedded(sts_home, embed):
    """Features of the distinct sentences of some pairs of both benchmarks, and grades."""
    return {task: pairs_of(*some_pairs(sts_home, task), embed) for task in TASKS}


@pytest.fixture(scope="module")
def train(sts_home, embed):
    """Features of 500 sentences of STS-B's training pairs, in random order."""
    texts = np.unique(fetch_sts("stsb", "train", data_home=sts_home).data.astype(str))
    return embed(np.random.default_rng(0).permutation(texts)[:500].tolist())


def some_pairs(sts_home, task):
    """Pairs of a benchmark, in random order, and their grades."""
    pairs, grades = fetch_sts(task, data_home=sts_home, return_X_y=True)
    some = np.random.default_rng(0).permutation(len(pairs))[:PAIRS]
    return pairs[some], grades[some]


def pairs_of(pairs, grades, embed):
    """Features, rows of left and right sentences, and grades."""
    texts, inverse = np.unique(pairs.T.astype(str), return_inverse=True)
    left, right = inverse.reshape(2, -1)
    return embed(texts), left, right, grades


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
    X = vectors[name]
    assert X.dtype == np.float32
    reference = float64_reference(X)
    whitening = Whitening().fit(X)
    assert whitening.n_components_ == reference.shape[1]
    for k in (None, 256):
        ours = score(Whitening(k).fit_transform(X), *pairs)
        assert abs(ours - score(reference[:, :k], *pairs)) < 0.05  # points; 0.3 is the promise


def test_whitening_lifts_raw_layers_on_average(embedded):
    def average(transform, name):
        scores = [score(transform(v[name]), *pairs) for v, *pairs in embedded.values()]
        return np.mean(scores)

    for name, raw, whitened in (
        ("mean(0)", 57.9, 73.4),
        ("mean(1)", 58.9, 72.8),
        ("mean(3)", 60.6, 70.3),
    ):
        assert average(lambda X: X, name) == pytest.approx(raw, abs=0.2)
        assert average(Whitening().fit_transform, name) == pytest.approx(whitened, abs=0.2)


@pytest.mark.parametrize(
    ("params", "raw", "calibrated"),
    [
        ({"layers": 0}, 56.6, 71.3),
        ({"layers": 0, "pooling": "zipf"}, 72.4, 70.6),
        ({"layers": 3, "pooling": "cls"}, 41.8, 70.0),
    ],
)
def test_pipeline_on_stsb(sts_home, minilm, store, params, raw, calibrated):
    pairs, grades = some_pairs(sts_home, "stsb")
    encoder = BertEncoder(minilm, memory=store, **params)
    assert 100 * BiEncoder(encoder).fit(pairs).score(pairs, grades) == pytest.approx(
        raw, abs=0.2
    )
    pipeline = make_pipeline(encoder, Whitening())
    score = 100 * BiEncoder(pipeline).fit(pairs).score(pairs, grades)
    assert score == pytest.approx(calibrated, abs=0.5)


@pytest.mark.parametrize("name", NOISY)
def test_automatic_power_never_hurts(embedded, train, name):
    whitening = Whitening(power="auto").fit(train[name])
    raw, whitened = (
        np.mean([score(f(v[name]), *pairs) for v, *pairs in embedded.values()])
        for f in (np.array, whitening.transform)
    )
    assert whitened > raw


@pytest.mark.parametrize("n", [50, 200, 500])
def test_automatic_power_takes_few_samples(embedded, train, n):
    vectors, *pairs = embedded["stsb"]
    raw = score(vectors["mean(6)"], *pairs)
    whitening = Whitening(power="auto").fit(train["mean(6)"][:n])
    whitened = score(whitening.transform(vectors["mean(6)"]), *pairs)
    assert whitened > raw - 0.5  # points; 1 is the promise
