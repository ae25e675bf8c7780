"""Displays in scikit-learn's style of what calibration does to vectors."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np
from numpy.typing import ArrayLike
from scipy import linalg
from sklearn.base import BaseEstimator
from sklearn.utils.extmath import svd_flip

from skcalib.base import import_package
from skcalib.inputs.vectors import check_vectors, unit_rows
from skcalib.inspection._word_frequency import checked_ranks

if TYPE_CHECKING:
    from matplotlib.axes import Axes

# Rows in a histogram of cosines: half a million pairs; more do not change its shape.
ROWS_OF_COSINES = 1000


@dataclass(eq=False, repr=False)
class Display:
    """Base of the displays, which draw what they hold in ``_draw``."""

    name: str | None = field(default=None, kw_only=True)

    _draw: ClassVar[Callable[..., None]]

    def plot(self, ax: Axes | None = None, **kwargs: Any) -> Self:
        """Draw again.

        Parameters
        ----------
        ax, **kwargs
            As for the method that made the display.

        Returns
        -------
        display : object of this class
        """
        if ax is None:
            pyplot = import_package("matplotlib", "matplotlib.pyplot")
            ax = pyplot.subplots(layout="constrained")[1]
        self.ax_ = ax
        self.figure_ = ax.figure
        self._draw(ax, kwargs)
        if ax.get_legend_handles_labels()[0]:
            ax.legend()
        return self


@dataclass(eq=False, repr=False)
class _VectorDisplay(Display):
    """Base of the displays of vectors, which come from an estimator or directly.

    A display measures vectors in ``_measure``, which returns the arguments of its constructor.
    """

    _measure: ClassVar[Callable[..., tuple]]

    @classmethod
    def from_estimator(
        cls,
        estimator: BaseEstimator,
        X: Any,
        *args: ArrayLike,
        name: str | None = None,
        ax: Axes | None = None,
        **kwargs: Any,
    ) -> Self:
        """Draw the vectors that a fitted estimator returns.

        Parameters
        ----------
        estimator : fitted estimator
            With ``transform``, such as a pipeline of `BertEncoder` and `Whitening`.
        X : array-like
            Its input: texts, or vectors for a calibrator alone.
        *args : array-like
            As in `from_vectors`.
        name : str or None, default=None
            For legend or title; None uses the name of the estimator's class.
        ax, **kwargs
            As in `from_vectors`.

        Returns
        -------
        display : object of this class
        """
        name = type(estimator).__name__ if name is None else name
        return cls.from_vectors(estimator.transform(X), *args, name=name, ax=ax, **kwargs)

    @classmethod
    def from_vectors(
        cls,
        X: ArrayLike,
        *args: ArrayLike,
        name: str | None = None,
        ax: Axes | None = None,
        **kwargs: Any,
    ) -> Self:
        """Draw vectors.

        Parameters
        ----------
        X : array-like of shape (n_samples, d)
            Vectors. `SpectrumDisplay` needs one that is not zero. `CosineDisplay` uses at most
            1000, evenly spaced. `FrequencyDisplay` needs two dimensions or more.
        *args
            For `FrequencyDisplay`, the frequency rank of each vector's word, 0 for the most
            frequent: array-like of shape (n_samples,).
        name : str or None, default=None
            For legend or title.
        ax : matplotlib Axes or None, default=None
            Where to draw; None makes a new figure.
        **kwargs
            Passed to matplotlib's drawing function.

        Returns
        -------
        display : object of this class

        Raises
        ------
        ImportError
            If matplotlib is missing.
        ValueError
            If vectors or ranks are not finite, or a rank is negative.
        """
        return cls(*cls._measure(X, *args), name=name).plot(ax, **kwargs)


@dataclass(eq=False, repr=False)
class SpectrumDisplay(_VectorDisplay):
    """Singular values of a set of vectors, relative to the largest.

    A spectrum that falls steeply means that a few directions decide every cosine; the spectrum
    of whitened vectors is flat. The vectors are not centered here: a long common mean is one of
    the directions.

    Parameters
    ----------
    singular_values : ndarray of shape (min(n_samples, d),)
        In decreasing order.
    name : str or None, default=None
        For the legend.

    Attributes
    ----------
    line_ : matplotlib Line2D
    ax_ : matplotlib Axes
    figure_ : matplotlib Figure

    Examples
    --------
    >>> import numpy as np
    >>> from skcalib import Whitening
    >>> from skcalib.inspection import SpectrumDisplay
    >>> X = np.random.default_rng(0).normal(size=(200, 8)) * np.arange(1, 9) + 5
    >>> raw = SpectrumDisplay.from_vectors(X, name="raw")
    >>> whitening = Whitening().fit(X)
    >>> flat = SpectrumDisplay.from_estimator(whitening, X, ax=raw.ax_)
    >>> bool(np.allclose(flat.singular_values, flat.singular_values[0]))
    True
    """

    singular_values: np.ndarray

    @staticmethod
    def _measure(X: ArrayLike) -> tuple[np.ndarray]:
        vectors = check_vectors(X)
        if not vectors.any():
            raise ValueError("SpectrumDisplay got vectors that are all zero; drop them.")
        return (linalg.svdvals(vectors),)

    def _draw(self, ax: Axes, kwargs: dict[str, Any]) -> None:
        relative = self.singular_values / self.singular_values[0]
        style = {"label": self.name, **kwargs}
        (self.line_,) = ax.plot(np.arange(1, len(relative) + 1), relative, **style)
        ax.set(xlabel="number", ylabel="singular value / largest", yscale="log")


@dataclass(eq=False, repr=False)
class CosineDisplay(_VectorDisplay):
    """Histogram of the cosines between vectors of different texts.

    Vectors in a narrow cone have cosines near 1 whatever the texts mean; the cosines of
    whitened vectors are around 0.

    Parameters
    ----------
    cosines : ndarray of shape (n_pairs,)
        Cosine of each pair.
    name : str or None, default=None
        For the legend.

    Attributes
    ----------
    bars_ : matplotlib container of patches
    ax_ : matplotlib Axes
    figure_ : matplotlib Figure

    Examples
    --------
    >>> import numpy as np
    >>> from skcalib import Whitening
    >>> from skcalib.inspection import CosineDisplay
    >>> X = np.random.default_rng(0).normal(size=(200, 8)) + 5
    >>> raw = CosineDisplay.from_vectors(X, name="raw")
    >>> whitened = CosineDisplay.from_estimator(Whitening().fit(X), X, ax=raw.ax_)
    >>> bool(raw.cosines.mean() > 0.9 > 0.1 > abs(whitened.cosines.mean()))
    True
    """

    cosines: np.ndarray

    def __post_init__(self) -> None:
        self.cosines = np.clip(self.cosines, -1, 1)  # rounding would put some outside the bins

    @staticmethod
    def _measure(X: ArrayLike) -> tuple[np.ndarray]:
        vectors = check_vectors(X, ensure_min_samples=2)
        n = len(vectors)
        vectors = vectors[np.linspace(0, n - 1, min(n, ROWS_OF_COSINES)).astype(int)]
        unit, _ = unit_rows(vectors)
        cosines = (unit @ unit.T)[np.triu_indices(len(unit), 1)]
        return (cosines,)

    def _draw(self, ax: Axes, kwargs: dict[str, Any]) -> None:
        # Fixed bins, so that overlaid histograms compare.
        style = {"bins": np.linspace(-1, 1, 101), "density": True, "alpha": 0.6, **kwargs}
        self.bars_ = ax.hist(self.cosines, **{"label": self.name, **style})[2]
        ax.set(xlabel="cosine of two different texts", ylabel="density")


@dataclass(eq=False, repr=False)
class FrequencyDisplay(_VectorDisplay):
    """Vectors of words in their two leading singular directions, colored by frequency.

    Figure 1 of the BERT-flow paper [1]_: where frequency biases the space, frequent words
    lie close together near the origin and rare ones spread far out.

    Parameters
    ----------
    projection : ndarray of shape (n_words, 2)
        Coordinates along the two leading right singular vectors, not centered.
    ranks : ndarray of shape (n_words,)
        Frequency rank of each word, 0 for the most frequent.
    name : str or None, default=None
        Title.

    Attributes
    ----------
    scatter_ : matplotlib PathCollection
    colorbar_ : matplotlib Colorbar
    ax_ : matplotlib Axes
    figure_ : matplotlib Figure

    References
    ----------
    .. [1] Li et al. (2020), "On the Sentence Embeddings from Pre-trained Language Models",
           EMNLP, arXiv:2011.05864.

    Examples
    --------
    >>> from skcalib.datasets import minilm_path
    >>> from skcalib.inspection import FrequencyDisplay, word_embeddings
    >>> vectors, ranks, words = word_embeddings(minilm_path())
    >>> display = FrequencyDisplay.from_vectors(vectors[:2000], ranks[:2000])
    >>> display.projection.shape
    (2000, 2)
    """

    projection: np.ndarray
    ranks: np.ndarray

    @staticmethod
    def _measure(X: ArrayLike, ranks: ArrayLike) -> tuple[np.ndarray, np.ndarray]:
        vectors = check_vectors(X, ensure_min_features=2, ensure_min_samples=2)
        places = checked_ranks(ranks, vectors)
        u, s, vt = linalg.svd(vectors, full_matrices=False)
        u, vt = svd_flip(u, vt, u_based_decision=False)
        return u[:, :2] * s[:2], places

    def _draw(self, ax: Axes, kwargs: dict[str, Any]) -> None:
        # Zipf's law: equal steps of color are equal ratios of frequency.
        # The many rare words go first, so that they do not cover the few frequent ones.
        order = np.argsort(-self.ranks, kind="stable")
        style = {"s": 4, "cmap": "viridis", **kwargs, "c": np.log10(1 + self.ranks[order])}
        self.scatter_ = ax.scatter(*self.projection[order].T, **style)
        self.colorbar_ = self.figure_.colorbar(self.scatter_, ax=ax, label="log10(1 + rank)")
        names = {"xlabel": "first singular direction", "ylabel": "second singular direction"}
        ax.set(**names, title=self.name)
