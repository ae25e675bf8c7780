"""The paired bootstrap: how sure a difference of two means over a sample is."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

__all__ = ["Difference", "interval", "resamples"]

RESAMPLED = 1000  # samples that are drawn from the one at hand


@dataclass(frozen=True)
class Difference:
    """A difference of two scores, and its 95 % interval by a paired bootstrap of the texts.

    Parameters
    ----------
    mean : float
        The difference.
    low, high : float
        Ends of the interval.
    """

    mean: float
    low: float
    high: float

    @property
    def is_gain(self) -> bool:
        """Whether the interval is above zero."""
        return self.low > 0

    def __str__(self) -> str:
        return f"{100 * self.mean:+.1f} ({100 * self.low:+.1f} to {100 * self.high:+.1f})"


def resamples(n: int, seed: int) -> np.ndarray:
    """Weights of samples with replacement, of shape (n, RESAMPLED).

    A product of values (..., n) with them gives the mean of each sample. It is paired where
    the same weights are taken for all that is compared.
    """
    counts = np.random.default_rng(seed).multinomial(n, np.full(n, 1 / n), size=RESAMPLED)
    return counts.T / n


def interval(means: np.ndarray) -> np.ndarray:
    """Return the ends of the 95 % interval of means (..., RESAMPLED), of shape (2, ...)."""
    return np.quantile(means, (0.025, 0.975), axis=-1)
