"""Searches, `SelfRetrieval` and `BiEncoder` with encoders that are no `BertEncoder`."""

import pickle
from itertools import pairwise
from types import SimpleNamespace

import numpy as np
import pytest
from counting import Counting
from sklearn.decomposition import TruncatedSVD
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.frozen import FrozenEstimator
from sklearn.pipeline import make_pipeline

from skcalib import BiEncoder, CalibrationSearch, TextEncoder, Whitening
from skcalib.datasets import load_toy_sts
from skcalib.model_selection import SelfRetrieval

CHARACTERS = "abcdefghijklmnopqrstuvwxyz "


def bigrams(texts):
    """Counts of pairs of letters: an encoder that needs no model."""
    index = {
        a + b: i for i, (a, b) in enumerate((a, b) for a in CHARACTERS for b in CHARACTERS)
    }
    vectors = np.zeros((len(texts), len(index)))
    for row, text in enumerate(texts):
        letters = text.lower()
        for pair in map("".join, pairwise(letters)):
            if pair in index:
                vectors[row, index[pair]] += 1
    return vectors


@pytest.fixture(scope="module")
def texts():
    return load_toy_sts().data.ravel().tolist()


def latent():
    return make_pipeline(TfidfVectorizer(), TruncatedSVD(64, random_state=0))


@pytest.mark.parametrize("kind", ["function", "object", "unfitted", "frozen"])
def test_a_search(kind, texts):
    model = {
        "function": bigrams,
        "object": SimpleNamespace(encode=bigrams),
        "unfitted": latent(),
        "frozen": FrozenEstimator(latent().fit(texts)),
    }[kind]
    own = [("whitening", Whitening(16, power="auto"))]
    search = CalibrationSearch(model, candidates=own).fit(texts)
    results, pipeline = search.cv_results_, search.best_estimator_
    raw = results["pooling"][0], results["layers"][0], results["candidate"][0]
    assert raw == ("as given", None, "raw")
    chosen = results["candidate"][search.best_index_]
    assert (chosen == "raw") == (pipeline["calibrate"] == "passthrough")
    given = pipeline["encode"].transform(texts)
    expected = dict.fromkeys(("frozen", "unfitted"), latent().fit_transform)
    np.testing.assert_allclose(given, expected.get(kind, bigrams)(texts), atol=1e-6)
    if kind != "object":  # whose list of texts the pickle would hold
        back = pickle.loads(pickle.dumps(search))
        np.testing.assert_array_equal(back.transform(texts), search.transform(texts))


def test_each_text_is_asked_for_once(texts, recent):
    recent.bound = 2**28  # as outside the tests
    model = Counting(bigrams)
    CalibrationSearch(model).fit(texts).transform(texts)
    assert len(model.asked) == len(set(model.asked))


def test_an_encoder_alone_is_scored_and_compared(texts):
    pairs, grades = load_toy_sts(return_X_y=True)
    fitted = TextEncoder(bigrams).fit(texts)
    assert SelfRetrieval()(bigrams, texts) == SelfRetrieval()(fitted, texts)
    score = BiEncoder(TextEncoder(bigrams)).fit(pairs).score(pairs, grades)
    assert score == BiEncoder(FrozenEstimator(fitted)).fit(pairs).score(pairs, grades)


@pytest.mark.parametrize("is_fitted", [False, True])
def test_what_learns_but_is_no_estimator_of_scikit_learn_is_refused(is_fitted, texts):
    class Own:
        def fit(self, X, y=None):
            self.learned, self.n = latent().fit(X), len(X)
            return self

        def transform(self, X):
            return self.learned.transform(X)

    encoder = Own().fit(texts[:99]) if is_fitted else Own()
    with pytest.raises(TypeError, match="Derive its class from TransformerMixin"):
        CalibrationSearch(encoder).fit(texts)
    with pytest.raises(TypeError, match="Derive its class from TransformerMixin"):
        SelfRetrieval()(encoder, texts)
    assert getattr(encoder, "n", None) == (99 if is_fitted else None)  # nothing is refitted
