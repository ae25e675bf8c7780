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


@pytest.mark.parametrize("name", ["mean", "whitening", "strong"])
def test_a_candidate_of_ones_own_has_a_row_whatever_its_name(name, texts):
    pca = PCA(8, random_state=0)
    found = searched([(name, pca)], texts)
    assert str(pca) in list(found["calibrator"])


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
    ("function", "came"),
    [
        (lambda X: X * np.nan, "vectors that are not finite"),
        (csr_array, r"a csr_array of shape \(\d+, 200\)"),
        (lambda X: X[:-1], r"a ndarray of shape \(\d+, 200\)"),
        (lambda X: X[:, 0], r"a ndarray of shape \(\d+,\)"),
    ],
)
def test_an_error_names_the_candidate_that_returns_something_else(function, came, texts):
    with pytest.raises(ValueError, match=f"candidate 'mine' returned {came}; expected a dense"):
        CalibrationSearch(hashed, candidates=[("mine", Returns(function))]).fit(texts)


@pytest.mark.filterwarnings("ignore:.*close candidates cannot be distinguished")
def test_an_error_inside_a_candidate_has_its_name(texts):
    candidates = [("mine", PCA(8)), ("too wide", PCA(300))]
    with pytest.raises(ValueError, match="n_components=300") as caught:
        CalibrationSearch(hashed, candidates=candidates).fit(texts)
    assert caught.value.__notes__ == ["The candidate 'too wide' of the search raised this."]
