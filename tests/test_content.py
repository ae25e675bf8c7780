"""One rule: a zero vector, a blank text and unknown tokens are similar to nothing."""

import numpy as np
import pytest
from letters import letters
from sklearn.base import clone
from sklearn.ensemble import StackingClassifier, VotingClassifier
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import FeatureUnion, make_pipeline

from skcalib import (
    BertEncoder,
    BiEncoder,
    NearestAnswer,
    NeighborSmoothing,
    SimilarityScale,
    TextEncoder,
    Whitening,
    ZeroShotClassifier,
)
from skcalib.encoders.pipelines import encode

SILENT = ["汉字", "日本", "", " ", "😀"]
COUNTED = pytest.mark.filterwarnings("ignore:The encoder is calibrated on")
WARNS = pytest.mark.filterwarnings("ignore:.* have no content for the encoder")


@pytest.fixture(scope="module")
def sentences():
    rng = np.random.default_rng(1)
    alphabet = [*"abcdefghijklmnopqrstuvwxyz"]
    return ["".join(rng.choice(alphabet, 12)) for _ in range(120)]


def encoders():
    return {
        "bare": TextEncoder(letters),
        "calibrated": make_pipeline(TextEncoder(letters), Whitening(power="auto")),
    }


@pytest.mark.parametrize("encoder", encoders().values(), ids=encoders())
@COUNTED
def test_texts_without_content_have_no_answer_unless_they_are_stored(sentences, encoder):
    model = NearestAnswer(encoder, false_positive_rate=0.05)
    answers = np.arange(len(sentences))
    model.fit(sentences, answers)
    assert model.predict([*SILENT, "!!!"]).tolist() == [None] * 6
    threshold = model.threshold_
    with pytest.warns(UserWarning, match="1 of 121 texts have no content"):
        model.fit([*sentences, "汉字"], [*answers, "hello"])
    assert model.predict(["汉字", "", sentences[4]]).tolist() == ["hello", None, 4]
    # The whitening of a pipeline is fitted on all texts.
    assert model.threshold_ == pytest.approx(threshold, abs=2e-3)
    row = model.questions_.tolist().index("汉字")
    assert not model.search_.words_[[row]].nnz
    assert row not in model.kneighbors([sentences[0]], 200)[1]
    unanswerable = [f"{text}xyz" for text in sentences[:30]] + ["", "😀"]
    model.fit(sentences[30:], answers[30:], unanswerable=unanswerable)
    assert model.predict(["", "😀"]).tolist() == [None, None]


def test_texts_without_content_are_of_no_class(sentences):
    names = {"a": sentences[0], "b": sentences[1]}
    model = ZeroShotClassifier(letters, names, rejection_rate=0.05)
    with pytest.warns(UserWarning, match="5 of 125 texts have no content"):
        model.fit([*sentences, *SILENT], [None] * 120 + ["a"] * 5)
    clean = ZeroShotClassifier(letters, names, rejection_rate=0.05).fit(sentences)
    np.testing.assert_allclose(model.class_means_, clean.class_means_)
    assert model.threshold_ == pytest.approx(clean.threshold_)
    assert model.predict([*SILENT, "!!!"]).tolist() == ["other"] * 6
    with pytest.raises(ValueError, match=r"The name '汉字' of the class 'b' has no content"):
        ZeroShotClassifier(letters, {"a": "music", "b": "汉字"}).fit(sentences)
    labels = [None] * 119 + ["a"] + ["b"] * 5
    with (
        pytest.warns(UserWarning, match="have no content"),
        pytest.raises(ValueError, match="All texts of the class 'b' have no content"),
    ):
        ZeroShotClassifier(letters).fit([*sentences, *SILENT], labels)


def test_similarities_without_content_are_zero(sentences):
    model = BiEncoder(TextEncoder(letters)).fit(sentences)
    with pytest.warns(UserWarning, match="1 of 3 texts have no content"):
        found = model.predict([("", sentences[0]), ("", ""), (sentences[0], sentences[1])])
    assert found.tolist()[:2] == [0, 0]
    assert found[2] != 0


def test_a_scale_counts_no_zero_vectors():
    X = np.random.default_rng(0).normal(size=(60, 5))
    with pytest.warns(UserWarning, match="2 of 62 vectors are zero"):
        scale = SimilarityScale().fit(np.vstack([X, np.zeros((2, 5))]))
    assert scale.n_pairs_ == 60 * 59 / 2
    with pytest.raises(ValueError, match="got 1 vectors that differ and are not zero"):
        SimilarityScale().fit(np.eye(3)[:, :1])
    with pytest.warns(UserWarning, match="2 of 62 vectors are zero"):
        NeighborSmoothing().fit(np.vstack([X, np.zeros((2, 5))]))


@WARNS
@pytest.mark.filterwarnings("ignore:.*unknown to this model")
def test_unknown_tokens_alone_are_no_content_for_a_bert(tiny_bert, minilm):
    texts = ["the dog", "zebra", "zebra the", "", " \t", "[MASK]", "天 气", "\u200b"]
    silent = [False, True, False, True, True, True, True, True]
    encoder = BertEncoder(tiny_bert).fit(texts)
    for fitted in (encoder, FrozenEstimator(encoder), make_pipeline(encoder)):
        assert encode(fitted, texts)[1].tolist() == silent
    pipeline = make_pipeline(BertEncoder(tiny_bert), Whitening(power="auto")).fit(texts)
    assert encode(pipeline, texts)[1].tolist() == silent
    assert encode(clone(pipeline), texts, fit=True)[1].tolist() == silent
    texts = ["汉字", "😀😀", "zebra", "!!!", "x" * 200]
    found = encode(BertEncoder(minilm), texts, fit=True)[1]
    assert found.tolist() == [True, True, False, False, True]


UNKNOWN = " ".join(["zebra"] * 20)
READ = {  # what an encoder reads of a text decides whether it has content
    "whole": ({}, [False, True, True, False, True]),
    "beginning": ({"max_length": 8}, [False, True, True, True, True]),
    "end": ({"max_length": 8, "overflow": "cut_left"}, [False, True, True, False, True]),
    "windows": ({"max_length": 8, "overflow": "windows"}, [False, True, True, False, True]),
    "prompt": ({"prompt": "the small "}, [False, True, True, False, True]),
    "prompt in windows": (
        {"prompt": "the small ", "max_length": 9, "overflow": "windows"},
        [False, True, True, False, True],
    ),
    "long prompt": ({"prompt": "the small ", "max_length": 9}, [False, True, True, True, True]),
}


@pytest.mark.filterwarnings("ignore:.*unknown to this model", "ignore:.* were cut off")
@pytest.mark.parametrize("memory", [True, False])
@pytest.mark.parametrize("first", READ)
def test_content_is_in_the_tokens_that_an_encoder_reads(
    tiny_bert, recent, tmp_path, first, memory
):
    """Whichever encoder came first, and from memory or from disk."""
    recent.bound = 2**20
    texts = ["dog", "zebra", UNKNOWN, f"{UNKNOWN} the dog", ""]
    for name in [first, *READ, first]:
        params, silent = READ[name]
        encoder = BertEncoder(tiny_bert, **params, memory=tmp_path if memory else None)
        assert encode(encoder.fit(texts), texts)[1].tolist() == silent, name
    if memory:
        recent.clear()
        params, silent = READ[first]
        encoder = BertEncoder(tiny_bert, **params, memory=tmp_path).fit(texts)
        assert encode(encoder, texts)[1].tolist() == silent


@pytest.mark.filterwarnings("ignore:.*unknown to this model")
@pytest.mark.parametrize("n_jobs", [None, 2])
def test_a_text_has_content_if_one_of_two_encoders_knows_it(tiny_bert, n_jobs):
    union = FeatureUnion([("words", BertEncoder(tiny_bert)), ("letters", TextEncoder(letters))])
    texts = ["the dog", "zebra", "汉字", ""]
    assert encode(clone(union), texts, fit=True)[1].tolist() == [False, False, False, True]
    both = FeatureUnion(
        [("a", BertEncoder(tiny_bert)), ("b", BertEncoder(tiny_bert, layers=0))], n_jobs=n_jobs
    )
    assert encode(clone(both), texts, fit=True)[1].tolist() == [False, True, True, True]


def test_blank_texts_are_no_unknown_words(tiny_bert):
    BertEncoder(tiny_bert).fit_transform(["", " ", "the dog"])  # no warning
    with pytest.warns(UserWarning, match="50% of the tokens are unknown"):
        BertEncoder(tiny_bert).fit_transform(["", " ", "dog", "zebra"])


def test_a_classifier_inside_others_that_encode_labels(sentences):
    labels = np.where(np.arange(120) % 2, "music", "animals")
    inner = ZeroShotClassifier(letters, ["animals", "music"])
    bag = make_pipeline(TextEncoder(letters), LogisticRegression(C=1e-3, max_iter=1000))
    with pytest.raises(ValueError, match=r"StackingClassifier .* maps 0 to k - 1"):
        VotingClassifier([("zero", inner), ("bag", bag)]).fit(sentences, labels)
    inner.set_params(class_names={0: "animals", 1: "music"})
    for both in (
        VotingClassifier([("zero", inner), ("bag", bag)], voting="soft"),
        StackingClassifier([("zero", inner), ("bag", bag)], cv=2),
    ):
        found = both.fit(sentences, labels).predict(sentences)
        assert {*found} <= {"animals", "music"}
