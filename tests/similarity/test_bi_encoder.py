"""BiEncoder: similarities of pairs, and model selection by them."""

import numpy as np
import pytest
from counting import Counting
from numpy.testing import assert_allclose, assert_array_equal
from scipy.stats import spearmanr
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer, Normalizer

from skcalib import BertEncoder, BiEncoder, TextEncoder, Whitening

pytestmark = pytest.mark.filterwarnings("ignore:.* have no content for the encoder")

VECTORS = {"x": [1.0, 0], "y": [0, 2.0], "xy": [3.0, 3.0], "-x": [-1.0, 0], "0": [0, 0.0]}


def look_up(texts):
    return np.array([VECTORS[t] for t in texts])


def encoder_of(table):
    return FunctionTransformer(lambda texts: np.array([table[t] for t in texts]))


@pytest.fixture
def bi_encoder():
    return BiEncoder(FunctionTransformer(look_up)).fit(["x"])


@pytest.fixture(scope="session")
def pairs(texts):
    return list(zip(texts, texts[3:] + texts[:3], strict=True))


def test_similarity_is_the_cosine(bi_encoder):
    pairs = [("x", "x"), ("x", "y"), ("x", "xy"), ("x", "-x"), ("x", "0")]
    similarities = bi_encoder.fit(["x"]).predict(pairs)
    assert similarities.dtype == np.float64
    assert_allclose(similarities, [1, 0, np.sqrt(0.5), -1, 0], atol=1e-15)


def test_cosines_of_nearly_parallel_float32_vectors_keep_their_order():
    # Angles from 1e-5 to 1e-4: all cosines are 1 in float32.
    angles = np.linspace(1e-5, 1e-4, 20)
    table = {str(i): [np.cos(a), np.sin(a)] for i, a in enumerate(angles)} | {"axis": [1, 0]}
    table = {text: np.float32(vector) for text, vector in table.items()}
    pairs = [("axis", str(i)) for i in range(20)]
    similarities = BiEncoder(encoder_of(table)).fit(["axis"]).predict(pairs)
    assert (np.diff(similarities) < 0).all()


def test_score_is_spearman(bi_encoder):
    pairs = [("x", "x"), ("x", "y"), ("x", "xy"), ("y", "xy"), ("x", "-x")]
    y = [4, 3, 2, 5, 1]
    assert_allclose(bi_encoder.score(pairs, y), spearmanr(bi_encoder.predict(pairs), y)[0])


def test_fit_sees_each_distinct_text_once_and_no_judgment():
    seen = []

    class Recorder(FunctionTransformer):
        def fit(self, X, y=None):
            seen.append((list(X), y))
            return super().fit(X)

    encoder = Recorder(look_up)
    BiEncoder(encoder).fit([("x", "y"), ("y", "xy"), ("x", "x")], [1, 2, 3])
    BiEncoder(encoder).fit(["y", "x", "y"])
    assert seen == [(["x", "y", "xy"], None), (["y", "x"], None)]


def test_predict_encodes_each_distinct_text_once(bi_encoder):
    bi_encoder.encoder_.func = asked = Counting(look_up)
    bi_encoder.predict([("x", "y"), ("y", "x"), ("xy", "x")])
    assert asked.asked == ["x", "y", "xy"]


def test_two_lists_are_refused_and_judgments_ignored(bi_encoder):
    first, second = ["x", "y"], np.array(["xy", "x"])
    match = r"texts or vectors as y.*fit\(list\(zip\(sentences1, sentences2\)\)\)"
    with pytest.raises(TypeError, match=match):
        bi_encoder.fit(first, second)
    with pytest.raises(NotFittedError):
        bi_encoder.predict([("x", "y")])
    pairs = list(zip(first, second, strict=True))
    assert_allclose(bi_encoder.fit(pairs, [1.0, 5.0]).predict(pairs), [0.5**0.5, 0])


def test_failing_fit_leaves_nothing_fitted(tiny_bert, pairs):
    model = BiEncoder(BertEncoder(tiny_bert)).fit(pairs)
    model.set_params(encoder__layers=9)
    with pytest.raises(ValueError, match="hidden state 9"):
        model.fit(pairs)
    with pytest.raises(NotFittedError):
        model.predict(pairs)


def test_parameters_are_checked(pairs):
    with pytest.raises(TypeError, match="The encoder is of type int; expected the folder"):
        BiEncoder(3).fit(pairs)


def ordinals(texts):
    return np.array([[float(ord(letter)) for letter in f"{t:>8}"] for t in texts])


@pytest.mark.parametrize("wrap", [lambda client: client, lambda client: client.encode])
def test_clones_share_a_client_and_ask_it_once_for_each_text(wrap, recent):
    recent.bound = 2**20
    client = Counting(ordinals)
    texts = [f"text {i}" for i in range(40)]
    model = BiEncoder(make_pipeline(TextEncoder(wrap(client)), Whitening(2, noise=1.0)))
    assert model.fit(texts).predict([(texts[0], texts[0])]) == pytest.approx(1)
    assert client.asked == texts
    pairs = list(zip(texts[:20], texts[:-21:-1], strict=True))
    grid = {"encoder__whitening__noise": [0.5, 1.0, 2.0]}
    search = GridSearchCV(model, grid, cv=4, error_score="raise")
    search.fit(pairs, np.arange(20) % 7)
    assert clone(search.best_estimator_).fit(pairs).predict(pairs).shape == (20,)
    assert len(client.asked) == 40


def test_a_pipeline_is_fitted_as_it_fits_itself(tiny_bert, texts, tmp_path):
    """Also with a cache of its own, a frame between the steps, and a step left out."""
    pytest.importorskip("pandas")
    plain = make_pipeline(BertEncoder(tiny_bert), Whitening(4, noise=1.0), Normalizer())
    cached = clone(plain).set_params(memory=str(tmp_path))
    framed = clone(plain).set_output(transform="pandas")
    none = clone(plain).set_params(normalizer="passthrough")
    texts = list(dict.fromkeys(texts))
    pairs = list(zip(texts[1:], texts[:-1], strict=True))
    for encoder in (plain, cached, framed, none):
        model = BiEncoder(encoder).fit(texts)
        expected = clone(encoder).fit(texts).transform(texts)
        assert_array_equal(model.encoder_.transform(texts), expected)
        assert_allclose(
            model.predict(pairs), BiEncoder(plain).fit(texts).predict(pairs), atol=1e-6
        )


def test_vectors_that_are_not_finite_or_sparse_are_refused(pairs):
    model = BiEncoder(FunctionTransformer(lambda texts: np.full((len(texts), 2), np.nan)))
    with pytest.raises(ValueError, match=f"first in the vector of {pairs[0][0]!r}"):
        model.fit(pairs).predict(pairs)
    with pytest.raises(TypeError, match="Sparse data was passed for vectors of the encoder"):
        BiEncoder(TfidfVectorizer()).fit(pairs).predict(pairs)
