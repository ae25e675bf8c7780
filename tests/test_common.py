"""Every estimator passes the checks of scikit-learn, in its usual and in its special modes."""

import pytest
from estimators import CASES, OF_VECTORS
from sklearn.neighbors import KNeighborsTransformer
from sklearn.utils.estimator_checks import check_estimator, parametrize_with_checks

from skcalib import (
    NeighborSmoothing,
    NormalizingFlow,
    SearchEncoder,
    SimilarityScale,
    TextEncoder,
    Whitening,
)

MORE = [
    Whitening(n_components=0.9, shrinkage="auto", power=0.5),
    Whitening(power="auto"),
    Whitening(noise=0.5, method="zca"),
    NormalizingFlow(device="cpu", n_levels=3, max_epochs=2, validation_fraction=0.2),
    NeighborSmoothing(2, weight=0.5),
    NeighborSmoothing(3, neighbors=KNeighborsTransformer()),
    SearchEncoder(),  # of vectors
    SimilarityScale(n_pairs=50),
]


@parametrize_with_checks([*(CASES[name].make(None) for name in OF_VECTORS), *MORE])
@pytest.mark.filterwarnings("ignore:There are fewer than 5 samples:UserWarning")
@pytest.mark.filterwarnings("ignore:The vectors have a mean of zero")  # as those of the checks
@pytest.mark.filterwarnings("ignore:The flow was fitted on fewer")
@pytest.mark.filterwarnings("ignore:.* vectors are zero", "ignore:.* but each text has")
def test_scikit_learn_contract(estimator, check):
    check(estimator)


@pytest.mark.parametrize("name", sorted({*CASES} - {*OF_VECTORS}))
@pytest.mark.filterwarnings("ignore:Can't test estimator")
def test_contract_of_an_estimator_of_texts(name):
    assert check_estimator(CASES[name].make(TextEncoder(len)))  # without those on vectors
