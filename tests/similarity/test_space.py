"""One space of texts: what an encoder may be, one rule for its fit, each text encoded once."""

from pathlib import Path

import numpy as np
import pytest
from counting import Counting
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.base import BaseEstimator, TransformerMixin, clone
from sklearn.decomposition import PCA, TruncatedSVD
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.frozen import FrozenEstimator
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import FeatureUnion, make_pipeline
from sklearn.preprocessing import FunctionTransformer

from skcalib import (
    BertEncoder,
    BiEncoder,
    NearestAnswer,
    SimilarityScale,
    TextEncoder,
    Whitening,
    ZeroShotClassifier,
)
from skcalib.similarity.space import TextSpace, calibrates

pytestmark = pytest.mark.filterwarnings("ignore:The encoder is calibrated on")

ALPHABET = [*"abcdefghijklmnopqrstuvwxyz"]
KNOWN = np.random.default_rng(0).normal(size=(128, 24))
RNG = np.random.default_rng(1)
TEXTS = ["".join(RNG.choice(ALPHABET, 12)) for _ in range(80)]


def letters(texts):
    """Vectors of Latin letters and digits; of other texts they are zero."""
    rows = [[ord(c) for c in text if c.isascii() and c.isalnum()] for text in texts]
    return np.array([KNOWN[row].sum(axis=0) for row in rows])


class Client:
    """An object with a method `encode`, as in sentence-transformers."""

    def encode(self, texts):
        return letters(texts)


class Plain(BaseEstimator):
    """An encoder without ``fit_transform``, whose fit learns something."""

    def fit(self, X, y=None):
        self.mean_ = letters(X).mean(axis=0)
        return self

    def transform(self, X):
        return letters(X) - self.mean_


class Shifted(TransformerMixin, Plain):
    """The same with ``fit_transform``."""


def n_letters(estimator, X, y=None):
    """A score without labels."""
    return -estimator.transform(X).shape[1]


def search(encoder):
    """A search that a fit must run: it has no ``fit_transform``, and chooses two dimensions."""
    pipeline = make_pipeline(encoder, PCA())
    return GridSearchCV(pipeline, {"pca__n_components": [3, 2]}, scoring=n_letters, cv=2)


ENCODERS = {
    "function": lambda: letters,
    "client": Client,
    "bound method": lambda: Client().encode,
    "transformer": lambda: TextEncoder(letters),
    "plain estimator": Plain,
    "pipeline": lambda: make_pipeline(Shifted(), PCA(5)),
    "pipeline with plain steps": lambda: make_pipeline(Plain(), "passthrough", PCA(5)),
    "search": lambda: search(TextEncoder(letters)),
    "search in a pipeline": lambda: make_pipeline(search(Plain()), Whitening()),
    "sparse inside": lambda: make_pipeline(
        TfidfVectorizer(analyzer="char"), TruncatedSVD(4, random_state=0)
    ),
    "union": lambda: FeatureUnion([("a", Shifted()), ("b", TextEncoder(letters))]),
    "frozen": lambda: FrozenEstimator(make_pipeline(Plain(), PCA(5)).fit(TEXTS[::2])),
}
ESTIMATORS = {
    "BiEncoder": lambda encoder: BiEncoder(encoder),
    "NearestAnswer": lambda encoder: NearestAnswer(encoder, false_positive_rate=0.1),
    "ZeroShotClassifier": lambda encoder: ZeroShotClassifier(encoder, TEXTS[:3]),
}


def fitted(name, encoder):
    model = ESTIMATORS[name](encoder)
    return model.fit(TEXTS, range(80)) if name == "NearestAnswer" else model.fit(TEXTS)


def used(name, model):
    if name == "BiEncoder":
        return model.predict(list(zip(TEXTS[1:], TEXTS[:-1], strict=True)))
    return model.decision_function(TEXTS[:9])


def reference(encoder, texts):
    """Vectors of an encoder that is fitted by itself, as scikit-learn does."""
    if not hasattr(encoder, "transform"):
        encoder = TextEncoder(encoder)
    return np.asarray(clone(encoder).fit(texts, None).transform(texts))


@pytest.mark.parametrize("name", ESTIMATORS)
@pytest.mark.parametrize("kind", ENCODERS)
def test_any_encoder_is_cloned_and_fitted_and_a_frozen_one_is_kept(name, kind):
    encoder = ENCODERS[kind]()
    model = fitted(name, encoder)
    if name == "NearestAnswer":
        inner = model.search_.document_pipeline_[0]
    else:
        inner = model.encoder_ if name == "BiEncoder" else model.encoder_["encode"]
    assert_allclose(inner.transform(TEXTS), reference(encoder, TEXTS), atol=1e-6)
    assert not hasattr(encoder, "mean_")  # the user's own stays unfitted
    again = clone(model)
    again.fit(TEXTS, range(80)) if name == "NearestAnswer" else again.fit(TEXTS)
    assert_allclose(used(name, again), used(name, model), atol=1e-9)


@pytest.mark.parametrize("name", ESTIMATORS)
def test_a_name_or_a_folder_is_a_bert(name, tiny_bert, words):
    texts = [" ".join(np.random.default_rng(i).choice(words, 6)) for i in range(40)]
    found = []
    for encoder in (str(tiny_bert), Path(tiny_bert), BertEncoder(tiny_bert)):
        model = clone(ESTIMATORS[name](encoder))
        if name == "ZeroShotClassifier":
            model.set_params(class_names=list(words[:3]))
        model.fit(texts, range(40)) if name == "NearestAnswer" else model.fit(texts)
        pairs = list(zip(texts[1:], texts[:-1], strict=True))
        found.append(
            model.predict(pairs) if name == "BiEncoder" else model.decision_function(texts)
        )
    assert_array_equal(found[0], found[2])
    assert_array_equal(found[1], found[2])


@pytest.mark.parametrize("name", ["NearestAnswer", "ZeroShotClassifier"])
@pytest.mark.parametrize("wrap", [lambda e: e, lambda e: make_pipeline(e, PCA(5))])
def test_a_fit_asks_for_each_text_once(name, wrap, recent):
    recent.bound = 2**20
    model = Counting(letters)
    fitted(name, wrap(TextEncoder(model)))
    assert sorted(model.asked) == sorted(TEXTS)  # names of classes are among them


@pytest.mark.parametrize("frozen", [False, True])
def test_a_zero_vector_of_any_step_is_no_content(frozen):
    """Of a function that is no encoder of this package, before a step that moves it."""
    encoder = make_pipeline(FunctionTransformer(letters), Whitening(power="auto"))
    texts = [*TEXTS, "!?", "..."]
    if frozen:
        encoder = FrozenEstimator(encoder.fit(TEXTS))
    space = TextSpace(encoder)
    with pytest.warns(UserWarning, match=r"2 of 82 texts have no content .* such as '!\?'"):
        vectors = space.fit_vectors(texts)
    assert np.flatnonzero(~vectors.any(axis=1)).tolist() == [80, 81]
    assert_allclose(space.vectors(texts), vectors, atol=1e-9)


@pytest.mark.filterwarnings("ignore:The vectors have a mean of zero")  # behind `Shifted`
def test_the_whitening_is_fitted_on_content_alone_and_only_if_there_is_none():
    texts = [*TEXTS, "!?"]
    space = TextSpace(letters)
    with pytest.warns(UserWarning, match="1 of 81 texts have no content"):
        vectors = space.whiten(space.fit_vectors(texts))
    expected = Whitening(power="auto").fit_transform(letters(TEXTS))
    assert_allclose(vectors[:80], expected, atol=1e-12)
    assert not vectors[80].any()
    assert_allclose(space.vectors(texts), vectors, atol=1e-12)
    assert_allclose(space.pipeline.transform(TEXTS), expected, atol=1e-6)
    assert not space.is_frozen
    own = TextSpace(make_pipeline(Shifted(), make_pipeline(Whitening(power="auto"))))
    vectors = own.fit_vectors(TEXTS)
    assert calibrates(own.encoder)
    assert own.whiten(vectors) is vectors
    assert [*own.pipeline.named_steps] == ["encode"]


def test_a_pipeline_of_frozen_steps_is_frozen():
    steps = [FrozenEstimator(Shifted().fit(TEXTS)), FrozenEstimator(PCA(2).fit(letters(TEXTS)))]
    assert TextSpace(make_pipeline(*steps, "passthrough")).is_frozen
    assert not TextSpace(make_pipeline(steps[0], PCA(2))).is_frozen


def test_fewer_vectors_than_texts_are_refused():
    short = FunctionTransformer(lambda texts: np.ones((3, 2)))
    with pytest.raises(ValueError, match="returned 3 rows for 80 texts"):
        SimilarityScale(short).fit(TEXTS)
