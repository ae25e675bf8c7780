"""Displays and tables of what calibration does to vectors."""

import sys

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from skcalib import BertEncoder, Whitening
from skcalib.inspection import (
    CosineDisplay,
    FrequencyDisplay,
    SpectrumDisplay,
    word_embeddings,
    word_frequency_bias,
)

DISPLAYS = [CosineDisplay, FrequencyDisplay, SpectrumDisplay]


@pytest.fixture
def pyplot(monkeypatch):
    """matplotlib's pyplot, without a screen; figures are closed afterwards."""
    matplotlib = pytest.importorskip("matplotlib")
    matplotlib.use("agg")
    from matplotlib import pyplot

    yield pyplot
    pyplot.close("all")


@pytest.fixture(scope="module")
def cone():
    """Vectors in a narrow cone, with a steep spectrum."""
    rng = np.random.default_rng(0)
    return rng.normal(size=(300, 6)) * 2.0 ** -np.arange(6) + 3


def arguments(display, X):
    return (X, np.arange(len(X))) if display is FrequencyDisplay else (X,)


def by_hand(vectors, members, k):
    """Mean distance and dot product of members to their k nearest, one word at a time."""
    distances, dots = [], []
    for i in members:
        order = np.linalg.norm(vectors - vectors[i], axis=1)
        order[i] = np.inf
        nearest = np.argsort(order)[:k]
        distances.append(order[nearest].mean())
        dots.append((vectors[nearest] @ vectors[i]).mean())
    return np.mean(distances), np.mean(dots)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_word_frequency_bias_is_the_definition(dtype):
    rng = np.random.default_rng(1)
    ranks = rng.permutation(700)
    vectors = (rng.normal(size=(700, 5)) * (1 + ranks[:, None] / 100)).astype(dtype)
    bias = word_frequency_bias(vectors, ranks)
    assert_array_equal(bias.n_words, [100, 400, 200, 0])
    vectors = vectors.astype(float)
    for j, (low, high) in enumerate([(0, 100), (100, 500), (500, 5000)]):
        members = np.flatnonzero((ranks >= low) & (ranks < high))
        norm = np.linalg.norm(vectors[members], axis=1).mean()
        assert_allclose(bias.mean_norm[j], norm, rtol=1e-6)
        for i, k in enumerate(bias.n_neighbors):
            found = bias.knn_distance[i, j], bias.knn_dot[i, j]
            assert_allclose(found, by_hand(vectors, members, k), rtol=1e-5)
    assert np.isnan(bias.mean_norm[3])
    assert np.isnan(bias.knn_dot[:, 3]).all()


def test_words_beyond_the_last_bin_are_neighbours_only():
    rng = np.random.default_rng(2)
    vectors = rng.normal(size=(60, 4))
    ranks = np.r_[np.arange(50), np.arange(10_000, 10_010)]
    bias = word_frequency_bias(vectors, ranks)
    assert_array_equal(bias.n_words, [50, 0, 0, 0])
    found = bias.knn_distance[0, 0], bias.knn_dot[0, 0]
    assert_allclose(found, by_hand(vectors, range(50), 3))
    assert found[0] < word_frequency_bias(vectors[:50], ranks[:50]).knn_distance[0, 0]


def test_frequency_bias_prints_both_tables():
    bias = word_frequency_bias(np.eye(20), np.arange(20))
    lines = str(bias).splitlines()
    assert len(lines) == 2 + 1 + 1 + 3 + 3
    assert "5K-10K" in lines[0]
    assert "mean k-NN dot product, k=7" in lines[-1]


@pytest.mark.parametrize(
    ("vectors", "ranks", "message"),
    [
        (np.eye(9), np.arange(8), "inconsistent numbers of samples"),
        (np.eye(9), -np.arange(9), "ranks from -8 up; expected"),
        (np.eye(9), list("abcdefghi"), "could not convert string"),
        (np.eye(7), np.arange(7), r"7 sample\(s\).*minimum of 8"),
        (np.eye(9), np.arange(10_000, 10_009), "ranks from 10000 up"),
        (np.full((9, 2), np.nan), np.arange(9), "NaN"),
    ],
)
def test_errors_of_word_frequency_bias(vectors, ranks, message):
    with pytest.raises(ValueError, match=message):
        word_frequency_bias(vectors, ranks)


def test_word_embeddings_are_rows_of_the_matrix_by_rank(make_bert, tmp_path):
    whole = [f"{'zyx'[i % 3]}word{i}" for i in range(40)]  # in no alphabetical order
    vocabulary = [*whole[:20], "##s", *whole[20:], "##ing"]
    folder = make_bert(tmp_path / "pieces", words=vocabulary)
    vectors, ranks, words = word_embeddings(folder)
    assert words == whole
    assert_array_equal(ranks, np.arange(40))
    from transformers import AutoModel

    matrix = AutoModel.from_pretrained(folder).get_input_embeddings().weight.detach().numpy()
    assert_array_equal(vectors, matrix[[*range(9, 29), *range(30, 50)]])


def test_an_alphabetical_vocabulary_tells_no_ranks(make_bert, tmp_path):
    folder = make_bert(tmp_path / "alphabetical", words=[f"a{c}" for c in "bcdefghijklmnopqrs"])
    with pytest.raises(ValueError, match="your own vectors and ranks"):
        word_embeddings(folder)


def test_whitening_lifts_the_bias_of_frequency_from_minilms_words(minilm):
    vectors, ranks, words = word_embeddings(minilm)
    assert words[:3] == ["the", "of", "and"]
    vectors, ranks = vectors[:5000], ranks[:5000]
    raw = word_frequency_bias(vectors, ranks)
    white = word_frequency_bias(Whitening().fit_transform(vectors), ranks)
    assert_array_equal(raw.n_words, [100, 400, 4500, 0])
    # The most frequent words lie nearest to the origin and closest together...
    assert np.nanargmin(raw.mean_norm) == 0
    assert (np.nanargmin(raw.knn_distance, axis=1) == 0).all()
    # ... by a tenth or more beside the others, by less than a twentieth after whitening.
    for values in (raw.mean_norm, *raw.knn_distance):
        assert 1 - values[0] / values[1:3].mean() > 0.1
    for values in (white.mean_norm, *white.knn_distance):
        assert abs(1 - values[0] / values[1:3].mean()) < 0.05


@pytest.mark.parametrize("display", DISPLAYS)
def test_displays_draw_on_new_or_given_axes(display, cone, pyplot):
    first = display.from_vectors(*arguments(display, cone), name="raw")
    assert first.figure_ is first.ax_.figure
    again = first.plot()
    assert again is first
    assert len(pyplot.get_fignums()) == 2
    second = display.from_vectors(*arguments(display, cone), ax=first.ax_)
    assert second.ax_ is first.ax_
    assert len(pyplot.get_fignums()) == 2


@pytest.mark.parametrize("display", DISPLAYS)
def test_from_estimator_draws_what_the_estimator_makes(display, tiny_bert, pyplot):
    X, *ranks = arguments(display, ["the", "of", "man", "dog"])
    encoder = BertEncoder(tiny_bert).fit(X)
    found = vars(display.from_estimator(encoder, X, *ranks))
    expected = vars(display.from_vectors(encoder.transform(X), *ranks, name="BertEncoder"))
    assert found.keys() == expected.keys()
    for attribute in {"singular_values", "cosines", "projection", "name"} & found.keys():
        assert_array_equal(found[attribute], expected[attribute])


def test_spectrum_is_relative_and_flat_after_whitening(cone, pyplot):
    raw = SpectrumDisplay.from_vectors(cone, name="raw")
    assert_allclose(raw.singular_values, np.linalg.svd(cone, compute_uv=False))
    assert raw.line_.get_ydata()[0] == 1
    assert raw.line_.get_ydata()[-1] < 0.1
    white = SpectrumDisplay.from_estimator(Whitening().fit(cone), cone, ax=raw.ax_, color="k")
    assert_allclose(white.line_.get_ydata(), 1)
    assert [t.get_text() for t in raw.ax_.get_legend().get_texts()] == ["raw", "Whitening"]


def test_cosines_are_of_all_pairs_of_different_vectors(cone, pyplot):
    display = CosineDisplay.from_vectors(cone[:20])
    unit = cone[:20] / np.linalg.norm(cone[:20], axis=1, keepdims=True)
    expected = [unit[i] @ unit[j] for i in range(20) for j in range(i + 1, 20)]
    assert_allclose(display.cosines, expected)
    assert display.ax_.get_legend() is None
    for scale in (1e-200, 1e200):
        assert_allclose(CosineDisplay.from_vectors(scale * cone[:20]).cosines, expected)


def test_cosines_of_many_vectors_are_those_of_a_thousand(pyplot):
    X = np.random.default_rng(0).normal(size=(1500, 3))
    assert len(CosineDisplay.from_vectors(X).cosines) == 1000 * 999 // 2


def test_projection_keeps_lengths_of_vectors_in_a_plane(pyplot):
    rng = np.random.default_rng(0)
    plane = np.linalg.qr(rng.normal(size=(7, 2)))[0]
    X = rng.normal(size=(50, 2)) @ plane.T
    display = FrequencyDisplay.from_vectors(X, np.arange(50), name="plane")
    assert_allclose(display.projection @ display.projection.T, X @ X.T, atol=1e-12)
    # Rare words are drawn first, below the frequent ones.
    assert_allclose(display.scatter_.get_array(), np.log10(1 + np.arange(50))[::-1])
    assert_allclose(display.scatter_.get_offsets(), display.projection[::-1])
    assert display.ax_.get_title() == "plane"


@pytest.mark.parametrize(
    ("display", "X", "message"),
    [
        (SpectrumDisplay, np.zeros((3, 2)), "all zero"),
        (FrequencyDisplay, np.ones((3, 1)), "minimum of 2"),
    ],
)
def test_errors_of_displays(display, X, message):
    with pytest.raises(ValueError, match=message):
        display.from_vectors(*arguments(display, X))


@pytest.mark.parametrize("ranks", [[np.nan, 1], [np.inf, 1], [-1, 1], ["a", "b"], [1]])
def test_the_display_of_words_refuses_what_are_no_ranks(ranks):
    with pytest.raises(ValueError, match=r"ranks|could not convert|inconsistent"):
        FrequencyDisplay.from_vectors(np.eye(2), ranks)


@pytest.mark.parametrize("dtype", [np.uint8, bool, object])
def test_ranks_of_any_type_are_drawn_as_the_same(dtype, pyplot):
    ranks = np.arange(2)
    first, second = (
        FrequencyDisplay.from_vectors(np.eye(2), r) for r in (ranks, ranks.astype(dtype))
    )
    for of in ("get_array", "get_offsets"):
        assert_array_equal(*(getattr(d.scatter_, of)() for d in (first, second)))


@pytest.mark.parametrize("display", DISPLAYS)
def test_displays_take_vectors_as_estimators_do(display, cone, pyplot):
    torch = pytest.importorskip("torch")
    display.from_vectors(*arguments(display, torch.tensor(cone, requires_grad=True)))
    with pytest.raises(ValueError, match="NaN"):
        display.from_vectors(*arguments(display, np.ma.masked_equal(cone, cone[1, 1])))
    with pytest.raises(TypeError, match="Got texts, such as 'a'"):
        display.from_vectors(*arguments(display, ["a", "b"]))


@pytest.mark.parametrize("display", DISPLAYS)
def test_without_matplotlib_the_error_names_the_extra(display, cone, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib.pyplot", None)
    with pytest.raises(ImportError, match=r"pip install matplotlib$"):
        display.from_vectors(*arguments(display, cone))


def test_a_large_common_mean_does_not_change_distances():
    rng = np.random.default_rng(0)
    X, ranks = rng.integers(-9, 9, size=(200, 6)).astype(float), np.arange(200)
    expected = word_frequency_bias(X, ranks).knn_distance
    np.testing.assert_allclose(word_frequency_bias(X + 1e8, ranks).knn_distance, expected)


def test_no_cosine_is_lost_outside_the_bins(pyplot):
    display = CosineDisplay.from_vectors(
        np.random.default_rng(0).normal(size=(9, 7)).repeat(9, 0)
    )
    assert display.cosines.max() == 1.0
    heights = [bar.get_height() for bar in display.bars_]
    assert np.sum(heights) * 0.02 == pytest.approx(1)
    assert heights[-1] * 0.02 * len(display.cosines) == pytest.approx(
        np.sum(display.cosines > 0.98)
    )
    given = CosineDisplay(np.array([-1 - 2e-16, 0.0, 1 + 2e-16])).plot(density=False)
    assert sum(bar.get_height() for bar in given.bars_) == 3
