"""Every estimator: a failed fit leaves no half, a copy costs nothing, outputs are the same."""

import copy
import pickle

import numpy as np
import pytest
from counting import Counting
from estimators import CASES, FITTED, OF_TEXTS, TEXTS
from sklearn import config_context
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.frozen import FrozenEstimator

from skcalib import TextEncoder

pytestmark = pytest.mark.filterwarnings(
    "ignore:The encoder is calibrated on",
)


def vectors_of(texts):
    """A vector for each word, summed."""
    seeds = [[int.from_bytes(w.encode(), "big") % 2**32 for w in t.split()] for t in texts]
    return np.array(
        [
            np.sum([np.random.default_rng(s).normal(size=6) for s in one], axis=0)
            for one in seeds
        ]
    )


class Client(Counting):
    """A model that no copy is made of."""

    def __deepcopy__(self, memo):
        return self


def broken(texts):
    raise OSError("the service is down")


@pytest.fixture
def model(recent):
    """Count what is asked, and keep vectors in memory, as outside the tests."""
    recent.bound = 2**20
    return Client(vectors_of)


@pytest.fixture
def make(tiny_bert, model):
    """Return a function that makes the estimator of a name, fitted."""

    def made(name, encoder=None):
        estimator = CASES[name].make(TextEncoder(model) if encoder is None else encoder)
        if name == "BertEncoder":
            estimator.set_params(model=tiny_bert)
        return estimator.fit(*CASES[name].given) if CASES[name].given else estimator

    return made


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("how", [copy.copy, copy.deepcopy, clone, pickle.dumps])
def test_a_copy_costs_nothing_and_changes_nothing(make, model, name, how):
    estimator = make(name)
    expected = CASES[name].use(estimator)
    if name == "BiEncoder":
        estimator = make(name)  # whose scale was not asked for
    before, n_asked = dict(vars(estimator)), len(model.asked)
    made = how(estimator)
    assert len(model.asked) == n_asked
    assert vars(estimator).keys() == before.keys()
    assert all(vars(estimator)[key] is before[key] for key in before)
    if how is pickle.dumps:
        made = pickle.loads(made)
    if how is clone and CASES[name].given:
        made = made.fit(*CASES[name].given)
    np.testing.assert_array_equal(CASES[name].use(made), expected)
    np.testing.assert_array_equal(CASES[name].use(estimator), expected)


@pytest.mark.parametrize("name", FITTED)
@pytest.mark.parametrize("fault", ["input", "encoder"])
def test_after_a_failed_fit_an_estimator_is_unfitted(make, name, fault):
    case, estimator = CASES[name], make(name)
    given = case.bad
    if fault == "encoder":
        if name not in OF_TEXTS:
            pytest.skip("has no encoder")
        estimator.set_params(encoder=TextEncoder(broken))
        given = case.given
    with pytest.raises((ValueError, TypeError, OSError)):
        estimator.fit(*given)
    with pytest.raises(NotFittedError):
        case.use(estimator)
    assert not [key for key in vars(estimator) if key.endswith("_") and key[0] != "_"]
    new = clone(estimator)
    with pytest.raises((ValueError, TypeError, OSError)):
        new.fit(*given)
    with pytest.raises(NotFittedError):
        case.use(new)


@pytest.mark.parametrize("name", FITTED)
def test_after_a_fit_with_an_invalid_parameter_nothing_is_fitted(make, name):
    case, estimator = CASES[name], make(name)
    constraints = getattr(estimator, "_parameter_constraints", {})
    checked = [key for key, kinds in constraints.items() if kinds != "no_validation"]
    if not checked:
        pytest.skip("has no parameter that is checked alike everywhere")
    with pytest.raises(ValueError, match=f"{checked[0]!r} parameter of {name} must be"):
        estimator.set_params(**{checked[0]: object()}).fit(*case.given)
    with pytest.raises(NotFittedError):
        case.use(estimator)
    assert not hasattr(estimator, "n_features_in_")


def same(found, expected):
    """Equal up to the rounding of arrays in another order of memory."""
    np.testing.assert_allclose(np.asarray(found), expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("name", FITTED)
@pytest.mark.parametrize("output", ["pandas", "polars"])
def test_any_output_of_scikit_learn_is_the_same(make, name, output):
    pytest.importorskip(output)
    case = CASES[name]
    expected = case.use(make(name))
    with config_context(transform_output=output):
        estimator = make(name)
        same(case.use(estimator), expected)
    same(case.use(estimator), expected)


@pytest.mark.parametrize("name", OF_TEXTS)
@pytest.mark.parametrize("output", ["pandas", "polars"])
@pytest.mark.parametrize("frozen", [False, True])
def test_any_output_of_the_encoder_is_the_same(make, model, name, output, frozen):
    pytest.importorskip(output)
    expected = CASES[name].use(make(name))
    encoder = TextEncoder(model).set_output(transform=output)
    encoder = FrozenEstimator(encoder.fit(TEXTS)) if frozen else encoder
    same(CASES[name].use(make(name, encoder)), expected)
