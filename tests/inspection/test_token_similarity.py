"""A cosine as a sum over pairs of words: equal to the pipeline's own, or refused."""

import numpy as np
import pytest
from sklearn.decomposition import PCA
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import MinMaxScaler, Normalizer, StandardScaler

from skcalib import BertEncoder, NeighborSmoothing, TextEncoder, Whitening
from skcalib.datasets import load_questions
from skcalib.inspection import TokenSimilarityDisplay

A = "How do I dispute an unrecognized chargeback?"
B = "Unrecognized charges: how can I cancel my card?"
STEPS = {
    "none": lambda: (),
    "whitening": lambda: (Whitening(power="auto"),),
    "several": lambda: (Normalizer(), Whitening(5), StandardScaler(), PCA(4), Normalizer()),
}


@pytest.fixture(autouse=True)
def pyplot():
    pytest.importorskip("matplotlib").use("agg")
    from matplotlib import pyplot

    yield pyplot
    pyplot.close("all")


def cosine(pipeline):
    a, b = pipeline.transform([A, B]).astype(np.float64)
    return a @ b / np.linalg.norm(a) / np.linalg.norm(b)


@pytest.mark.filterwarnings("ignore::UserWarning")  # of texts that are cut off, few samples
@pytest.mark.parametrize("steps", STEPS)
@pytest.mark.parametrize(
    "params",
    [
        {},
        {"pooling": "zipf", "layers": "first_last"},
        {"pooling": "weighted_mean", "layer_merge": "concat", "layers": (1, -1)},
        {"pooling": "mean_without_first", "layers": 3},
        {"pooling": "mean_own", "truncate_dim": 100},
        {"max_length": 8, "prompt": "query: "},
        {"prompt": "Say {text} in one word:", "overflow": "windows"},
        {"prompt": "{text} Again: {text}", "pooling": "mean"},
    ],
)
def test_the_sum_is_the_cosine(minilm, params, steps):
    pipeline = make_pipeline(BertEncoder(minilm, **params), *STEPS[steps]())
    pipeline.fit(load_questions().data[:60])
    display = TokenSimilarityDisplay.from_texts(pipeline, A, B)
    assert display.similarity == pytest.approx(cosine(pipeline), abs=1e-5)
    for margin in display.margins:
        assert margin.sum() == pytest.approx(display.similarity)
    assert display.contributions.shape == (len(display.words_a), len(display.words_b))


def test_tokens_are_joined_to_words(minilm):
    encoder = BertEncoder(minilm).fit([A])
    words = TokenSimilarityDisplay.from_texts(encoder, A, B)
    middle = ["how", "do", "i", "dispute", "an", "unrecognized", "chargeback", "?"]
    assert words.words_a == ["[CLS]", *middle, "[SEP]"]
    assert words.ax_.get_title() == f"cosine {words.similarity:.2f}"
    assert words.ax_.get_yticklabels()[4].get_text().startswith("dispute +0.")


def test_what_is_no_sum_is_refused(minilm):
    texts = load_questions().data[:60]

    def explain(encoder, *steps):
        return TokenSimilarityDisplay.from_texts(make_pipeline(encoder, *steps), A, B)

    for pooling in ("cls", "max", "last"):
        with pytest.raises(ValueError, match=rf"pooling='{pooling}' is no mean over tokens"):
            explain(BertEncoder(minilm, pooling=pooling).fit([A]))
    encoder = BertEncoder(minilm).fit([A])
    X = encoder.transform(texts)
    smoothing = NeighborSmoothing().fit(X)
    with pytest.raises(ValueError, match="pairs of tokens after NeighborSmoothing, a search"):
        explain(encoder, smoothing)
    with pytest.raises(TypeError, match=r"MinMaxScaler\(\) cannot be.*linear_map"):
        explain(encoder, MinMaxScaler().fit(X))
    with pytest.raises(TypeError, match="expected a BertEncoder or a pipeline that begins"):
        explain(TextEncoder(lambda texts: np.ones((len(texts), 2))).fit([A]))
    with pytest.raises(TypeError, match=r"texts has .* of type list at position 0"):
        TokenSimilarityDisplay.from_texts(encoder, [A], B)
    with pytest.raises(ValueError, match=r"dispute.*' is read in . windows"):
        explain(BertEncoder(minilm, overflow="windows", max_length=8).fit([A]))


def test_words_that_look_like_formulas_and_scales_of_colors_are_drawn():
    from matplotlib.colors import CenteredNorm

    words = ["$x$", r"$\frac$", "us$5"]
    display = TokenSimilarityDisplay(np.eye(3), words, words[::-1]).plot(norm=CenteredNorm())
    display.figure_.canvas.draw()
    assert display.image_.norm.vcenter == 0
    labels = [label.get_text() for label in display.ax_.get_yticklabels()]
    assert labels == [r"\$x\$ +1.00", r"\$\frac\$ +1.00", r"us\$5 +1.00"]
