"""Calibrators of one's own as candidates of a `CalibrationSearch`."""

import numpy as np
import pytest
from scipy.sparse import csr_array
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.decomposition import PCA
from sklearn.feature_extraction.text import HashingVectorizer
from sklearn.preprocessing import StandardScaler

from skcalib import CalibrationSearch

HASHING = HashingVectorizer(n_features=200, norm=None)


def hashed(texts):
    return HASHING.transform(texts).toarray().astype(np.float32) + 0.1


@pytest.fixture
def texts(words):
    rng = np.random.default_rng(0)
    return [" ".join(rng.choice(words, 12)) for _ in range(60)]


def searched(candidates, texts):
    with pytest.warns(UserWarning, match="close candidates"):
        return CalibrationSearch(hashed, candidates=candidates).fit(texts).cv_results_


def test_a_candidate_that_works_in_place_changes_no_other(texts):
    first, after = StandardScaler(copy=False), PCA(8, random_state=0)
    both = searched([("in place", first), ("pca", after)], texts)
    alone = searched([("pca", after)], texts)
    row, expected = (list(found["candidate"]).index("pca") for found in (both, alone))
    assert both["halves"][row] == alone["halves"][expected]


class Returns(TransformerMixin, BaseEstimator):
    """A transformer that returns what a function makes of its input."""

    def __init__(self, function=None):
        self.function = function

    def fit(self, X, y=None):
        return self

    def transform(self, X):
        return self.function(X)


@pytest.mark.filterwarnings("ignore:.*close candidates cannot be distinguished")
@pytest.mark.parametrize(
    ("calibrator", "error"),
    [
        (Returns(lambda X: X * np.nan), "contains NaN"),
        (Returns(csr_array), "Sparse data"),
        (Returns(lambda X: X[:-1]), "inconsistent numbers of samples"),
        (Returns(lambda X: X[:, 0]), "Expected 2D array"),
        (PCA(300), "n_components=300"),
    ],
)
def test_an_error_has_the_name_of_its_candidate(calibrator, error, texts):
    candidates = [("fits", PCA(8)), ("does not", calibrator)]
    with pytest.raises((TypeError, ValueError), match=error) as caught:
        CalibrationSearch(hashed, candidates=candidates).fit(texts)
    assert caught.value.__notes__ == ["The candidate 'does not' of the search raised this."]
