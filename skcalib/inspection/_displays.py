"""Displays in scikit-learn's style of what calibration does to vectors."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np
from numpy.typing import ArrayLike
from scipy import linalg
from sklearn.base import BaseEstimator

from skcalib.base import import_package
from skcalib.inputs.vectors import check_vectors, unit_rows

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
        *,
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
        name : str or None, default=None
            For the legend; None uses the name of the estimator's class.
        ax, **kwargs
            As in `from_vectors`.

        Returns
        -------
        display : object of this class
        """
        name = type(estimator).__name__ if name is None else name
        return cls.from_vectors(estimator.transform(X), name=name, ax=ax, **kwargs)

    @classmethod
    def from_vectors(
        cls,
        X: ArrayLike,
        *,
        name: str | None = None,
        ax: Axes | None = None,
        **kwargs: Any,
    ) -> Self:
        """Draw vectors.

        Parameters
        ----------
        X : array-like of shape (n_samples, d)
            Vectors. `SpectrumDisplay` needs one that is not zero. `CosineDisplay` uses at most
            1000, evenly spaced.
        name : str or None, default=None
            For the legend.
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
            If vectors are not finite.
        """
        return cls(*cls._measure(X), name=name).plot(ax, **kwargs)


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
        return ((unit @ unit.T)[np.triu_indices(len(unit), 1)],)

    def _draw(self, ax: Axes, kwargs: dict[str, Any]) -> None:
        # Fixed bins, so that overlaid histograms compare.
        style = {"bins": np.linspace(-1, 1, 101), "density": True, "alpha": 0.6, **kwargs}
        self.bars_ = ax.hist(self.cosines, **{"label": self.name, **style})[2]
        ax.set(xlabel="cosine of two different texts", ylabel="density")
