"""Whether texts have changed: promised rates, and what is detected."""

import numpy as np
import pytest
from scipy.stats import kstest, rankdata
from sklearn.covariance import LedoitWolf
from sklearn.metrics import roc_auc_score

from skcalib import BertEncoder, Whitening
from skcalib.datasets import load_docstrings, load_questions
from skcalib.monitoring import shift


@pytest.fixture
def X():
    rng = np.random.default_rng(0)
    return rng.normal(size=(4000, 12)) @ rng.normal(size=(12, 12)) + 7


def test_the_distance_is_that_of_the_means(X):
    old, new = X[:2000], X[2000:] + 3
    delta = new.mean(axis=0) - old.mean(axis=0)
    square = delta @ delta / np.trace(np.cov(old.T)) - 2 / 2000
    assert shift(old, new).mean_distance == pytest.approx(np.sqrt(square))


@pytest.fixture(scope="module")
def sentences(minilm):
    """Vectors of MiniLM: sentences about scipy, and 100 questions of bank customers."""
    texts = [*load_docstrings().data[::4], *load_questions().data]
    return np.split(BertEncoder(minilm).fit_transform(texts), [-100])


def is_uniform(draw):
    rng = np.random.default_rng(0)
    p = [draw(rng) for _ in range(80)]  # the long test has more
    return kstest(p, "uniform").pvalue > 0.01 and np.mean(np.less(p, 0.05)) < 0.11


@pytest.mark.parametrize(("n_old", "n_new", "tails"), [(300, 30, None), (300, 100, 8)])
def test_p_values_of_no_change_are_uniform(n_old, n_new, tails):
    def draw(rng):
        X = rng.normal(size=(n_old + n_new, 20)) * np.linspace(3, 0.1, 20) + 1
        if tails:
            X *= rng.standard_t(tails, size=(len(X), 1))
        return shift(X[:n_old], X[n_old:]).p_value

    assert is_uniform(draw)


def test_p_values_of_no_change_are_uniform_on_real_vectors(sentences):
    def draw(rng):
        X = rng.permutation(sentences[0][:, :64])
        return shift(X[:50], X[50:120]).p_value

    assert is_uniform(draw)


def drawn(kind, n, rng):
    if kind == "groups":  # of very different sizes
        sizes = 1 / np.arange(1, 11)
        centers = np.random.default_rng(0).normal(size=(10, 8))
        return centers[rng.choice(10, n, p=sizes / sizes.sum())] + 0.1 * rng.normal(size=(n, 8))
    if kind == "pool":  # a few texts, some often, some rarely
        pool = np.random.default_rng(0).normal(size=(60, 8))
        return pool[rng.choice(60, n, p=1 / np.arange(1, 61) / np.sum(1 / np.arange(1, 61)))]
    X = rng.standard_t(2, size=(n, 8)) if kind == "heavy" else rng.normal(size=(n, 8))
    return np.repeat(X[: n // 4], 4, axis=0) if kind == "copied" else X


@pytest.mark.parametrize("kind", ["heavy", "groups", "copied", "pool", "fitted"])
def test_no_change_is_rarely_called_one(kind):
    found = []
    for seed in range(60):
        rng = np.random.default_rng(seed)
        X = drawn(kind, 60, rng)
        new = X[:30] if kind == "fitted" else drawn(kind, 40, rng)
        found.append(shift(X, new).p_value <= 0.05)
    assert np.mean(found) < 0.05 + 3 * np.sqrt(0.05 * 0.95 / 60)


def test_a_few_foreign_texts_are_seen(sentences):
    X, foreign = (np.random.default_rng(0).permutation(Z) for Z in sentences)
    assert shift(X[:200], X[200:]).p_value > 0.05
    mixed = shift(X[:200], np.vstack([X[200:], foreign[:28]]))
    assert mixed.is_shifted
    assert mixed.mean_distance < 0.15  # less than was called a shift before


@pytest.mark.parametrize("of", [1, 4])
def test_skewed_vectors_and_copies_are_no_error(of):
    """With a sample whose mean may be zero, by its own variance."""
    for seed in (4, 5, 8, 12):
        rng = np.random.default_rng(seed)
        old, new = (np.exp(rng.normal(size=(n, 16))) + 0.5 for n in (48 // of, 40 // of))
        old, new = (np.repeat(X, of, axis=0) for X in (old, new))
        assert shift(old, new).p_value > 0.0002


def test_mapped_vectors_are_shifted(sentences):
    X = np.random.default_rng(0).permutation(sentences[0])[:, :48]
    whitening = Whitening().fit(X[:250])
    assert not shift(X[:250], X[250:]).is_shifted
    assert shift(X[:250], whitening.transform(X[250:])).is_shifted


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        # As from an encoder that is stuck, even at the mean of the fit.
        (lambda X: np.tile(X.mean(axis=0), (30, 1)), "n_samples=30, 1 of them diff.* one vec"),
        (lambda X: X[:, :3], r"Incompatible dimension .* == 12 while .* == 3"),
        (lambda X: X * np.nan, "X contains NaN, first in row 0"),
    ],
)
def test_what_is_no_sample_of_these_vectors_is_refused(X, spoil, message):
    with pytest.raises(ValueError, match=message):
        shift(X, spoil(X))


def of_topics(rng, n, topics):
    """Texts of tight topics, by which the mean and the distances hardly change."""
    centers = np.random.default_rng(0).normal(size=(40, 30))
    return centers[rng.choice(topics, n)] + 0.4 * rng.normal(size=(n, 30))


@pytest.fixture(scope="module")
def topics():
    """Fitted vectors of thirty topics; new ones, of which the second half has ten others."""
    rng = np.random.default_rng(1)
    fitted, new = of_topics(rng, 400, range(30)), of_topics(rng, 200, range(30))
    is_new = (np.arange(200) >= 100) & (rng.random(200) < 0.5)
    new[is_new] = of_topics(rng, is_new.sum(), range(30, 40))
    return fitted, new, is_new


def test_new_topics_are_seen_by_their_neighbors(topics):
    fitted, new, is_new = topics
    found = shift(fitted, new)
    assert found.is_shifted
    assert roc_auc_score(is_new, found.novelty) > 0.95
    assert abs(found.start - 100) <= 10
    usual = shift(fitted, new[:100])
    assert not usual.is_shifted
    assert usual.start is None
    assert usual.novelty.mean() == pytest.approx(100 / 500, abs=0.05)


def test_small_topics_are_seen_where_means_and_distances_are_equal():
    """All of these 12 are; without walks, 2."""
    centers = np.random.default_rng(0).normal(size=(40, 30))
    centers /= np.linalg.norm(centers, axis=1, keepdims=True)
    centers = np.stack([centers, -centers])  # about the same mean, whatever the topics
    found = []
    for seed in range(12):
        rng = np.random.default_rng(seed)

        def of(n, *topics, rng=rng):
            vectors = centers[rng.choice(2, n), rng.integers(*topics, n)]
            return vectors + 0.15 * rng.normal(size=(n, 30))

        fitted, new = of(600, 0, 30), np.vstack([of(180, 0, 30), of(60, 30, 40)])
        found.append(shift(fitted, new).is_shifted)
    assert np.mean(found) >= 0.75


def test_all_new_vectors_start_at_once(topics):
    fitted, _, _ = topics
    new = of_topics(np.random.default_rng(2), 100, range(30, 40))
    found = shift(fitted, new)
    assert (found.is_shifted, found.start) == (True, 0)


def test_near_copies_within_a_sample_are_no_change():
    rng, found = np.random.default_rng(3), []
    for _ in range(20):
        X, new = rng.normal(size=(100, 30)), rng.normal(size=(60, 30))
        X, new = (np.repeat(Z[::2], 2, axis=0) for Z in (X, new))
        X, new = (Z + 0.1 * rng.normal(size=Z.shape) for Z in (X, new))
        found.append(shift(X, new).p_value)
    assert np.mean(np.less(found, 0.05)) < 0.2


def permuted(old, new, nearest=16):
    """Return the p-value of `shift` as its notes have it, with dense matrices."""
    both = np.vstack([old, new])
    centered, n, rng = both - both.mean(axis=0), len(both), np.random.default_rng(1)
    unit = centered / np.linalg.norm(centered, axis=1, keepdims=True)
    cosines, near = unit @ unit.T - 2 * np.eye(n), np.zeros((n, n))
    weights = 1 / np.arange(1, nearest + 1)
    for i in range(n):
        near[np.argsort(-cosines[i])[:nearest], i] = weights / weights.sum()
    links = near + near.T
    links /= np.sqrt(np.outer(links.sum(axis=0), links.sum(axis=0)))
    walks, distances = links + links @ links, LedoitWolf().fit(both).mahalanobis(both)
    is_new, statistics = np.arange(n) >= len(old), []
    for _ in range(3000):
        x = is_new - is_new.mean()
        statistics.append([((x @ centered) ** 2).sum(), abs(x @ distances), x @ walks @ x])
        is_new = rng.permutation(is_new)
    least = rankdata(-np.array(statistics), method="max", axis=0).min(axis=1)
    return np.mean(least <= least[0])


@pytest.mark.parametrize("seed", [3, 9, 13])
def test_the_p_value_is_that_of_three_statistics(seed):
    rng = np.random.default_rng(seed)
    topics = rng.normal(size=(13, 24))  # the last one is new
    old = topics[rng.integers(12, size=120)] + rng.normal(size=(120, 24))
    of_new = np.where(rng.random(60) < 0.12, 12, rng.integers(12, size=60))
    new = topics[of_new] + rng.normal(size=(60, 24))
    p_value = shift(old, new).p_value
    assert p_value == pytest.approx(permuted(old, new), abs=0.03)  # walks of one step: 0.1
