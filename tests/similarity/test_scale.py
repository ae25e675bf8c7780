"""SimilarityScale: quantiles of all pairs, neighborhoods, and scikit-learn's contract."""

import pickle
import re
import shutil

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy.stats import beta
from sklearn.decomposition import PCA
from sklearn.exceptions import NotFittedError
from sklearn.frozen import FrozenEstimator
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import normalize

from skcalib import (
    BertEncoder,
    BiEncoder,
    SimilarityScale,
    Whitening,
)
from skcalib.datasets import fetch_sts


@pytest.fixture
def X():
    """Topics of unlike spread: 1,500 vectors of 20 dimensions, centred."""
    rng = np.random.default_rng(0)
    topics = rng.normal(size=(30, 20)).repeat(50, axis=0)
    X = topics * np.linspace(0, 2, 1500)[:, None] + rng.normal(size=(1500, 20))
    return X - X.mean(axis=0)


def all_cosines(X):
    unit = normalize(X)
    return (unit @ unit.T)[np.triu_indices(len(X), k=1)]


def nth(similarities, rate):
    """The similarity that as many pairs reach as may."""
    return np.sort(similarities)[-int(rate * (1 + len(similarities)))]


@pytest.mark.parametrize("shift", [0, 10])
def test_thresholds_are_quantiles_of_all_pairs_to_1e_6(X, shift):
    """Also in a narrow cone, where cosines differ in their last digits."""
    X = X + shift
    scale, cosines = SimilarityScale().fit(X), all_cosines(X)
    assert scale.n_pairs_ == len(cosines)
    for rate in (0.5, 1e-2, 1e-3, 1e-5):
        assert_allclose(scale.threshold(rate), nth(cosines, rate), atol=1e-6 + 2**-20)
        assert (cosines >= scale.threshold(rate)).mean() <= rate


def with_equal_rows(seed, d=37):
    """The last 60 of 260 are one direction, as those of texts with one known word."""
    X = np.random.default_rng(seed).normal(size=(260, d))
    X[200:] = np.arange(1, 61)[:, None] * X[200]
    return X


def signs(seed):
    """Cosines are multiples of 1/10, each of which many pairs share."""
    return np.random.default_rng(seed).choice([-1.0, 1.0], size=(260, 20))


def test_equal_rows_count_once(X):
    once = SimilarityScale().fit(X[:300])
    again = SimilarityScale().fit(np.repeat(X[:300], 4, axis=0))
    assert again.n_pairs_ == once.n_pairs_
    for per in ("pair", "query"):
        assert again.threshold(0.02, per=per) == once.threshold(0.02, per=per)
    queries = queries_of(X)
    once, often = (
        SimilarityScale().fit(X, unanswerable=Q) for Q in (queries, queries.repeat(4, 0))
    )
    for per in ("pair", "query"):
        assert often.threshold(0.01, per=per) == once.threshold(0.01, per=per)
    assert often.n_queries_ == len(queries)
    with pytest.raises(ValueError, match="got 1 vectors that differ and are not zero"):
        SimilarityScale().fit(np.tile(X[:1], (9, 1)))


@pytest.mark.parametrize("whitening", [Whitening(shrinkage="auto"), Whitening(power="auto")])
@pytest.mark.parametrize("n", [60, 400])
def test_pairs_are_left_out_of_the_fit_of_a_calibration(whitening, n):
    """Per pair both texts, per query the query; the rates are those of new vectors.

    Pairs that were fitted are less similar: up to half of the new ones would pass.
    """
    rng, passed = np.random.default_rng(0), {"pair": [], "query": []}
    for _ in range(8):
        X, new = (rng.normal(size=(m, 60)) * np.arange(1, 61) ** -0.3 for m in (n, 400))
        scale = SimilarityScale(whitening).fit(X)
        documents, asked = (normalize(scale.encoder_.transform(V)) for V in (X, new))
        pairs = (asked @ asked.T)[np.triu_indices(400, 1)]
        passed["pair"].append((pairs >= scale.threshold(0.01)).mean() / 0.01)
        best = (asked @ documents.T).max(axis=1)
        passed["query"].append((best >= scale.threshold(0.05, per="query")).mean() / 0.05)
    low = 0.1 if n == 60 else 0.3  # three fifths are few to fit on, so it is strict
    assert low < np.mean(passed["pair"]) < 1.2
    assert low < np.mean(passed["query"]) < 1.2


@pytest.mark.filterwarnings("ignore:The vectors have a mean of zero")
def test_a_frozen_calibration_and_queries_need_no_other_fit(X):
    fitted = Whitening(power="auto").fit(X[:700])
    plain = SimilarityScale().fit(fitted.transform(X[700:]))
    scale = SimilarityScale(FrozenEstimator(fitted)).fit(X[700:])
    assert scale.threshold(0.01) == plain.threshold(0.01)
    queries = queries_of(X)
    scale = SimilarityScale(Whitening(power="auto")).fit(X, unanswerable=queries)
    Z, Q = (scale.encoder_.transform(V) for V in (X, queries))
    by_hand = SimilarityScale().fit(Z, unanswerable=Q)
    for per in ("pair", "query"):
        assert scale.threshold(0.01, per=per) == by_hand.threshold(0.01, per=per)
    with pytest.raises(ValueError, match="got 4 distinct vectors and a calibration"):
        SimilarityScale(Whitening(power="auto")).fit(X[:4])
    for n in (5, 50):  # of as few pairs as may be asked for
        assert SimilarityScale(Whitening(power="auto"), n_pairs=10).fit(X[:n]).n_pairs_ == 10
    with pytest.raises(ValueError, match=r"'n_pairs' parameter .* Got 5"):
        SimilarityScale(Whitening(power="auto"), n_pairs=5).fit(X)
    with pytest.raises(ValueError, match="n_components=8") as error:
        SimilarityScale(PCA(8)).fit(X[:12])
    assert "on three fifths of 12 vectors" in error.value.__notes__[0]


def test_vectors_that_a_calibration_was_fitted_on_are_warned_of(X):
    few = Whitening().fit_transform(X[:150])
    with pytest.warns(UserWarning, match=r"mean of these 150 vectors is zero.*Scale\(calib"):
        SimilarityScale().fit(few)
    SimilarityScale().fit(few[:149])  # no warning, nor of many
    SimilarityScale().fit(Whitening().fit_transform(X))


@pytest.mark.parametrize("make", [with_equal_rows, signs])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_no_rate_is_passed_where_many_pairs_are_equally_similar(make, dtype):
    for seed in range(2):
        X = np.unique(make(seed), axis=0)
        scale = SimilarityScale().fit(X)
        unit = normalize(X).astype(dtype)
        cosines = (unit @ unit.T)[np.triu_indices(len(X), k=1)]
        for rate in (0.5, 0.1, 0.03, 5e-3):
            assert (cosines >= scale.threshold(rate)).mean() <= rate
        # The largest p-value that is right; a rounding of 1e-7 must not lose the ties.
        values, counts = np.unique(np.round(cosines, 5), return_counts=True)
        at_least = (1 + counts[::-1].cumsum()[::-1]) / (1 + len(cosines))
        for shift in (0, -1e-7, 1e-7):
            told = scale.p_value(values[-3:] + shift)
            if make is signs:
                assert_allclose(told, at_least[-3:])
            else:
                assert_allclose(told[-1], at_least[-1])


def test_p_value_and_threshold_are_each_others_inverse(X):
    scale = SimilarityScale().fit(X)
    for rate in (0.9, 0.1, 1e-3, 1e-5):
        threshold = scale.threshold(rate)
        below = np.nextafter(threshold, -np.inf)
        p_value = scale.p_value([threshold, below])
        assert p_value[0] <= rate < p_value[1]
    ends = 1 / (1 + scale.n_pairs_)
    assert_array_equal(scale.p_value([1.0, -1.0]), [ends, 1.0])
    with pytest.raises(ValueError, match=r"has 2\.5; expected cosines, from -1 to 1"):
        scale.p_value([0.5, 2.5])


def test_a_sample_of_pairs_tells_nearly_the_same(X):
    whole, some = all_cosines(X), SimilarityScale(n_pairs=100_000).fit(X)
    assert 100_000 <= some.n_pairs_ < 101_000
    for rate in (0.1, 1e-2, 1e-3):
        assert rate / 1.5 < (whole >= some.threshold(rate)).mean() < 1.5 * rate


def test_rates_hold_on_real_texts_that_were_not_fitted(minilm, sts_home):
    texts = np.unique(fetch_sts("stsb", "dev", data_home=sts_home).data.ravel())
    vectors = BertEncoder(minilm).fit_transform(texts[::10].tolist())
    fitted, new = vectors[::2], vectors[1::2]
    whitening = Whitening(power="auto").fit(fitted)
    scale = SimilarityScale().fit(whitening.transform(fitted))
    cosines = all_cosines(whitening.transform(new))
    for rate in (1e-1, 1e-2, 1e-3):
        assert rate / 2 < (cosines >= scale.threshold(rate)).mean() < 2 * rate


def test_what_a_sample_cannot_tell_is_refused(X):
    for n in (7, 30, 61, 100, 317):  # the rate that is named is accepted
        scale = SimilarityScale().fit(X[:n])
        match = r"rate=1e-05 needs 999,999 pairs, of 1,415 texts; .* set .*rate=([.\de-]+) or m"
        with pytest.raises(ValueError, match=match) as error:
            scale.threshold(1e-5)
        least = float(re.search(match, str(error.value))[1])
        assert np.isfinite(scale.threshold(least))
        with pytest.raises(ValueError, match=match[-20:]):
            scale.threshold(0.9 * least)
    for rate in (0, 1, 5, np.nan, None, "1%"):
        with pytest.raises(ValueError, match=rf"rate' parameter of Sim.* Got {rate!r}"):
            scale.threshold(rate)
    with pytest.raises(ValueError, match="similarity has nan; expected cosines"):
        scale.p_value([np.nan])
    with pytest.raises(ValueError, match="'per' parameter of SimilarityScale"):
        scale.p_value([0.5], per="text")
    with pytest.raises(ValueError, match=r"needs 19 pairs, of 7 texts; got 1\. Give more\.$"):
        SimilarityScale().fit(X[:2]).threshold(0.5)
    with pytest.raises(ValueError, match="X contains NaN"):
        scale.fit(X * np.nan)
    for ask in (scale.threshold, lambda: scale.p_value([1])):
        with pytest.raises(NotFittedError):  # nothing half-fitted
            ask()


def test_precision_pickles_and_frames(X):
    pandas = pytest.importorskip("pandas")
    scale = SimilarityScale().fit(X.astype(np.float32))
    frame = pandas.DataFrame(X).rename(columns=str)
    assert_array_equal(SimilarityScale().fit(frame).feature_names_in_, frame.columns)
    pickled = pickle.dumps(scale)
    back = pickle.loads(pickled)
    assert back.threshold(1e-3) == scale.threshold(1e-3)
    assert len(pickled) < 6e6  # 2 million bins


def queries_of(X):
    """Queries: other vectors of the same topics, set apart by an offset."""
    rng = np.random.default_rng(5)
    return X[rng.integers(len(X), size=700)] + rng.normal(size=(700, 20)) + 0.7


def test_vectors_with_a_model_of_texts_are_refused(X, minilm):
    for encoder in minilm, BertEncoder(minilm):
        with pytest.raises(ValueError, match=r"has shape .* leave out the encoder"):
            SimilarityScale(encoder).fit(X)


def test_pairs_of_queries_and_documents_are_counted_instead(X):
    queries = queries_of(X)
    scale = SimilarityScale().fit(X, unanswerable=queries)
    cosines = (normalize(queries) @ normalize(X).T).ravel()
    assert (scale.n_pairs_, scale.n_queries_) == (700 * 1500, 700)
    for rate in (0.1, 1e-3, 1e-5):
        assert_allclose(scale.threshold(rate), nth(cosines, rate), atol=3e-6)
    with pytest.raises(ValueError, match=r"X has 3 features.* expecting 20"):
        scale.fit(X, unanswerable=queries[:, :3])
    with pytest.raises(NotFittedError):
        scale.threshold()


@pytest.mark.parametrize("given", [True, False])
def test_the_best_document_of_a_query_is_counted_per_query(X, given):
    """A document that stands for a query does not find itself."""
    queries = queries_of(X) if given else X
    scale = SimilarityScale().fit(X, unanswerable=queries if given else None)
    cosines = normalize(queries) @ normalize(X).T
    if not given:
        np.fill_diagonal(cosines, -1)
    best = cosines.max(axis=1)
    for rate in (0.5, 0.05, 2e-3):
        threshold = scale.threshold(rate, per="query", confidence=None)
        expected = nth(best, rate) if given else np.sort(best)[1 - int(rate * 1501)]
        assert_allclose(threshold, expected, atol=2e-6)
        assert scale.p_value(threshold, per="query") <= rate
    match = "9,999 unanswerable queries; got 700" if given else "19,999 texts; got 1,500"
    with pytest.raises(ValueError, match=f"needs {match}"):
        scale.threshold(1e-4, per="query")
    assert scale.p_value([-1.0], per="query") == 1


KINDS = "normal", "heavy", "families", "skewed"


def drawn(rng, kind, n):
    """Vectors of 8 dimensions; "families" are five of unequal size, "skewed" is positive."""
    X = rng.normal(size=(n, 8))
    if kind == "heavy":
        X /= np.sqrt(rng.chisquare(2, size=(n, 1)) / 2)
    if kind == "families":
        centers = np.random.default_rng(7).normal(size=(5, 8))
        X = 0.3 * X + centers[rng.choice(5, n, p=[0.5, 0.2, 0.15, 0.1, 0.05])]
    return np.exp(X) if kind == "skewed" else X


def rates_of_fits(kind, n_queries, rate, n_fits=60, stored=80, **params):
    """The rate of each of many fits, among many new queries."""
    rng, rates = np.random.default_rng(0), []
    for _ in range(n_fits):
        documents = drawn(rng, kind, stored)
        queries = drawn(rng, kind, n_queries) if n_queries else None
        scale = SimilarityScale().fit(documents, unanswerable=queries)
        threshold = scale.threshold(rate, per="query", **params)
        new = normalize(drawn(rng, kind, 2000)) @ normalize(documents).T
        rates.append(np.mean(new.max(axis=1) >= threshold))
    return np.array(rates)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("n_queries", "rate"), [(39, 0.1), (150, 0.05)])
def test_a_rate_per_query_holds_on_average_over_fits(kind, n_queries, rate):
    rates = rates_of_fits(kind, n_queries, rate, confidence=None)
    assert 0.8 * rate < rates.mean() < 1.2 * rate
    most = int(rate * (n_queries + 1) + 1e-9)  # of the fits this share exceeds it
    expected = beta.sf(rate, most, n_queries + 1 - most)
    assert abs(np.mean(rates > rate) - expected) < 2 * np.sqrt(expected / len(rates))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("n_queries", "rate"), [(100, 0.1), (150, 0.05)])
def test_from_100_queries_on_a_rate_holds_for_nine_in_ten_fits(kind, n_queries, rate):
    rates = rates_of_fits(kind, n_queries, rate)
    assert np.mean(rates > rate) <= 0.1 + 2 * np.sqrt(0.1 * 0.9 / len(rates))
    assert rates.mean() > 0.4 * rate  # and is not far too strict


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("n", "rate", "low"), [(50, 0.05, 0.5), (100, 0.1, 0.3)])
def test_a_rate_of_stored_texts_holds_for_a_new_text(kind, n, rate, low):
    """On average; from 100 texts on, for nine in ten fits."""
    rates = rates_of_fits(kind, 0, rate, stored=n)
    error = 2 * np.std(rates) / np.sqrt(len(rates))
    assert low * rate < rates.mean() < rate + error
    if n >= 100:
        assert np.mean(rates > rate) <= 0.1 + 2 * np.sqrt(0.1 * 0.9 / len(rates))


def test_queries_that_are_too_few_for_this_fit_or_for_any(X):
    scale = SimilarityScale().fit(X, unanswerable=queries_of(X)[:150])
    average = scale.threshold(0.01, per="query", confidence=None)
    assert scale.threshold(0.01, per="query") == average  # 230 are needed for this fit
    with pytest.raises(ValueError, match=r"needs 230 unanswerable queries; .*=0\.016 or"):
        scale.threshold(0.01, per="query", confidence=0.9)
    assert scale.threshold(0.016, per="query") > scale.threshold(0.1, per="query")
    for confidence in (0, 1, "often"):
        with pytest.raises(ValueError, match="'confidence' parameter of SimilarityScale"):
            scale.threshold(0.1, per="query", confidence=confidence)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("n", "rate", "most"), [(50, 0.05, 2.0), (200, 0.01, 1.5)])
def test_a_rate_per_pair_holds_on_average_and_nearly_for_each_fit(kind, n, rate, most):
    rng, rates = np.random.default_rng(0), []
    for _ in range(40):
        scale = SimilarityScale().fit(drawn(rng, kind, n))
        rates.append(
            (all_cosines(drawn(rng, kind, 600)) >= scale.threshold(rate)).mean() / rate
        )
    assert 0.8 < np.mean(rates) < 1.2
    assert np.quantile(rates, 0.9) < most


def test_texts_are_encoded_and_counted_as_their_vectors(tiny_bert, texts):
    texts = list(dict.fromkeys(texts))
    encoder = make_pipeline(BertEncoder(tiny_bert), Whitening(noise=1.0))
    by_texts = SimilarityScale(encoder).fit([*texts, texts[3]])
    by_vectors = SimilarityScale(encoder[1:]).fit(BertEncoder(tiny_bert).fit_transform(texts))
    assert by_texts.threshold(0.3) == pytest.approx(by_vectors.threshold(0.3), abs=3e-6)
    pairs = list(zip(texts[1:], texts[:-1], strict=True))
    expected = BiEncoder(encoder).fit(texts).predict(pairs)
    found = BiEncoder(FrozenEstimator(by_texts.encoder_)).fit(texts).predict(pairs)
    assert_allclose(found, expected, atol=1e-6)
    asked = SimilarityScale(encoder).fit(texts[:-4], unanswerable=texts[-4:])
    assert (asked.n_queries_, asked.n_pairs_) == (4, 4 * (len(texts) - 4))
    with pytest.raises(TypeError, match="Got texts, such as"):
        SimilarityScale().fit(texts)
    for given in (texts[:3], np.ones((3, 2))):
        with pytest.raises(TypeError, match=r"as y.*fit\(X, unanswerable=queries\)"):
            SimilarityScale(encoder).fit(texts, given)


def test_a_threshold_is_pickled_without_texts(tiny_bert_copy, texts):
    folder = tiny_bert_copy()
    scale = SimilarityScale(make_pipeline(BertEncoder(folder), Whitening(noise=1.0))).fit(texts)
    content = pickle.dumps(scale)
    shutil.rmtree(folder)
    assert not any(text.encode() in content for text in texts if len(text) > 20)
    assert pickle.loads(content).threshold(0.3) == scale.threshold(0.3)


@pytest.mark.parametrize("step", [None, Whitening(power="auto")])
def test_texts_that_differ_in_the_last_bit_count_once(X, step):
    again = (X[:400] + 1) * (1 + 1e-7 * np.random.default_rng(0).normal(size=(400, 20)))
    once = SimilarityScale(step).fit(X[:400] + 1)
    both = SimilarityScale(step).fit(np.vstack([X[:400] + 1, again]))
    assert (both.n_pairs_, both.n_queries_) == (once.n_pairs_, once.n_queries_)
    for per in ("pair", "query"):
        assert both.threshold(0.02, per=per) == once.threshold(0.02, per=per)
    near = X[:400] + 1e-3 * np.random.default_rng(1).normal(size=(400, 20))
    assert SimilarityScale().fit(np.vstack([X[:400], near])).n_pairs_ == 800 * 799 / 2
