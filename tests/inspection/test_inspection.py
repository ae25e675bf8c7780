"""Displays and tables of what calibration does to vectors."""

import sys

import numpy as np
import pytest
from numpy.testing import assert_allclose

from skcalib import Whitening
from skcalib.inspection import CosineDisplay, SpectrumDisplay

DISPLAYS = [CosineDisplay, SpectrumDisplay]


@pytest.fixture
def pyplot(monkeypatch):
    """matplotlib's pyplot, without a screen; figures are closed afterwards."""
    matplotlib = pytest.importorskip("matplotlib")
    matplotlib.use("agg")
    from matplotlib import pyplot

    pyplot.close("all")  # of other tests in this process
    yield pyplot
    pyplot.close("all")


@pytest.fixture(scope="module")
def cone():
    """Vectors in a narrow cone, with a steep spectrum."""
    rng = np.random.default_rng(0)
    return rng.normal(size=(300, 6)) * 2.0 ** -np.arange(6) + 3


@pytest.mark.parametrize("display", DISPLAYS)
def test_displays_draw_on_new_or_given_axes(display, cone, pyplot):
    first = display.from_vectors(cone, name="raw")
    assert first.figure_ is first.ax_.figure
    again = first.plot()
    assert again is first
    assert len(pyplot.get_fignums()) == 2
    second = display.from_vectors(cone, ax=first.ax_)
    assert second.ax_ is first.ax_
    assert len(pyplot.get_fignums()) == 2


def test_spectrum_is_relative_and_flat_after_whitening(cone, pyplot):
    raw = SpectrumDisplay.from_vectors(cone, name="raw")
    assert_allclose(raw.singular_values, np.linalg.svd(cone, compute_uv=False))
    assert raw.line_.get_ydata()[0] == 1
    assert raw.line_.get_ydata()[-1] < 0.1
    whitened = Whitening().fit_transform(cone)
    white = SpectrumDisplay.from_vectors(whitened, name="Whitening", ax=raw.ax_, color="k")
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


def test_vectors_that_are_all_zero_have_no_spectrum():
    with pytest.raises(ValueError, match="all zero"):
        SpectrumDisplay.from_vectors(np.zeros((3, 2)))


@pytest.mark.parametrize("display", DISPLAYS)
def test_displays_take_vectors_as_estimators_do(display, cone, pyplot):
    with pytest.raises(ValueError, match="NaN"):
        display.from_vectors(np.where(cone == cone[1, 1], np.nan, cone))
    with pytest.raises(TypeError, match="Got texts, such as 'a'"):
        display.from_vectors(["a", "b"])


@pytest.mark.parametrize("display", DISPLAYS)
def test_without_matplotlib_the_error_names_the_extra(display, cone, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib.pyplot", None)
    with pytest.raises(ImportError, match=r"pip install matplotlib$"):
        display.from_vectors(cone)


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
