"""Every estimator: bools are no numbers, texts no vectors, masked entries are missing."""

from functools import partial

import numpy as np
import pytest
from sklearn.base import clone

import skcalib

ESTIMATORS = [
    kind
    for kind in (getattr(skcalib, name) for name in skcalib.__all__)
    if isinstance(kind, type) and hasattr(kind, "_parameter_constraints")
]
OF_A_MODEL = [  # whose first parameter has no default
    skcalib.BiEncoder,
    skcalib.CalibrationSearch,
    skcalib.NearestAnswer,
    skcalib.TextEncoder,
    skcalib.ZeroShotClassifier,
]
NUMBERS = [
    (kind, name)
    for kind in ESTIMATORS
    for name, options in kind._parameter_constraints.items()
    if any(type(option).__name__ == "Interval" for option in options)
]


assert NUMBERS  # scikit-learn still calls an interval so


@pytest.mark.parametrize(("kind", "name"), NUMBERS)
@pytest.mark.parametrize("value", [True, np.True_])
def test_a_bool_is_no_number(kind, name, value):
    estimator = kind(*[print] * (kind in OF_A_MODEL)).set_params(**{name: value})
    with pytest.raises(ValueError, match=f"The '{name}' parameter of {kind.__name__} must be"):
        estimator.fit(np.eye(4))


@pytest.mark.parametrize("kind", ESTIMATORS)
def test_only_what_belongs_to_a_row_is_metadata(kind):
    """Not the queries of a scale, or the log of a store: no pipeline could pass them on."""
    routing = kind(*[print] * (kind in OF_A_MODEL)).get_metadata_routing()
    assert {*routing.fit.requests} <= {"groups", "sample_weight"}


def test_weights_that_would_overflow_are_refused():
    for weight in (1e308, np.float64(1e16)):
        message = r"expected at most 1e\+15, since products of larger weights overflow"
        with pytest.raises(ValueError, match=message):
            skcalib.Whitening().fit(np.eye(4), sample_weight=[1, 1, 1, weight])


X = np.random.default_rng(0).normal(size=(60, 4))
OF_VECTORS = [
    (skcalib.Whitening(), ("fit", "partial_fit", "transform", "inverse_transform")),
    (skcalib.NormalizingFlow(), ("fit", "partial_fit", "transform", "score_samples")),
    (skcalib.NeighborSmoothing(), ("fit", "partial_fit", "transform")),
    (skcalib.SimilarityScale(), ("fit", "neighbor_similarity")),
    (skcalib.GroupErasure(), ("fit", "transform")),
]


@pytest.mark.parametrize(
    ("estimator", "method"), [(e, method) for e, methods in OF_VECTORS for method in methods]
)
def test_masked_entries_are_missing_and_texts_no_vectors(estimator, method):
    pd = pytest.importorskip("pandas")
    groups = {"groups": np.arange(60) % 2} if type(estimator) is skcalib.GroupErasure else {}
    use = getattr(clone(estimator).fit(X, **groups), method)
    use = partial(use, **groups) if method == "fit" else use
    with pytest.raises(ValueError, match=r"X contains NaN|missing"):
        use(np.ma.masked_greater(X, 1))
    if method != "inverse_transform":
        texts = np.array(["a", "b"] * 30)
        for column in (texts.tolist(), texts, pd.Series(texts), pd.DataFrame({"t": texts})):
            with pytest.raises(TypeError, match=r"Got texts, such as 'a'.*Put an encoder"):
                use(column)


def test_masked_weights_are_missing():
    with pytest.raises(ValueError, match="sample_weight contains NaN"):
        skcalib.Whitening().fit(X, sample_weight=np.ma.masked_less(np.arange(60.0), 5))
