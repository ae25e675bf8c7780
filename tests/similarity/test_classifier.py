"""ZeroShotClassifier: classes from names, from a few labels, and none of these."""

from functools import cache

import numpy as np
import pandas as pd
import pytest
from counting import Counting
from numpy.testing import assert_allclose, assert_array_equal
from scipy.special import softmax
from sklearn import config_context
from sklearn.base import clone
from sklearn.calibration import CalibratedClassifierCV
from sklearn.frozen import FrozenEstimator
from sklearn.metrics import get_scorer
from sklearn.model_selection import (
    GridSearchCV,
    KFold,
    TunedThresholdClassifierCV,
    cross_val_predict,
)
from sklearn.pipeline import make_pipeline

from skcalib import BertEncoder, TextEncoder, Whitening, ZeroShotClassifier
from skcalib.datasets import load_docstrings, load_questions
from skcalib.similarity.class_means import _weight_of_names

TOPICS = {0: "music", 1: "animals", 2: "cooking"}
PLACES = np.random.default_rng(7).normal(size=(4, 40))


@cache
def vector(text):
    """Texts "k i" lie around the place of topic k; names of topics lie near it, all moved."""
    if text in TOPICS.values():
        topic, rng = list(TOPICS.values()).index(text), np.random.default_rng(len(text))
        return 0.6 * PLACES[topic] + 5 + rng.normal(size=40) / 3
    topic, number = map(int, text.split())
    return PLACES[topic] + np.random.default_rng([topic, number]).normal(size=40)


def vectors(texts):
    return np.stack([*map(vector, texts)])


def texts_of(topics=(0, 1, 2), start=0, n=60):
    return [f"{topic} {i}" for i in range(start, start + n) for topic in topics]


def truth(texts):
    return np.array([int(text.split()[0]) for text in texts])


def drawn(class_names=TOPICS, **params):
    return ZeroShotClassifier(TextEncoder(vectors), class_names, **params)


def test_names_and_texts_make_classes():
    model, new = drawn().fit(texts_of()), texts_of(start=1000)
    assert model.score(new, truth(new)) > 0.95
    scores = model.decision_function(new)
    assert scores.shape == (180, 3)
    assert_array_equal(model.classes_[scores.argmax(axis=1)], model.predict(new))
    probabilities = model.predict_proba(new)
    assert_allclose(probabilities.sum(axis=1), 1)
    assert_array_equal(probabilities.argmax(axis=1), scores.argmax(axis=1))


def test_the_greatest_score_is_that_of_the_nearest_mean():
    model, new = drawn().fit(texts_of()), texts_of(start=1000)
    vectors = model.encoder_.transform(new)
    units = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
    views = np.hstack([units, model.smoothing_.transform(vectors)])
    distances = ((views[:, None] - model.class_means_) ** 2).sum(axis=2)
    # Half the mean over both halves, up to the text's own length.
    assert_allclose(model.decision_function(new), (2 - distances) / 4)


def test_neither_the_order_of_texts_nor_that_of_names_matters():
    texts = texts_of()
    expected = drawn(rejection_rate=0.1).fit(texts)
    shuffled = np.random.default_rng(0).permutation(texts + texts[:20]).tolist()
    names = dict(reversed(TOPICS.items()))
    found = drawn(names, rejection_rate=0.1).fit(shuffled)
    assert_array_equal(found.class_means_, expected.class_means_)
    assert_array_equal(found.classes_, expected.classes_)
    assert found.threshold_ == expected.threshold_


def test_a_new_text_is_encoded_once_where_a_pipeline_calibrates():
    """It is compared before and after the calibration."""
    counting = Counting(vectors)
    encoder = make_pipeline(TextEncoder(counting), Whitening(power="auto"))
    model = ZeroShotClassifier(encoder, TOPICS, rejection_rate=0.1).fit(texts_of())
    counting.asked.clear()
    new = texts_of(start=1000)[:5]
    model.predict(new)
    assert sorted(counting.asked) == sorted(new)


def test_a_few_texts_mislead_no_names():
    """Texts of four classes differ more by what they are about, which names do not say."""
    lost = []
    for seed in range(12):
        rng = np.random.default_rng(seed)
        places, others = rng.normal(size=(4, 16)), 1.5 * rng.normal(size=(8, 16))
        labels = rng.integers(4, size=512)
        texts = places[labels] + others[rng.integers(8, size=512)]
        texts += 0.5 * rng.normal(size=texts.shape)
        named = {f"name {c}": place for c, place in enumerate(places)}
        table = named | {f"text {i}": text for i, text in enumerate(texts)}
        encoder = TextEncoder(lambda asked, table=table: np.stack([table[t] for t in asked]))
        model = ZeroShotClassifier(encoder, dict(enumerate(named)))
        found = model.fit([f"text {i}" for i in range(12)]).predict([*table][16:])
        units = places / np.linalg.norm(places, axis=1, keepdims=True)
        nearest = (texts[12:] @ units.T).argmax(axis=1)
        lost.append(np.mean(nearest == labels[12:]) - np.mean(found == labels[12:]))
    assert np.mean(lost) < 0.03  # 0.14 if neighbors and rounds count in full


@pytest.mark.parametrize("missing", [None, np.nan, -1, pd.NA])
@pytest.mark.parametrize("names", [None, TOPICS])
def test_a_few_labels_tell_classes(names, missing):
    texts, new = texts_of(), texts_of(start=1000)
    labels = [label if i < 9 else missing for i, label in enumerate(truth(texts).tolist())]
    for y in (labels, pd.Series(labels, index=range(7, 187), dtype=object)):
        model = drawn(names).fit(texts, y)
        assert_array_equal(model.classes_, [0, 1, 2])
        assert model.score(new, truth(new)) > 0.9
        assert model.score(texts, y) == model.score(texts[:9], labels[:9])


def test_the_more_examples_of_a_class_the_more_weak_directions_count():
    texts = texts_of()
    labels = np.where(np.arange(180) < 9, truth(texts), -1)
    cases = (TOPICS, None, 1), (None, labels, 3), (TOPICS, labels, 4)
    for names, y, n in cases:  # a text twice is one example
        model = drawn(names).fit(texts * 2, None if y is None else np.tile(y, 2))
        assert model.encoder_["calibrate"].power_ == n / (n + 4)


def test_labels_that_no_class_has_count_as_wrong():
    texts = texts_of()
    named = drawn(["music", "animals", "cooking"]).fit(texts)
    assert named.score(["2 5", "0 5"], ["cooking at home", "music"]) == 0.5
    assert drawn().fit(texts).score(["2 5", "0 5"], [2.5, 0]) == 0.5


@pytest.mark.parametrize("n_labels", [3, 6, 30])
def test_names_that_labels_contradict_are_outvoted(n_labels):
    """The names of two classes are exchanged, and one label of each or more is right."""
    texts = texts_of()
    wrong = {0: "animals", 1: "music", 2: "cooking"}
    labels = np.where(np.arange(180) < n_labels, truth(texts), -1)
    by_both, alone = (drawn(names).fit(texts, labels) for names in (wrong, None))
    assert by_both.score(texts, truth(texts)) > alone.score(texts, truth(texts)) - 0.05


def test_texts_of_no_class_in_the_fit_are_rejected_if_the_rate_includes_them():
    """A third of a log is out of scope; the rate is the share of the log that is rejected."""
    log = texts_of(n=60) + texts_of(topics=(3,), n=90)
    new, others = texts_of(start=1000), texts_of(topics=(3,), start=1000)
    model = drawn(rejection_rate=0.45, other=-1).fit(log)
    assert np.mean(model.predict(others) == -1) > 0.8
    assert np.mean(model.predict(new) == -1) < 0.25


def skewed(n, n_small):
    """Texts of which most have nothing in common, and texts of one topic."""
    strange = [f"3 {i}" for i in range(n)]
    topic = [f"0 {i}" for i in range(n_small)]
    return strange, topic


def of_skewed(texts):
    """Vectors: topic 0 around its place, the others in every direction around the origin."""
    rngs = [np.random.default_rng([*map(int, text.split())]) for text in texts]
    return np.stack(
        [
            rng.normal(size=40) + (2 * PLACES[0] if text[0] == "0" else 0)
            for rng, text in zip(rngs, texts, strict=True)
        ]
    )


def test_a_class_of_most_texts_that_have_nothing_in_common():
    """Its mean is near that of all, so that its direction says nothing."""
    strange, topic = skewed(700, 100)
    texts, new = strange[:350] + topic[:50], strange[350:] + topic[50:]
    labels = [t[0] if i % 350 < 3 else None for i, t in enumerate(texts)]
    model = ZeroShotClassifier(TextEncoder(of_skewed)).fit(texts, labels)
    assert model.score(new, [text[0] for text in new]) > 0.95


@pytest.mark.parametrize("words", [["Music", "music"], ["animals", "Music", "MUSIC"]])
def test_names_that_the_encoder_cannot_distinguish_are_refused(words):
    def lower(texts):
        return vectors([text.lower() for text in texts])

    model = ZeroShotClassifier(TextEncoder(lower), words)
    with pytest.raises(ValueError, match=r"'(MUSIC|Music)' and '[mM]usic' the same vector"):
        model.fit(texts_of())
    assert not hasattr(model, "classes_")
    several = {"a": ["Music", "animals"], "b": ["animals", "music"], "c": "cooking"}
    with pytest.raises(ValueError, match="classes 'a' and 'b' the same vector"):
        model.set_params(class_names=several).fit(texts_of())


def test_labels_are_returned_as_given():
    texts = texts_of()
    names = drawn(["music", "animals", "cooking"]).fit(texts)
    assert names.predict(["0 5", "1 5"]).tolist() == ["music", "animals"]
    described = {"b": ["music"], "a": "animals", "c": "cooking"}
    assert drawn(described).fit(texts).predict(["0 5", "1 5"]).tolist() == ["b", "a"]
    large = [3, 2**63 + 1]  # an array of both is of floats
    texts = texts_of(topics=(0, 1))
    model = ZeroShotClassifier(drawn().encoder)
    model.fit(texts, [large[topic] for topic in truth(texts)])
    assert model.predict(["0 5", "1 5"]).tolist() == large


@pytest.mark.parametrize(
    ("n", "rate", "draws"), [(20, 0.05, 40), (60, 0.2, 100), (400, 0.05, 10)]
)
def test_no_more_new_texts_are_rejected_than_promised(n, rate, draws):
    shares = []
    for draw in range(draws):
        pool, new = (texts_of(start=2000 * draw + s, n=400) for s in (0, 1000))
        fitted = np.random.default_rng(draw).permutation(pool)[:n].tolist()
        predicted = drawn(rejection_rate=rate, other=-1).fit(fitted).predict(new[:300])
        shares.append(np.mean(predicted == -1))
    error = np.std(shares) / draws**0.5
    assert 0 < np.mean(shares) < rate + 2 * error
    if n > 100:  # with few texts, fewer
        assert np.mean(shares) > 0.6 * rate


@pytest.mark.parametrize(("n", "rate"), [(100, 0.1), (150, 0.05)])
def test_from_100_texts_on_the_rate_holds_for_nine_in_ten_fits(n, rate):
    shares = []
    for draw in range(20):
        pool, new = (texts_of(start=4000 * draw + s, n=400) for s in (0, 2000))
        fitted = np.random.default_rng(draw).permutation(pool)[:n].tolist()
        predicted = drawn(rejection_rate=rate, other=-1).fit(fitted).predict(new)
        shares.append(np.mean(predicted == -1))
    assert np.mean(np.array(shares) > rate) <= 0.1 + 2 * np.sqrt(0.1 * 0.9 / len(shares))
    assert np.mean(shares) > 0.4 * rate


def test_near_copies_count_as_one_text():
    def near(texts):
        """Text "k i" is one of five near-copies of the vector of "k i // 5"."""
        copies = [i if i in TOPICS.values() else f"{i[0]} {int(i[2:]) // 5}" for i in texts]
        return vectors(copies) + 0.1 * vectors([f"3 {hash_of(text)}" for text in texts])

    def hash_of(text):
        return int.from_bytes(text.encode(), "little") % 10_000

    shares = []
    for draw in range(40):
        fitted, new = (texts_of(start=2000 * draw + s, n=100) for s in (0, 1000))
        model = ZeroShotClassifier(TextEncoder(near), TOPICS, rejection_rate=0.05, other=-1)
        shares.append(np.mean(model.fit(fitted).predict(new) == -1))
    assert np.mean(shares) < 1.2 * 0.05
    with pytest.raises(ValueError, match=r"19 distinct texts, near-copies once; got 12\."):
        model.fit(texts_of(n=20))


def test_a_circle_of_neighbors_is_no_single_text():
    """Each is near the next, and all are connected."""

    def on_circle(texts):
        angles = 2 * np.pi * np.array([int(text) for text in texts]) / 200
        return np.column_stack([np.cos(angles), np.sin(angles)])

    encoder = FrozenEstimator(TextEncoder(on_circle).fit(["0"]))
    model = ZeroShotClassifier(encoder, {i: str(50 * i) for i in range(4)}, rejection_rate=0.1)
    model.fit([*map(str, range(200))])
    assert np.isfinite(model.threshold_)
    assert np.mean(model.predict([*map(str, range(200))]) == "other") < 0.2


def test_names_move_to_the_mean_without_the_text_that_is_judged():
    """With few texts, a judged text that moved them would seem nearer than a new one."""
    frozen = FrozenEstimator(
        make_pipeline(TextEncoder(vectors), Whitening(power="auto")).fit(texts_of())
    )
    shares = []
    for draw in range(40):
        pool, new = (texts_of(start=2000 * draw + s, n=400) for s in (1000, 2000))
        fitted = np.random.default_rng(draw).permutation(pool)[:20].tolist()
        model = ZeroShotClassifier(frozen, TOPICS, rejection_rate=0.05, other=-1).fit(fitted)
        shares.append(np.mean(model.predict(new[:300]) == -1))
    assert np.mean(shares) < 0.05 + 2 * np.std(shares) / 40**0.5


@pytest.mark.parametrize(("rate", "least"), [(0.05, 19), (1 / 49, 48), (0.3, 3), (0.9, 2)])
def test_a_rate_that_takes_more_texts_is_refused(rate, least):
    texts = texts_of(n=20)
    model = drawn(rejection_rate=rate, other=-1).fit(texts[:least])
    assert np.isfinite(model.threshold_)
    if least > 2:
        few = texts[: least - 1]
        with pytest.raises(ValueError, match=f"needs {least} distinct texts; got {least - 1}"):
            model.fit([*few, few[0]])
        assert not hasattr(model, "classes_")


def test_all_labels_of_a_class_may_be_left_out_with_a_fold():
    texts = texts_of(n=10)
    labels = [0, None, 2, *[None] * 27]  # topic 1 has none
    model = ZeroShotClassifier(TextEncoder(vectors), rejection_rate=0.1).fit(texts, labels)
    assert np.isfinite(model.threshold_)
    alone = ZeroShotClassifier(TextEncoder(vectors), rejection_rate=0.1).fit(
        texts, [5] + [None] * 29
    )
    assert set(alone.predict(texts).tolist()) <= {5, "other"}


def test_texts_of_no_class_are_rejected():
    model = drawn(rejection_rate=0.05, other="none").fit(texts_of(n=300))
    of_no_class = texts_of(topics=(3,))
    assert np.mean(model.predict(of_no_class) == "none") > 0.9
    assert model.predict(["0 5", *of_no_class[:1]]).tolist() == [0, "none"]
    predicted = drawn(rejection_rate=0.1, other=-1).fit(texts_of()).predict(texts_of())
    assert -1 in predicted
    assert predicted.dtype.kind == "i"


def test_texts_as_near_to_a_mean_as_others_but_to_no_text_are_rejected():
    """Usual texts of a class are of two groups, and those of topic 3 along another axis."""

    def in_groups(texts):
        numbers = np.array([[*map(int, text.split())] for text in texts])
        topic, sign = numbers[:, 0], 1 - 2 * (numbers[:, 1] % 2)
        vectors = np.stack([np.random.default_rng(row).normal(size=16) / 5 for row in numbers])
        vectors[:, 0] += 1
        vectors[:, 1] += np.where(topic == 1, -1, 1)
        vectors[np.arange(len(texts)), np.where(topic == 3, 3, 2)] += sign
        return vectors

    texts = texts_of((0, 1), n=100)
    model = ZeroShotClassifier(in_groups, rejection_rate=0.05, other=-1)
    model.fit(texts, truth(texts))
    assert np.mean(model.predict(texts_of((3,), n=100)) == -1) > 0.8
    assert np.mean(model.predict(texts_of((0, 1), start=1000)) == -1) < 0.1


def test_one_class_takes_every_text_with_a_warning():
    with pytest.warns(UserWarning, match="only one class, 7, so every text gets it"):
        model = drawn({7: "music"}).fit(texts_of())
    assert model.predict(["1 1", "0 5"]).tolist() == [7, 7]
    assert model.decision_function(["1 1"]).shape == (1, 1)
    one = drawn({7: "music"}, rejection_rate=0.4).fit(texts_of())  # no warning
    assert {*one.predict(texts_of())} == {7, "other"}


def test_two_classes_have_one_score_and_fit_into_scikit_learn():
    texts, new = texts_of(topics=(0, 1)), texts_of(topics=(0, 1), start=1000)
    two = {"b": "animals", "a": "music"}
    model = drawn(two).fit(texts)
    scores, labels = model.decision_function(new), np.array(["a", "b"])[truth(new)]
    assert scores.shape == (120,)
    assert_array_equal(model.classes_[(scores > 0).astype(int)], model.predict(new))
    probabilities = model.predict_proba(new)
    assert_allclose(np.log(probabilities[:, 1] / probabilities[:, 0]), scores / 0.05)
    assert get_scorer("roc_auc")(model, new, labels) > 0.99
    y = np.array(["a", "b"])[truth(texts)]
    calibrated = CalibratedClassifierCV(drawn(two), cv=2).fit(texts, y)
    assert np.mean(calibrated.predict(new) == labels) > 0.95
    tuned = TunedThresholdClassifierCV(drawn(two), cv=2, scoring="balanced_accuracy")
    assert np.mean(tuned.fit(np.array(texts), y).predict(new) == labels) > 0.95


def test_a_blank_label_is_none():
    texts = texts_of()
    y = [f"topic {k}" if i < 9 else ("", " ")[i % 2] for i, k in enumerate(truth(texts))]
    model = ZeroShotClassifier(TextEncoder(vectors)).fit(texts, y)
    assert model.classes_.tolist() == ["topic 0", "topic 1", "topic 2"]
    assert model.score(texts, y) == model.score(texts[:9], y[:9])


@pytest.mark.parametrize(
    "labels", [[-1, 1], [None, 1, -1], [-1, 0], [-1, 0, 1], [-2, -1, 0, 1, 2]]
)
def test_labels_among_which_minus_one_may_be_a_class_are_refused(labels):
    texts = texts_of()
    with pytest.raises(ValueError, match=r"labels -1 and .*may be a class.*by None, or name"):
        ZeroShotClassifier(TextEncoder(vectors)).fit(texts, np.resize(labels, len(texts)))
    y = truth(texts) - 1
    named = drawn(dict(zip((-1, 0, 1), TOPICS.values(), strict=True)))
    assert named.fit(texts, y).score(texts, y) > 0.95


def test_two_texts_are_enough_to_give_finite_scores():
    scores = drawn().fit(["0 1", "1 1"]).decision_function(texts_of())
    assert np.abs(scores).max() <= 1.5 + 1e-9  # not so for NaN
    assert (np.ptp(scores, axis=0) > 0).any()


@pytest.mark.parametrize(
    ("params", "y", "message"),
    [
        ({"class_names": ["music", "music"]}, None, "has 'music' twice"),
        ({"class_names": []}, None, "class_names is empty"),
        ({"rejection_rate": 0.1, "other": 2}, None, "other=2 is also a class"),
        ({}, np.zeros((180, 1), int), r"y is of type ndarray; .* ravel"),
        ({"class_names": ["music", " "]}, None, "describes class ' ' by ' '"),
        ({"class_names": ["_", "music"]}, None, "class '_' by '_'; expected a text"),
        ({"class_names": {0: []}}, None, "describes class 0"),
        ({"class_names": {0: 5}}, None, "describes class 0 by 5"),
        ({"class_names": {0: "music", "a": "animals"}}, None, r"several types \(int, str\)"),
        ({"class_names": "music"}, None, "class_names is of type str; expected a list"),
        ({"class_names": None}, None, "neither class_names nor labels"),
        ({"class_names": None}, [None] * 180, "neither class_names nor labels"),
        ({"encoder": ["music"], "class_names": "minilm"}, None, "encoder is of type list"),
        ({"class_names": {None: "music"}}, None, "class_names has a missing label"),
        ({}, dict.fromkeys(range(180), 1), "y is of type dict; expected a list"),
        (
            {},
            pd.DataFrame({"y": [0, 1, 2] * 60}),
            "select one column of a frame",
        ),
        ({}, [9] + [None] * 179, "label 9, which is none of the classes"),
        ({}, [0, 1], "inconsistent numbers of samples"),
        ({"rejection_rate": 1.0}, None, "'rejection_rate' parameter"),
    ],
)
def test_errors(params, y, message):
    model = clone(drawn().fit(texts_of())).set_params(**params)
    with pytest.raises((ValueError, TypeError), match=message):
        model.fit(texts_of(), y)
    assert not hasattr(model, "classes_")


def test_one_text_is_too_few():
    with pytest.raises(ValueError, match=r"n_samples=1 distinct texts.*at least two"):
        drawn().fit(["0 1", "0 1"])


def test_a_pipeline_that_calibrates_is_not_calibrated_again(tiny_bert, words):
    texts = [" ".join(np.random.default_rng(i).choice(words, 6)) for i in range(40)]
    pipeline = make_pipeline(BertEncoder(tiny_bert), Whitening(4, power="auto")).fit(texts)
    nested = make_pipeline(pipeline, "passthrough")
    for encoder in (pipeline, FrozenEstimator(pipeline), nested):
        model = ZeroShotClassifier(encoder, list(words[:3])).fit(texts)
        assert list(model.encoder_.named_steps) == ["encode"]
        assert_allclose(
            model.encoder_.transform(texts), pipeline.transform(texts), rtol=1e-3, atol=1e-4
        )
    bare = ZeroShotClassifier(pipeline[0], list(words[:3])).fit(texts)
    assert list(bare.encoder_.named_steps) == ["encode", "calibrate"]


def test_scikit_learn_tunes_its_encoder_on_a_pool_partly_labeled(tiny_bert, words):
    texts = [" ".join(np.random.default_rng(i).choice(words, 6)) for i in range(60)]
    y = [i % 3 if i % 2 else None for i in range(60)]
    encoder = make_pipeline(BertEncoder(tiny_bert), Whitening(power="auto"))
    grid = {"encoder__bertencoder__layers": [1, 3], "encoder__whitening__power": [0, "auto"]}
    folds = KFold(3, shuffle=True, random_state=0)
    search = GridSearchCV(ZeroShotClassifier(encoder), grid, cv=folds, error_score="raise")
    search.fit(np.array(texts), np.array(y, object))
    assert len(set(search.cv_results_["mean_test_score"])) > 1
    predicted = cross_val_predict(search.best_estimator_, texts, y, cv=folds)
    assert set(predicted) <= {0, 1, 2}


@pytest.mark.usefixtures("remembered")
def test_questions_of_customers(minilm):
    questions = load_questions()
    names = [name.replace("_", " ") for name in questions.target_names]
    texts, labels = questions.data, np.array(names)[questions.target]
    model = ZeroShotClassifier(BertEncoder(minilm), names).fit(texts)
    raw = BertEncoder(minilm)
    vectors, of_names = raw.fit_transform(texts), raw.transform(names)
    units = [v / np.linalg.norm(v, axis=1, keepdims=True) for v in (vectors, of_names)]
    nearest = np.array(names)[(units[0] @ units[1].T).argmax(axis=1)]
    assert model.score(texts, labels) > np.mean(nearest == labels)


@pytest.mark.parametrize("container", ["pandas", "polars", "pyarrow"])
def test_names_may_be_a_column_and_outputs_frames(container):
    package = pytest.importorskip(container)
    names = ["music", "animals", "cooking"]
    column = package.array(names) if container == "pyarrow" else package.Series(names)
    expected = drawn(names).fit(texts_of()).predict(texts_of())
    with config_context(transform_output="default" if container == "pyarrow" else container):
        assert_array_equal(drawn(column).fit(texts_of()).predict(texts_of()), expected)


@pytest.mark.parametrize("whitened", [False, True], ids=["encoder", "pipeline"])
def test_texts_of_another_domain_belong_to_no_class(whitened):
    """Calibrated vectors lack what all fitted texts have in common, and do not show it."""
    texts, parts = (part[::3] for part in load_docstrings(return_X_y=True))
    labels = np.full(len(texts), None, object)
    labels[::6] = [str(part) for part in parts[::6]]
    encoder = BertEncoder("minilm")
    encoder = make_pipeline(encoder, Whitening(power="auto")) if whitened else encoder
    model = ZeroShotClassifier(encoder, rejection_rate=0.05)
    model.fit(texts[::2].tolist(), labels[::2])
    assert np.mean(model.predict(load_questions().data.tolist()) == "other") > 0.95
    assert np.mean(model.predict(texts[1::2].tolist()) == "other") < 0.07


# Labels decide how much names count.

D = 24


def texts_of_classes(n, seed=0):
    """Texts of two classes that differ along the first axis, far less than texts do."""
    rng = np.random.default_rng(seed)
    codes = np.arange(n) % 2
    vectors = rng.normal(size=(n, D)) / D**0.5
    vectors[:, 0] += np.where(codes, 0.4, -0.4)
    return vectors, codes


@pytest.mark.parametrize("is_misled", [False, True])
def test_labels_decide_how_much_names_count(is_misled):
    vectors, codes = texts_of_classes(400)
    names = np.eye(D)[[0, 0]] * [[-1], [1]] * (-1 if is_misled else 1)
    texts = {f"text {i}": vector for i, vector in enumerate(vectors)}
    known = texts | {"a": names[0], "b": names[1]}
    labels = [("a", "b")[codes[i]] if i < 6 else None for i in range(200)]

    def encoder(some):
        return np.stack([known[text] for text in some])

    train, test = [*texts][:200], [*texts][200:]
    named = ZeroShotClassifier(encoder, ["a", "b"]).fit(train, labels)
    nameless = ZeroShotClassifier(encoder).fit(train, labels)
    right = [("a", "b")[code] for code in codes[200:]]
    assert named.score(test, right) >= nameless.score(test, right) - 0.03
    assert named.score(test, right) > 0.9


@pytest.mark.parametrize("n_labels", [1, 2, 8, 50])
def test_a_name_like_a_text_counts_as_one(n_labels):
    """One that is the mean of its class counts more, and exchanged ones do not count."""
    weights = []
    for seed in range(40):
        rng, codes = np.random.default_rng(seed), np.arange(6 * n_labels) % 6
        means, noise = rng.normal(size=(6, 12)), rng.normal(size=(6 * n_labels + 6, 12))
        texts = means[codes] + noise[6:]
        of_names = means + noise[:6], means, np.roll(means, 1, axis=0)
        weights.append([_weight_of_names(names, texts, codes) for names in of_names])
    one, more, none = np.exp(np.mean(np.log(weights), axis=0))
    assert one == pytest.approx(1, abs=0.35)
    assert more > 1.6 * one
    assert none < 0.1


def test_names_that_classify_better_than_few_labels_count_more():
    """Three texts of a class are about some topic, which is not what the classes are."""
    shares = []
    for seed in range(6):
        rng, codes = np.random.default_rng(seed), np.arange(400) % 4
        vectors = rng.normal(size=(400, D)) / D**0.5
        vectors += np.eye(D)[8 + rng.integers(3, size=400)]
        vectors[np.arange(400), codes] += 0.7
        known = {f"text {i}": vector for i, vector in enumerate(vectors)}
        known |= dict(zip("abcd", np.eye(D), strict=False))
        classes = [*"abcd"]
        labels = [classes[codes[i]] if i < 12 else None for i in range(200)]
        encoder = TextEncoder(lambda some, of=known: np.stack([of[text] for text in some]))
        model = ZeroShotClassifier(encoder, classes).fit([*known][:200], labels)
        shares.append(model.score([*known][200:400], [classes[c] for c in codes[200:]]))
    assert np.mean(shares) > 0.92  # 0.86 if they count as texts at most


@pytest.mark.parametrize(("topics", "fewest_right"), [(1.0, 0.6), (0.0, 0.95)])
def test_texts_without_labels_count_unless_they_follow_topics(topics, fewest_right):
    # If the means after the rounds always count, 30 % are right with topics; if they never
    # count, 83 % without.
    shares = []
    for seed in range(6):
        rng, codes = np.random.default_rng(seed), np.arange(400) % 4
        vectors = rng.normal(size=(400, D)) / D**0.5
        vectors += topics * np.eye(D)[8 + rng.integers(3, size=400)]
        vectors[np.arange(400), codes] += 0.3 if topics else 0.9
        names = np.eye(D)[:4] + (0 if topics else 0.45) * rng.normal(size=(4, D))
        known = {f"text {i}": vector for i, vector in enumerate(vectors)}
        known |= dict(zip("abcd", names / np.linalg.norm(names, axis=1)[:, None], strict=True))
        encoder = TextEncoder(lambda some, of=known: np.stack([of[text] for text in some]))
        model = ZeroShotClassifier(encoder, [*"abcd"]).fit([*known][:200])
        shares.append(model.score([*known][200:400], ["abcd"[c] for c in codes[200:]]))
    assert np.mean(shares) > fewest_right


# Probabilities: the temperature fits labels of texts that are left out.

USUAL = 0.05  # temperature without labels


def classified(noise, n_labels, names=None, seed=0, sizes=(1, 1, 1)):
    """A model of three classes with labels of the first texts; new texts, and their classes."""
    rng = np.random.default_rng(seed)
    codes = rng.choice(3, 900, p=np.divide(sizes, sum(sizes)))
    texts = [f"{i}" for i in range(900)]
    vectors = np.eye(16)[codes] + noise * rng.normal(size=(900, 16)) / 16**0.5
    of_names = np.eye(16)[:3] * (1 + noise**2) ** 0.5  # as long as texts
    known = dict(zip([*texts, *"abc"], [*vectors, *of_names], strict=True))
    y = np.full(600, None, object)
    rows = np.arange(600) < 3 * n_labels  # of skewed classes, the frequent have more
    if sizes == (1, 1, 1):
        rows = [(codes[:i] == codes[i]).sum() < n_labels for i in range(600)]
    y[rows] = np.array([*"abc"])[codes[:600][rows]]
    model = ZeroShotClassifier(lambda some: np.stack([known[text] for text in some]), names)
    return model.fit(texts[:600], y), texts[600:], np.array([*"abc"])[codes[600:]]


def log_loss(probabilities, model, labels):
    return -np.log(
        probabilities[np.arange(len(labels)), np.searchsorted(model.classes_, labels)]
    )


# The vectors of the names have no noise, and so the length 1.
@pytest.mark.filterwarnings("ignore:The vectors have lengths of about 1")
@pytest.mark.parametrize("sizes", [(1, 1, 1), (8, 2, 1)])
@pytest.mark.parametrize("names", [None, ["a", "b", "c"]])
@pytest.mark.parametrize("noise", [1.0, 2.5])
def test_probabilities_are_the_share_that_is_correct(noise, names, sizes):
    model, new, labels = classified(noise, 20, names, sizes=sizes)
    probabilities = model.predict_proba(new)
    confidence, right = probabilities.max(axis=1), model.predict(new) == labels
    assert confidence.mean() == pytest.approx(right.mean(), abs=0.08)
    scores = model.decision_function(new)
    losses = [log_loss(softmax(scores / t, axis=1), model, labels).mean() for t in (1e-2, 1)]
    assert log_loss(probabilities, model, labels).mean() < min(losses) + 0.01


def test_easy_classes_have_lower_temperatures_than_hard_ones():
    easy, hard = classified(0.5, 20)[0], classified(3.0, 20)[0]
    assert easy.temperature_ < USUAL < hard.temperature_


def test_two_labels_that_are_correct_make_no_certainty():
    model, new, _ = classified(0.3, 2)
    assert USUAL / 8 < model.temperature_ < USUAL
    assert model.predict_proba(new).max() < 1


@pytest.mark.parametrize("n_labels", [0, 1])
def test_without_two_labels_of_a_class_the_temperature_is_the_usual_one(n_labels):
    model, new, _ = classified(1.0, n_labels, [*"abc"])
    assert model.temperature_ == USUAL
    expected = softmax(model.decision_function(new) / USUAL, axis=1)
    assert_allclose(model.predict_proba(new), expected)


def test_wrong_names_beside_labels_make_no_wrong_certainty():
    model, new, labels = classified(1.0, 8, {"a": "b", "b": "c", "c": "a"})
    assert log_loss(model.predict_proba(new), model, labels).mean() < np.log(3)
