"""A pickle comes back as it was, and only into code that reads its layout."""

import pickle
import pickletools

import numpy as np
import pytest
from sklearn.base import BaseEstimator, clone
from sklearn.model_selection import GridSearchCV

import skcalib
from skcalib import (
    BertEncoder,
    BiEncoder,
    CalibrationSearch,
    DetailGuard,
    Duplicates,
    GroupErasure,
    NearestAnswer,
    NeighborSmoothing,
    NormalizingFlow,
    SimilarityScale,
    TextEncoder,
    VectorStore,
    Whitening,
    ZeroShotClassifier,
)
from skcalib.export import TRUSTED_TYPES
from skcalib.model_selection import SelfRetrieval

WORDS = [
    "man",
    "plays",
    "house",
    "red",
    "small",
    "old",
    "young",
    "train",
    "letter",
    "song",
    "rain",
    "snow",
    "night",
]
ESTIMATORS = [
    kind
    for kind in (getattr(skcalib, name) for name in skcalib.__all__)
    if isinstance(kind, type) and issubclass(kind, BaseEstimator)
]


LONGER = [f"the {a} {b} and the {b} {a}" for a in ("dog", "cat") for b in WORDS]


def _name(kind):
    return f"{kind.__module__}.{kind.__qualname__}"


@pytest.fixture
def X():
    rng = np.random.default_rng(0)
    return rng.normal(size=(60, 5)) @ rng.normal(size=(5, 5)) + 3


@pytest.fixture
def whitening(X):
    return Whitening(n_components=3, shrinkage=0.1).fit(X)


def test_a_whitening_that_came_back_goes_on_learning(whitening, X):
    back = pickle.loads(pickle.dumps(whitening)).partial_fit(2 * X)
    expected = clone(whitening).fit(np.vstack([X, 2 * X]))
    np.testing.assert_allclose(back.transform(X), expected.transform(X), rtol=1e-8, atol=1e-10)


@pytest.mark.parametrize("kind", ESTIMATORS)
def test_every_estimator_has_a_versioned_state(kind, monkeypatch):
    first = {"BertEncoder": "a-model", "BiEncoder": Whitening(), "TextEncoder": len}
    for name in ("CalibrationSearch", "NearestAnswer", "ZeroShotClassifier"):
        first[name] = "a-model"
    estimator = kind(*([first[kind.__name__]] if kind.__name__ in first else []))
    dumped, version = pickle.dumps(estimator), kind._state_version
    back = pickle.loads(dumped)
    assert type(back) is type(estimator)
    assert repr(back) == repr(estimator)
    assert "_state_version" not in vars(back)
    match = f"pickled {kind.__name__} has state version {version}; .* reads version"
    for read in (version - 1, version + 1, str(version)):
        monkeypatch.setattr(kind, "_state_version", read)
        with pytest.raises(ValueError, match=rf"{match} {read}\. Load it with"):
            pickle.loads(dumped)


def test_a_state_without_a_version_is_refused(whitening, monkeypatch):
    with monkeypatch.context() as before_versions:
        before_versions.setattr(Whitening, "__getstate__", BaseEstimator.__getstate__)
        pickled = pickle.dumps(whitening)
    with pytest.raises(ValueError, match="pickled Whitening has state version None"):
        pickle.loads(pickled)


def test_pickling_and_reading_leave_the_state_as_it_is(whitening):
    before, state = dict(vars(whitening)), whitening.__getstate__()
    Whitening().__setstate__(state)
    assert list(state) == [*before, "_state_version"]
    after = vars(whitening)
    assert list(after) == list(before)
    assert all(after[name] is before[name] for name in before)


@pytest.mark.parametrize(
    "make",
    [
        lambda X, bert: Whitening(2, shrinkage="auto").fit(X),
        lambda X, bert: NormalizingFlow(random_state=0).fit(X),
        lambda X, bert: BertEncoder(bert, layers="first_last").fit(["dog"]),
        lambda X, bert: BertEncoder(bert, memory=VectorStore("folder")).fit(["dog"]),
        lambda X, bert: BiEncoder(BertEncoder(bert)).fit(["dog", "cat"]),
        lambda X, bert: GroupErasure().fit(X, groups=np.arange(60) % 2),
        lambda X, bert: SimilarityScale().fit(X),
        lambda X, bert: NeighborSmoothing().fit(X),
        lambda X, bert: CalibrationSearch(bert, n_texts=20, layers=[1, 3]).fit(LONGER),
    ],
    ids=[
        *("whitening", "flow", "encoder", "store", "pairs", "groups", "scale", "smoothing"),
        "search",
    ],
)
def test_skops_has_to_trust_nothing_but_skcalib(make, X, tiny_bert, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    io = pytest.importorskip("skops.io")
    estimator = make(X, tiny_bert)
    dumped = io.dumps(estimator)
    asked = io.get_untrusted_types(data=dumped)
    assert asked
    assert set(asked) <= set(TRUSTED_TYPES)
    back = io.loads(dumped, trusted=asked)
    uses = {BiEncoder: "predict", SimilarityScale: "p_value"}
    data = {BertEncoder: ["dog"], BiEncoder: [("dog", "cat")], SimilarityScale: X[0] / 10}
    data[CalibrationSearch] = ["dog"]
    use, given = uses.get(type(back), "transform"), data.get(type(back), X)
    np.testing.assert_array_equal(getattr(back, use)(given), getattr(estimator, use)(given))


def test_pickles_of_all_estimators_hold_the_trusted_types_and_no_others(X, tiny_bert, words):
    bert, texts = BertEncoder(tiny_bert), [f"{a} dog {b} cat" for a in words for b in words]
    some = [f"the {a} {t}" for t in texts[:8] for a in words[:9]]
    made = [
        CalibrationSearch(bert, n_texts=40, task="topics", layers=[1, 3]).fit(some),
        NormalizingFlow(random_state=0).fit(X),
        BertEncoder(tiny_bert, memory=VectorStore("folder")),
        BiEncoder(bert),
        GroupErasure().fit(X, groups=np.arange(60) % 2),
        SimilarityScale().fit(X),
        NeighborSmoothing().fit(X),
        TextEncoder(bert.fit(["dog"]).transform),
        ZeroShotClassifier(bert),
        NearestAnswer(bert, false_positive_rate=0.05).fit(texts[:112], range(112)),
        Duplicates(guard=DetailGuard()),
        GridSearchCV(Whitening(), {}, scoring=SelfRetrieval()),
    ]
    named = {
        name.replace(" ", ".")
        for opcode, name, _ in pickletools.genops(pickle.dumps(made, protocol=2))
        if opcode.name == "GLOBAL" and name.startswith("skcalib.")
    }
    assert {*map(_name, ESTIMATORS)} <= named == set(TRUSTED_TYPES)


def test_no_pickle_in_a_store_is_read(tiny_bert, tmp_path, recwarn):
    """Whatever lies in the folder that is given as memory."""

    class Bomb:
        def __reduce__(self):
            return exec, ("raise SystemExit('code ran')",)

    for _ in range(2):
        BertEncoder(tiny_bert, memory=tmp_path).fit_transform(["dog"])
        for file in [f for f in tmp_path.rglob("*") if f.is_file() and f.suffix != ".lock"]:
            file.write_bytes(pickle.dumps(Bomb()))
    messages = [str(w.message) for w in recwarn]
    assert all("damaged" in message for message in messages), messages
