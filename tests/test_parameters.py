"""Every estimator: texts are no vectors, and set parameters wait for the next fit."""

import copy

import numpy as np
import pytest
from estimators import CASES, ESTIMATORS, FITTED, OF_VECTORS, VECTORS
from sklearn.preprocessing import StandardScaler

import skcalib
from skcalib import TextEncoder


@pytest.mark.parametrize("kind", ESTIMATORS)
def test_only_what_belongs_to_a_row_is_metadata(kind):
    """Queries pass through a pipeline to a search, not to a scale; a log passes to nothing."""
    routing = CASES[kind.__name__].make(TextEncoder(print)).get_metadata_routing()
    own = {"queries"} if kind.__name__ == "SearchEncoder" else set()
    assert {*routing.fit.requests} <= own


METHODS = [
    (name, method)
    for name in OF_VECTORS
    for method in ("fit", "partial_fit", "transform", "inverse_transform", "score_samples")
    if hasattr(getattr(skcalib, name), method)
]


@pytest.mark.parametrize(("name", "method"), METHODS)
def test_missing_entries_and_texts_are_no_vectors(name, method):
    pd = pytest.importorskip("pandas")
    estimator = CASES[name].make(None).fit(*CASES[name].given)
    use = getattr(estimator, method)
    row = int((VECTORS > 1).any(axis=1).argmax())
    match = rf"X contains NaN, first in row {row}\. Drop such rows|missing"
    with pytest.raises(ValueError, match=match):
        use(np.where(VECTORS > 1, np.nan, VECTORS))
    if method != "inverse_transform":
        texts = np.array(["a", "b"] * 30)
        for column in (texts.tolist(), texts, pd.Series(texts), pd.DataFrame({"t": texts})):
            with pytest.raises(TypeError, match=r"Got texts, such as 'a'.*Put an encoder"):
                use(column)


@pytest.mark.parametrize("name", sorted(CASES))
def test_a_notebook_shows_what_each_parameter_does(name):
    if "param-doc-description" not in StandardScaler()._repr_html_():
        pytest.skip("scikit-learn 1.9 shows it")
    estimator = CASES[name].make(TextEncoder(print))
    shown = estimator._repr_html_()
    for parameter in estimator.get_params(deep=False):
        assert f'position-anchor: --doc-link-{parameter};">' in shown


# Where and how vectors are computed: these act at once, and change no result.
OF_THE_PROCESS = {"batch_size", "device", "memory", "model", "name", "verbose"}


def others(kind, name, value):
    """Return other values that a parameter of an estimator accepts."""
    if name in {"other", "random_state"}:
        return ["another"] if name == "other" else [7]
    numbers = [0, 1, 2, 3, 50, 0.1, 0.5, 0.9]
    given = []
    for option in getattr(kind, "_parameter_constraints", {}).get(name, []):
        if hasattr(option, "is_satisfied_by"):
            given += [number for number in numbers if option.is_satisfied_by(number)]
        given += sorted(getattr(option, "options", ()))
        given += [True, False] if option == "boolean" else []
        given += ["word: "] if option is str else []
    return [one for one in given if one != value]


@pytest.mark.filterwarnings("ignore:There are fewer than")
@pytest.mark.parametrize("name", [name for name in FITTED if name != "CalibrationSearch"])
def test_a_parameter_set_after_the_fit_waits_for_the_next_fit(name, tiny_bert):
    estimator = CASES[name].make(TextEncoder(letters))
    if name == "BertEncoder":
        estimator.set_params(model=tiny_bert)
    estimator.fit(*CASES[name].given)
    expected, n_set = CASES[name].use(estimator), 0
    for parameter, value in estimator.get_params(deep=False).items():
        if parameter in OF_THE_PROCESS:
            continue
        for other in others(type(estimator), parameter, value):
            changed = copy.copy(estimator).set_params(**{parameter: other})
            np.testing.assert_array_equal(CASES[name].use(changed), expected)
            n_set += 1
    assert n_set or set(estimator.get_params(deep=False)) <= {"encoder", *OF_THE_PROCESS}
    if name == "ZeroShotClassifier":
        labels = estimator.predict(["", "the dog"])
        changed = copy.copy(estimator).set_params(other="another")
        assert changed.predict(["", "the dog"]).tolist() == labels.tolist()


def letters(texts):
    """A vector for each text."""
    return np.array([[text.count(letter) + 0.1 for letter in "acdglmnot"] for text in texts])
