"""BiEncoder: similarities of pairs, and model selection by them."""

import pickle
import shutil

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy.stats import spearmanr
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.frozen import FrozenEstimator
from sklearn.model_selection import GridSearchCV, cross_val_predict, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer

from skcalib import BertEncoder, BiEncoder, Whitening
from skcalib.datasets import fetch_sts

VECTORS = {
    "x": [1.0, 0.0],
    "y": [0.0, 2.0],
    "xy": [3.0, 3.0],
    "-x": [-1.0, 0.0],
    "0": [0.0, 0.0],
}


def look_up(texts):
    return np.array([VECTORS[t] for t in texts])


@pytest.fixture
def bi_encoder():
    return BiEncoder(FunctionTransformer(look_up)).fit(["x"])


@pytest.fixture(scope="session")
def pairs(texts):
    return list(zip(texts, texts[3:] + texts[:3], strict=True))


@pytest.mark.parametrize(
    ("similarity", "expected"),
    [
        ("cosine", [1, 0, np.sqrt(0.5), -1, 0]),
        ("dot", [1, 0, 3, -1, 0]),
        ("euclidean", [0, -np.sqrt(5), -np.sqrt(13), -2, -1]),
    ],
)
def test_similarity_is_the_formula(bi_encoder, similarity, expected):
    pairs = [("x", "x"), ("x", "y"), ("x", "xy"), ("x", "-x"), ("x", "0")]
    similarities = bi_encoder.set_params(similarity=similarity).predict(pairs)
    assert similarities.dtype == np.float64
    assert_allclose(similarities, expected, atol=1e-15)


def test_cosines_of_nearly_parallel_float32_vectors_keep_their_order():
    # Angles from 1e-5 to 1e-4: all cosines are 1 in float32.
    angles = np.linspace(1e-5, 1e-4, 20)
    table = {str(i): [np.cos(a), np.sin(a)] for i, a in enumerate(angles)} | {"axis": [1, 0]}
    encoder = FunctionTransformer(lambda t: np.array([table[i] for i in t], dtype=np.float32))
    pairs = [("axis", str(i)) for i in range(20)]
    similarities = BiEncoder(encoder).fit(["axis"]).predict(pairs)
    assert (np.diff(similarities) < 0).all()


@pytest.mark.parametrize("scale", [1e-308, 1e-200, 1.0, 1e200])
def test_distances_neither_under_nor_overflow(scale):
    table = {"a": [0.0, 0.0], "b": [3.0 * scale, 4.0 * scale]}
    encoder = FunctionTransformer(lambda t: np.array([table[i] for i in t]))
    model = BiEncoder(encoder, similarity="euclidean").fit(["a"])
    assert_allclose(model.predict([("a", "b"), ("b", "b")]), [-5 * scale, 0], rtol=1e-14)


def test_score_is_spearman(bi_encoder):
    pairs = [("x", "x"), ("x", "y"), ("x", "xy"), ("y", "xy"), ("x", "-x")]
    y = [4, 3, 2, 5, 1]
    assert_allclose(bi_encoder.score(pairs, y), spearmanr(bi_encoder.predict(pairs), y)[0])


def test_fit_sees_each_distinct_text_once_and_no_judgement():
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
    seen = []

    def recorded(texts):
        seen.extend(texts)
        return look_up(texts)

    bi_encoder.encoder_.func = recorded
    bi_encoder.predict([("x", "y"), ("y", "x"), ("xy", "x")])
    assert seen == ["x", "y", "xy"]


def test_containers_of_pairs_give_the_same_result(bi_encoder):
    pd, pl = pytest.importorskip("pandas"), pytest.importorskip("polars")
    pairs = [("x", "y"), ("xy", "x"), ("y", "xy")]
    expected = bi_encoder.predict(pairs)
    for X in (
        [list(p) for p in pairs],
        np.array(pairs),
        np.array(pairs, dtype=object),
        pd.DataFrame(pairs, index=[7, 8, 9]),
        pl.DataFrame(pairs, orient="row", schema=["a", "b"]),
    ):
        assert_array_equal(bi_encoder.predict(X), expected)
        assert_array_equal(clone(bi_encoder).fit(X).predict(X), expected)


@pytest.mark.parametrize("make", [list, np.array])
def test_model_selection_takes_lists_and_arrays(tiny_bert, pairs, make):
    X, y = make(pairs), np.arange(len(pairs)) % 5
    model = BiEncoder(make_pipeline(BertEncoder(tiny_bert), Whitening(shrinkage=0.5)))
    assert np.isfinite(cross_val_score(model, X, y, cv=3)).all()
    assert cross_val_predict(model, X, y, cv=3).shape == (len(pairs),)
    grid = {
        "encoder__bertencoder__pooling": ["cls", "mean"],
        "encoder__whitening": ["passthrough", Whitening(4, shrinkage=0.1)],
    }
    search = GridSearchCV(model, grid, cv=2, error_score="raise").fit(X, y)
    assert search.best_estimator_.predict(X).shape == (len(pairs),)


def test_any_encoder_of_texts_will_do(pairs):
    encoder = make_pipeline(
        TfidfVectorizer(),
        FunctionTransformer(lambda X: X.toarray()),
        Whitening(shrinkage="auto"),
    )
    assert np.isfinite(BiEncoder(encoder).fit(pairs).predict(pairs)).all()


@pytest.mark.parametrize(
    ("X", "error", "message"),
    [
        (
            [("x", "y", "x")],
            ValueError,
            r"BiEncoder got an input of shape \(1, 3\).*\(n_pairs, 2\)",
        ),
        (["x", "y"], ValueError, r"shape \(2,\); it takes pairs"),
        ([("x", "y"), ("x",)], ValueError, "rows of different lengths.*row 1"),
        ([("x", None)], ValueError, r"missing value \(None\) at position 0, column 1"),
        ([(3, "x")], TypeError, r"int \(3\) at position 0, column 0"),
        ([], ValueError, r"0 sample\(s\)"),
        ("xy", TypeError, "single str"),
    ],
)
def test_bad_pairs_are_named(bi_encoder, X, error, message):
    with pytest.raises(error, match=message):
        bi_encoder.predict(X)


@pytest.mark.parametrize(
    ("y", "message"),
    [
        (["high", "low"], "y_true with entries such as .*'high'.*numbers"),
        ([1.0, np.nan], r"y_true\[1\] = nan"),
        ([1.0], "inconsistent numbers of samples"),
    ],
)
def test_bad_judgements_are_named(bi_encoder, y, message):
    with pytest.raises(ValueError, match=message):
        bi_encoder.score([("x", "y"), ("x", "x")], y)


def test_failing_fit_leaves_nothing_fitted(tiny_bert, pairs):
    model = BiEncoder(BertEncoder(tiny_bert)).fit(pairs)
    model.set_params(encoder__layers=9)
    with pytest.raises(ValueError, match="hidden state 9"):
        model.fit(pairs)
    with pytest.raises(NotFittedError):
        model.predict(pairs)


def test_parameters_are_checked(pairs):
    with pytest.raises(ValueError, match="'encoder' parameter of BiEncoder"):
        BiEncoder(3).fit(pairs)
    with pytest.raises(ValueError, match="'similarity' parameter"):
        BiEncoder(Whitening(), similarity="jaccard").fit(pairs)


def test_encoder_given_stays_unfitted(tiny_bert, pairs):
    encoder = BertEncoder(tiny_bert)
    BiEncoder(encoder).fit(pairs)
    with pytest.raises(NotFittedError):
        encoder.transform(["dog"])


def test_frozen_encoder_keeps_its_fit(tiny_bert, pairs, texts):
    encoder = make_pipeline(BertEncoder(tiny_bert), Whitening(noise=1.0)).fit(texts[:6])
    expected = BiEncoder(FunctionTransformer(encoder.transform)).fit(pairs).predict(pairs)
    frozen = BiEncoder(FrozenEstimator(encoder)).fit(pairs)
    assert_array_equal(frozen.predict(pairs), expected)
    assert not np.allclose(BiEncoder(encoder).fit(pairs).predict(pairs), expected)


@pytest.mark.parametrize("similarity", ["cosine", "dot", "euclidean"])
def test_random_pairs_are_those_of_the_fitted_texts(similarity):
    table = {"a": [1.0, 0.0], "b": [0.0, 2.0], "c": [3.0, 3.0], "d": [0.0, 0.0]}
    encoder = FunctionTransformer(lambda texts: np.array([table[t] for t in texts]))
    model = BiEncoder(encoder, similarity=similarity).fit([*"abcd", "a"])
    every = model.predict([(s, t) for s in "abcd" for t in "abcd" if s < t])
    assert_allclose(model.random_similarities_, np.sort(every), atol=1e-15)


@pytest.mark.parametrize("similarity", ["cosine", "euclidean"])
@pytest.mark.parametrize("scale", [1e-300, 1e-160, 1e200, 1e307])
def test_random_pairs_of_any_magnitude_are_those_of_predict(similarity, scale):
    table = {"a": [1.0, 0.0], "b": [1.0, 1.0], "c": [0.5, 1.0]}
    encoder = FunctionTransformer(lambda texts: scale * np.array([table[t] for t in texts]))
    model = BiEncoder(encoder, similarity=similarity).fit(list("abc"))
    every = np.sort(model.predict([("a", "b"), ("a", "c"), ("b", "c")]))
    assert_array_equal(model.random_similarities_, every)
    cosines, distances = [0.2**0.5, 0.5**0.5, 0.9**0.5], [-(1.25**0.5), -1.0, -0.5]
    expected = cosines if similarity == "cosine" else scale * np.array(distances)
    assert_allclose(every, expected, rtol=1e-14)


def test_threshold_is_the_smallest_that_keeps_the_rate(tiny_bert, texts):
    model = BiEncoder(BertEncoder(tiny_bert)).fit(texts)
    for rate in (0.05, 0.1, 0.5):
        threshold = model.threshold(rate)
        below = np.nextafter(threshold, -np.inf)
        reached, passed = model.false_positive_rate([threshold, below])
        assert reached <= rate < passed


def test_the_rate_holds_on_texts_that_were_not_fitted(minilm, sts_home, recent):
    recent.bound = 2**28  # each text goes through the model once

    def texts_of(split):
        return sorted(set(fetch_sts("stsb", split, data_home=sts_home).data.ravel()))[::4]

    fitted, held = texts_of("dev"), texts_of("test")
    encoder = make_pipeline(BertEncoder(minilm), Whitening(noise="auto"))
    model = BiEncoder(encoder).fit(fitted)
    rng = np.random.default_rng(0)
    i, j = rng.integers(len(held), size=(2, 20_000))
    pairs = [(held[a], held[b]) for a, b in zip(i, j, strict=True) if a != b]
    similarity = model.predict(pairs)
    for rate in (0.05, 0.01):
        assert rate / 2 < np.mean(similarity >= model.threshold(rate)) < 2 * rate


@pytest.mark.parametrize("rate", [0, 1, -0.1, np.nan, "1%", None])
def test_a_rate_out_of_range_is_named(bi_encoder, rate):
    model = BiEncoder(FunctionTransformer(look_up)).fit(["x", "y"])
    with pytest.raises(ValueError, match="between 0 and 1"):
        model.threshold(rate)
    with pytest.raises(ValueError, match="of 1 fitted ones that it sampled, no two have vec"):
        bi_encoder.threshold(0.1)


def test_random_pairs_follow_the_similarity(tiny_bert, texts):
    model = BiEncoder(BertEncoder(tiny_bert)).fit(texts)
    cosine = model.threshold(0.1)
    changed = model.set_params(similarity="euclidean").threshold(0.1)
    refitted = BiEncoder(BertEncoder(tiny_bert), similarity="euclidean").fit(texts)
    assert changed == pytest.approx(refitted.threshold(0.1), rel=1e-4)
    assert changed < 0 < cosine


def test_pickling_runs_no_model(tiny_bert_copy, texts):
    folder = tiny_bert_copy()
    model = BiEncoder(make_pipeline(BertEncoder(folder), Whitening(noise=1.0))).fit(texts)
    asked_later = pickle.loads(pickle.dumps(model))
    expected = model.threshold(0.1)
    assert asked_later.threshold(0.1) == expected
    shutil.rmtree(folder)
    content = pickle.dumps(model)
    assert not any(text.encode() in content for text in texts if len(text) > 20)
    assert pickle.loads(content).threshold(0.1) == expected


def test_a_rate_that_the_pairs_cannot_tell_warns(tiny_bert, texts):
    model = BiEncoder(BertEncoder(tiny_bert)).fit(texts)
    with pytest.warns(UserWarning, match="tell no such rate"):
        threshold = model.threshold(1e-6)
    assert threshold > model.random_similarities_[-1]


def test_vectors_that_are_not_finite_are_named(bi_encoder):
    model = BiEncoder(FunctionTransformer(lambda texts: np.full((len(texts), 2), np.nan)))
    with pytest.raises(ValueError, match="of 3 fitted ones that it sampled, no two have vec"):
        model.fit(["x", "y", "z"]).threshold(0.1)


def test_sparse_vectors_are_refused(pairs):
    with pytest.raises(TypeError, match="Sparse data was passed for vectors of the encoder"):
        BiEncoder(TfidfVectorizer()).fit(pairs).predict(pairs)


@pytest.mark.parametrize("bad", [[np.nan], np.ma.masked_array([0.5, 0.9], [False, True])])
def test_a_similarity_that_is_no_number_has_no_rate(bad):
    model = BiEncoder(FunctionTransformer(look_up)).fit(["x", "y"])
    with pytest.raises(ValueError, match="got a similarity that is no number"):
        model.false_positive_rate(bad)


def test_corrected_similarity_is_that_of_the_scale(tiny_bert, pairs):
    encoder = make_pipeline(BertEncoder(tiny_bert), Whitening(4, noise="auto"))
    model = BiEncoder(encoder, similarity="corrected").fit(pairs)
    left, right = (
        model.encoder_.transform(texts) for texts in map(list, zip(*pairs, strict=True))
    )
    np.testing.assert_allclose(
        model.predict(pairs), model.scale_.corrected(left, right), atol=1e-6
    )
    threshold = model.threshold(0.1)
    assert model.false_positive_rate([threshold])[0] <= 0.1
    model.set_params(similarity="cosine")
    assert model.threshold(0.1) != threshold
