"""What stands behind the results: measures agree with the package's."""

import numpy as np
import pytest
from loading import load
from sklearn.metrics import ndcg_score

from skcalib import TextEncoder
from skcalib.evaluation import evaluate_labeled
from skcalib.metrics import spearman

measures = load("experiments/measures.py")


@pytest.fixture(scope="module")
def groups():
    """Vectors of five classes of unequal sizes, and their labels."""
    rng = np.random.default_rng(0)
    labels = np.repeat(np.arange(5), [40, 30, 12, 9, 9])
    return rng.normal(size=(100, 8)) + rng.normal(size=(5, 8))[labels], labels


def test_r_precision_is_that_of_evaluate_labeled(groups):
    vectors, labels = groups
    encoder = TextEncoder(lambda rows: vectors[[int(row) for row in rows]])
    rows = [str(i) for i in range(len(labels))]
    expected = evaluate_labeled(encoder, rows, labels, scores=["R-precision"]).scores[0]
    found = measures.of_groups(vectors, measures.codes_of(labels))
    assert 100 * found.mean() == pytest.approx(expected[0])


def test_measures_of_pairs_and_of_queries():
    rng = np.random.default_rng(0)
    A, B, grades = rng.normal(size=(30, 4)), rng.normal(size=(30, 4)), rng.integers(5, size=30)
    cosines = measures.of_places(measures.unit(np.vstack([A, B])), np.arange(60).reshape(2, 30))
    lengths = np.linalg.norm(A, axis=1) * np.linalg.norm(B, axis=1)
    np.testing.assert_allclose(cosines, (A * B).sum(axis=1) / lengths)
    expected = 100 * spearman(grades, cosines)
    assert measures.correlation(grades, cosines) == pytest.approx(expected)
    samples = measures.with_resamples(grades, [cosines, -cosines])
    assert samples.shape == (2, 1 + measures.RESAMPLES)
    assert samples[:, 0] == pytest.approx([expected, -expected])
    similarity, judged = rng.normal(size=(6, 40)), rng.integers(3, size=(6, 40))
    expected = ndcg_score(judged, similarity, k=10)
    assert measures.ndcg(similarity, judged).mean() == pytest.approx(expected)
