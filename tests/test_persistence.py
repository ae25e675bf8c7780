"""A pickle comes back as it was, and only into code that reads its layout."""

import pickle
import pickletools

import numpy as np
import pytest
from estimators import CASES, ESTIMATORS
from sklearn.base import clone
from sklearn.model_selection import GridSearchCV

from skcalib import BertEncoder, TextEncoder, VectorStore, Whitening
from skcalib.export import TRUSTED_TYPES
from skcalib.model_selection import SelfRetrieval


def _name(kind):
    return f"{kind.__module__}.{kind.__qualname__}"


def test_a_whitening_that_came_back_goes_on_learning():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(60, 5)) @ rng.normal(size=(5, 5)) + 3
    whitening = Whitening(n_components=3, shrinkage=0.1).fit(X)
    back = pickle.loads(pickle.dumps(whitening)).partial_fit(2 * X)
    expected = clone(whitening).fit(np.vstack([X, 2 * X]))
    np.testing.assert_allclose(back.transform(X), expected.transform(X), rtol=1e-8, atol=1e-10)


@pytest.mark.parametrize("kind", ESTIMATORS)
def test_every_estimator_has_a_versioned_state(kind, monkeypatch):
    estimator = CASES[kind.__name__].make(TextEncoder(len))
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


@pytest.fixture
def make(tiny_bert):
    """Return a function that makes the estimator of a name, fitted, with a tiny BERT."""

    def made(name):
        encoder = BertEncoder(tiny_bert)
        estimator = encoder if name == "BertEncoder" else CASES[name].make(encoder)
        if name == "TextEncoder":
            estimator = TextEncoder(encoder.fit(["dog"]).transform)
        return estimator.fit(*CASES[name].given) if CASES[name].given else estimator

    return made


def in_use(estimator):
    """Return other estimators that are kept with some of their parameters."""
    return {
        BertEncoder: lambda e: clone(e).set_params(memory=VectorStore("folder")),
        Whitening: lambda e: GridSearchCV(e, {}, scoring=SelfRetrieval()),
    }.get(type(estimator), lambda e: e)(estimator)


# A `TextEncoder` keeps a model of another library.
@pytest.mark.parametrize("name", [name for name in CASES if name != "TextEncoder"])
def test_skops_has_to_trust_nothing_but_skcalib(make, name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    io = pytest.importorskip("skops.io")
    estimator = make(name)
    for kept in (estimator, in_use(estimator)):
        dumped = io.dumps(kept)
        asked = io.get_untrusted_types(data=dumped)
        assert set(asked) <= set(TRUSTED_TYPES)
        back = io.loads(dumped, trusted=asked)
        assert type(back) is type(kept)
    back = io.loads(io.dumps(estimator), trusted=TRUSTED_TYPES)
    np.testing.assert_array_equal(CASES[name].use(back), CASES[name].use(estimator))


def test_pickles_of_all_estimators_hold_trusted_types(make):
    made = [estimator for name in CASES for estimator in (make(name), in_use(make(name)))]
    named = {
        name.replace(" ", ".")
        for opcode, name, _ in pickletools.genops(pickle.dumps(made, protocol=2))
        if opcode.name == "GLOBAL" and name.startswith("skcalib.")
    }
    assert {*map(_name, ESTIMATORS)} <= named <= set(TRUSTED_TYPES)


def test_no_pickle_in_a_store_is_read(tiny_bert, tmp_path):
    """Whatever lies in the folder that is given as memory."""

    class Bomb:
        def __reduce__(self):
            return exec, ("raise SystemExit('code ran')",)

    encoder = BertEncoder(tiny_bert, memory=tmp_path)
    encoder.fit_transform(["dog"])
    for file in [f for f in tmp_path.rglob("*") if f.is_file() and f.suffix != ".lock"]:
        file.write_bytes(pickle.dumps(Bomb()))
    with pytest.raises(ValueError, match="is damaged"):
        encoder.transform(["dog"])
