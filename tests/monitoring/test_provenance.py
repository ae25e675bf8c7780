"""Whether vectors are of the model of a fit, or of another."""

import numpy as np
import pytest
from sklearn.covariance import ledoit_wolf
from sklearn.pipeline import make_pipeline

from skcalib import BertEncoder, Whitening
from skcalib.datasets import load_docstrings, load_questions
from skcalib.monitoring import provenance


@pytest.fixture(scope="module")
def vectors(minilm):
    """Vectors of two domains; another model is a random rotation of them."""
    texts = load_docstrings().data[:500], load_questions().data
    return [BertEncoder(minilm).fit_transform(part) for part in texts]


@pytest.fixture(scope="module")
def rotation():
    return np.linalg.qr(np.random.default_rng(0).normal(size=(384, 384))).Q


def test_another_domain_is_no_other_model(vectors, rotation):
    own, domain = vectors
    whitening = Whitening(power="auto").fit(own[:400])
    for X in (own[400:420], domain[:20], 7 * domain[:20]):
        assert provenance(whitening, X).is_same_model
        found = provenance(whitening, X @ rotation)
        assert not found.is_same_model
        assert found.distance == pytest.approx(1, abs=0.05)


def test_rows_of_another_model_are_found(vectors, rotation):
    own = vectors[0]
    whitening = Whitening(power="auto").fit(own[:400])
    mixed = np.vstack([own[400:], own[:5] @ rotation, np.zeros((1, 384))])
    with pytest.warns(UserWarning, match="1 of 106 vectors are zero"):
        found = provenance(whitening, mixed)
    assert np.flatnonzero(found.foreign).tolist() == [100, 101, 102, 103, 104]
    assert np.isnan(found.distances[-1])


def test_bad_vectors_are_refused(vectors):
    own = vectors[0]
    whitening = Whitening(power="auto").fit(own)
    with pytest.raises(ValueError, match="X has 10 features, but Whitening is expecting 384"):
        provenance(whitening, own[:, :10])
    with pytest.raises(ValueError, match="X contains NaN"):
        provenance(whitening, own * np.nan)
    with pytest.raises(ValueError, match="All vectors are zero; expected some"):
        provenance(whitening, own * 0)
    with pytest.raises(TypeError, match=r"Got a Pipeline; .* pass pipeline\[-1\]"):
        provenance(make_pipeline(whitening), own)
    even = Whitening().fit(np.random.default_rng(0).normal(size=(4000, 5)))
    with pytest.raises(ValueError, match="spread evenly in all directions"):
        provenance(even, np.ones((3, 5)))


def test_narrow_vectors_are_refused(vectors):
    own = vectors[0]
    for width in (128, 64, 32):
        whitening = Whitening(power="auto").fit(own[:, :width])
        with pytest.raises(
            ValueError, match=f"Vectors of {width} columns like these do not identify"
        ):
            provenance(whitening, own[:, :width])


def test_rotated_vectors_are_foreign_wherever_it_answers(vectors):
    own, domain = vectors
    answers, rng = 0, np.random.default_rng(0)
    for width in (192, 256, 384):
        whitening = Whitening(power="auto").fit(own[:, :width])
        try:
            assert provenance(whitening, domain[:20, :width]).is_same_model
        except ValueError:
            continue
        for _ in range(20):
            other = domain[:20, :width] @ np.linalg.qr(rng.normal(size=(width, width))).Q
            assert not provenance(whitening, other).is_same_model
        answers += 1
    assert answers


def test_the_distance_is_the_formula_with_shrunk_covariances():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(300, 30)) @ rng.normal(size=(30, 200)) + 0.5
    X += 0.3 * rng.normal(size=X.shape)
    X, new = X[:250], X[250:]
    M = (1 - ledoit_wolf(X)[1]) * np.cov(X.T)
    np.fill_diagonal(M, X.var(axis=0, ddof=1))
    values, basis = np.linalg.eigh(M + np.outer(X.mean(axis=0), X.mean(axis=0)))
    inverse = basis / np.maximum(values, 0.03 * values.mean()) @ basis.T
    home = np.log(((X @ inverse) * X).sum() / (X**2).sum())
    elsewhere = np.log(np.trace(inverse) / 200)
    scores = np.log(((new @ inverse) * new).sum(axis=1) / (new**2).sum(axis=1))
    found = provenance(Whitening(power="auto").fit(X), new).distances
    np.testing.assert_allclose(found, (scores - home) / (elsewhere - home), atol=1e-9)
