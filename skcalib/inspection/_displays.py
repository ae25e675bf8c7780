"""Displays in scikit-learn's style of what calibration does to vectors."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Self

import numpy as np
from numpy.typing import ArrayLike
from scipy import linalg

from skcalib.base import import_package
from skcalib.inputs.vectors import check_vectors, unit_rows

if TYPE_CHECKING:
    from matplotlib.axes import Axes

# Rows in a histogram of cosines: half a million pairs; more do not change its shape.
ROWS_OF_COSINES = 1000


def axes_for(display: Any, ax: Axes | None) -> Axes:
    """Return the axes, or those of a new figure, as the display's own from now on."""
    if ax is None:
        pyplot = import_package("matplotlib", "matplotlib.pyplot")
        ax = pyplot.subplots(layout="constrained")[1]
    display.ax_, display.figure_ = ax, ax.figure
    return ax


class SpectrumDisplay:
    """Singular values of a set of vectors, relative to the largest.

    Where it falls steeply, a few directions decide every cosine; that of whitened vectors is
    flat. The vectors are not centered: a long common mean is one of the directions.

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
    >>> whitened = Whitening().fit_transform(X)
    >>> flat = SpectrumDisplay.from_vectors(whitened, name="whitened", ax=raw.ax_)
    >>> bool(np.allclose(flat.singular_values, flat.singular_values[0]))
    True
    """

    def __init__(self, singular_values: np.ndarray, *, name: str | None = None) -> None:
        self.singular_values = singular_values
        self.name = name

    @classmethod
    def from_vectors(cls, X: ArrayLike, *, name: str | None = None, **kwargs: Any) -> Self:
        """Draw vectors.

        Parameters
        ----------
        X : array-like of shape (n_samples, d)
            Vectors, finite, and at least one of them not zero.
        name : str or None, default=None
            For the legend.
        **kwargs
            As for `plot`.

        Returns
        -------
        display : SpectrumDisplay
        """
        vectors = check_vectors(X)
        if not vectors.any():
            raise ValueError("SpectrumDisplay got vectors that are all zero; drop them.")
        return cls(linalg.svdvals(vectors), name=name).plot(**kwargs)

    def plot(self, ax: Axes | None = None, **kwargs: Any) -> Self:
        """Draw again.

        Parameters
        ----------
        ax : matplotlib Axes or None, default=None
            Where to draw; None makes a new figure.
        **kwargs
            Passed to matplotlib's ``plot``.

        Returns
        -------
        display : SpectrumDisplay
        """
        ax = axes_for(self, ax)
        relative = self.singular_values / self.singular_values[0]
        style = {"label": self.name, **kwargs}
        (self.line_,) = ax.plot(np.arange(1, len(relative) + 1), relative, **style)
        ax.set(xlabel="number", ylabel="singular value / largest", yscale="log")
        if self.name is not None:
            ax.legend()
        return self


class CosineDisplay:
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
    >>> whitened = CosineDisplay.from_vectors(Whitening().fit_transform(X), ax=raw.ax_)
    >>> bool(raw.cosines.mean() > 0.9 > 0.1 > abs(whitened.cosines.mean()))
    True
    """

    def __init__(self, cosines: np.ndarray, *, name: str | None = None) -> None:
        self.cosines = np.clip(cosines, -1, 1)  # rounding would put some outside the bins
        self.name = name

    @classmethod
    def from_vectors(cls, X: ArrayLike, *, name: str | None = None, **kwargs: Any) -> Self:
        """Draw the cosines of vectors.

        Parameters
        ----------
        X : array-like of shape (n_samples, d)
            Finite vectors, of which at most 1000 are used, evenly spaced.
        name, **kwargs
            As for `SpectrumDisplay.from_vectors`.

        Returns
        -------
        display : CosineDisplay
        """
        vectors = check_vectors(X, ensure_min_samples=2)
        n = len(vectors)
        unit, _ = unit_rows(vectors[np.linspace(0, n - 1, min(n, ROWS_OF_COSINES)).astype(int)])
        cosines = (unit @ unit.T)[np.triu_indices(len(unit), 1)]
        return cls(cosines, name=name).plot(**kwargs)

    def plot(self, ax: Axes | None = None, **kwargs: Any) -> Self:
        """Draw again.

        Parameters
        ----------
        ax, **kwargs
            As for `SpectrumDisplay.plot`, and passed to matplotlib's ``hist``.

        Returns
        -------
        display : CosineDisplay
        """
        ax = axes_for(self, ax)
        # Fixed bins, so that overlaid histograms compare.
        bins = np.linspace(-1, 1, 101)
        style = {"label": self.name, "bins": bins, "density": True, "alpha": 0.6, **kwargs}
        self.bars_ = ax.hist(self.cosines, **style)[2]
        ax.set(xlabel="cosine of two different texts", ylabel="density")
        if self.name is not None:
            ax.legend()
        return self
