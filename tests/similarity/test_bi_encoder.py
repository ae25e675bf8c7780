"""BiEncoder: similarities of pairs, and model selection by them."""

import numpy as np
import pytest
from counting import Counting
from numpy.testing import assert_allclose, assert_array_equal
from scipy.stats import spearmanr
from sklearn import config_context
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.frozen import FrozenEstimator
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer, Normalizer

from skcalib import (
    BertEncoder,
    BiEncoder,
    GroupErasure,
    TextEncoder,
    Whitening,
)

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
    match = r"texts such as 'xy' as y.*fit\(list\(zip\(sentences1, sentences2\)\)\)"
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


def test_a_frozen_encoder_keeps_its_fit_and_of_another_a_clone_is_fitted(
    tiny_bert, pairs, texts
):
    encoder = make_pipeline(BertEncoder(tiny_bert), Whitening(noise=1.0)).fit(texts[:6])
    expected = BiEncoder(FunctionTransformer(encoder.transform)).fit(pairs).predict(pairs)
    frozen = BiEncoder(FrozenEstimator(encoder)).fit(pairs)
    assert not np.allclose(BiEncoder(encoder).fit(pairs).predict(pairs), expected)
    assert_array_equal(frozen.predict(pairs), expected)


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


def with_erasure(encoder):
    return make_pipeline(encoder, GroupErasure(), Whitening(power="auto"))


@pytest.mark.filterwarnings("ignore:[12] of 2 groups have fewer")
@pytest.mark.parametrize("routed", [False, True])
@pytest.mark.parametrize("shape", ["texts", "pairs", "both"])
def test_groups_reach_the_erasure_whatever_the_routing(tiny_bert, texts, shape, routed):
    X = texts = list(dict.fromkeys(texts))[:10]
    given = groups = np.resize(["de", "en", "en"], 10)
    if shape != "texts":
        X, given = [*zip(texts[:5], texts[5:], strict=True)], groups.reshape(2, 5).T
    if shape == "pairs":
        given, groups = groups[:5], np.tile(groups[:5], 2)
    encoder = BertEncoder(tiny_bert)
    with config_context(enable_metadata_routing=routed):
        model = BiEncoder(with_erasure(encoder)).fit(X, groups=given)
        erasure = GroupErasure().fit(encoder.fit_transform(texts), groups=groups)
    assert_allclose(model.encoder_["grouperasure"].means_, erasure.means_, atol=1e-5)
    assert model.predict([(texts[0], texts[0])]) == pytest.approx(1)


@pytest.mark.filterwarnings("ignore:2 of 2 groups have fewer")
def test_a_text_of_two_groups_counts_in_each(tiny_bert):
    model = BiEncoder(with_erasure(BertEncoder(tiny_bert)))
    texts = ["the dog", "a man", "a river", "the dog", "the dog"]
    model.fit(texts, groups=[1, 1, 2, 2, 2])
    assert model.encoder_["grouperasure"].group_count_.tolist() == [2, 2]


def test_groups_that_nothing_takes_are_refused(tiny_bert, texts):
    with pytest.raises(ValueError, match="no step of the encoder accepts them"):
        BiEncoder(make_pipeline(BertEncoder(tiny_bert), Whitening())).fit(texts, groups=texts)


def test_groups_for_half_the_texts_or_row_by_row_are_refused():
    model = BiEncoder(with_erasure(FunctionTransformer(lambda texts: np.eye(len(texts)))))
    texts = [f"the dog {i}" for i in range(8)]
    with pytest.raises(ValueError, match=r"shape \(4,\) for 8 texts; expected \(8,\)\."):
        model.fit(texts, groups=["de", "en"] * 2)
    pairs = [*zip(texts[:4], texts[4:], strict=True)]
    with pytest.raises(ValueError, match=r"\(8,\) for 4 pairs; expected \(4,\), .* \(4, 2\)"):
        model.fit(pairs, groups=["de", "en"] * 4)


@pytest.mark.parametrize("names", [["de", "en"], [0, 1]])
def test_masked_groups_are_missing_and_others_are_taken(names):
    texts = [f"the dog {i}" for i in range(40)]
    encoder = with_erasure(FunctionTransformer(lambda t: np.eye(40)[: len(t)]))
    groups = np.ma.array(names * 20)
    fitted = BiEncoder(encoder).fit(texts, groups=groups).encoder_
    assert fitted["grouperasure"].groups_.tolist() == names
    groups[3] = np.ma.masked
    with pytest.raises(ValueError, match="groups has a missing label"):
        BiEncoder(encoder).fit(texts, groups=groups)


@pytest.mark.filterwarnings("ignore")
def test_a_search_routes_groups(tiny_bert, texts):
    pairs = [(a, b) for a in texts[:12] for b in texts[:4]]
    grades = np.arange(len(pairs)) % 5
    groups = np.resize(["de", "en"], len(pairs))
    with config_context(enable_metadata_routing=True):
        model = BiEncoder(with_erasure(BertEncoder(tiny_bert))).set_fit_request(groups=True)
        grid = {"encoder__whitening__power": [0, "auto"]}
        search = GridSearchCV(model, grid, cv=2).fit(pairs, grades, groups=groups)
    assert np.isfinite(search.cv_results_["mean_test_score"]).all()
    assert search.best_estimator_.encoder_["grouperasure"].groups_.tolist() == ["de", "en"]
