"""Mean and scatter matrix of a sample, in float64, by parts that merge exactly.

Subtracting ``n mean meanᵀ`` from a raw second moment loses every digit that the mean has
above the spread. Here a group of chunks is centred about the mean of its first, and two
parts join by the pairwise update of Chan, Golub & LeVeque (1983), which only ever adds
positive semi-definite terms: nothing cancels, whatever the common mean, and any split of the
rows (threads, ``partial_fit`` batches, workers) gives the same result to rounding.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from functools import reduce
from typing import Any

import numpy as np

from skcalib._row_threads import chunk_rows, map_row_ranges, row_chunks

__all__ = ["Moments", "check_size", "ledoit_wolf_shrinkage"]

# Chunks that share an origin. In any direction v the first chunk alone gives the group's
# scatter at least n1 (v·δ)², δ being the way from its mean to the group's, and moving the
# origin subtracts n (v·δ)²: at most this many units in the last place are lost.
GROUP = 16


@dataclass(frozen=True)
class Moments:
    """Sufficient statistics of a sample for whitening and Ledoit-Wolf shrinkage.

    With ``c = x - mean`` and ``q = |c|²``, sums running over the sample, each term times its
    weight where there are weights:

    Attributes
    ----------
    n : int or float
        Number of samples, or the sum of their weights.
    mean : ndarray of shape (d,)
    scatter : ndarray of shape (d, d)
        ``Σ c cᵀ``.
    cubic : ndarray of shape (d,)
        ``Σ q c``; only needed to move ``quartic`` to another mean.
    quartic : float
        ``Σ q²``.
    """

    n: int | float
    mean: np.ndarray
    scatter: np.ndarray
    cubic: np.ndarray
    quartic: float

    @classmethod
    def from_array(cls, X: np.ndarray, weight: np.ndarray | None = None) -> Moments:
        """Moments of the rows of ``X``, in one pass over chunks of it.

        Parameters
        ----------
        X : ndarray of shape (n, d)
            Of any float dtype and layout; at least one row.
        weight : ndarray of shape (n,) or None
            How many times each row counts; not negative.
        """
        n_rows, d = X.shape
        working_bytes = 8 * (d * min(chunk_rows(d), n_rows) + 3 * d * d)
        parts = map_row_ranges(
            lambda rows: cls._from_rows(X, weight, rows), n_rows, working_bytes=working_bytes
        )
        return reduce(cls.merge, parts)

    @classmethod
    def _from_rows(cls, X: np.ndarray, weight: np.ndarray | None, rows: slice) -> Moments:
        d = X.shape[1]
        step = min(chunk_rows(d), rows.stop - rows.start)
        buffer, product, scatter = np.empty((step, d)), np.empty((d, d)), np.empty((d, d))
        total = None
        # The bound on GROUP is for equal weights; a first chunk that hardly counts gives none.
        n_chunks = GROUP if weight is None else 1
        for group in row_chunks(rows, n_chunks * step):
            part = cls._from_group(X, weight, group, buffer, product, scatter)
            if total is None:
                total, scatter = part, np.empty((d, d))
            else:
                total, product = total.merge(part, out=product), total.scatter
        assert total is not None  # callers validate that X has rows
        return total

    @classmethod
    def _from_group(cls, X, weight, rows: slice, buffer, product, scatter) -> Moments:
        """Moments of a group of chunks; their scatter goes into the array given for it."""
        origin: Any = None
        n, first, cubic, quartic = 0, 0.0, 0.0, 0.0  # type: Any, Any, Any, float
        for chunk in row_chunks(rows, len(buffer)):
            x, w = X[chunk], None if weight is None else weight[chunk]
            c = buffer[: len(x)]
            opening = origin is None
            if opening:
                origin = cls._mean_of_chunk(x, w, c)
            np.subtract(x, origin, out=c)
            q = np.einsum("ij,ij->i", c, c)
            wq = q if w is None else w * q
            n += len(x) if w is None else float(w.sum())
            first += c.sum(axis=0) if w is None else w @ c
            cubic += wq @ c
            quartic += float(wq @ q)
            if w is not None:
                c *= np.sqrt(w)[:, None]
            np.dot(c.T, c, out=scatter if opening else product)  # a syrk, as NumPy notices
            if not opening:
                scatter += product
        if chunk.start == rows.start:  # one chunk only, and centred on its own mean
            return cls(n, origin, scatter, cubic, quartic)
        return cls.from_sums(n, origin, first, scatter, cubic, quartic, work=product)

    @classmethod
    def from_sums(cls, n, origin, first, scatter, cubic, quartic, *, work=None) -> Moments:
        """Moments from sums of ``c = x - origin``, ``first`` being ``Σ c``.

        ``scatter`` is overwritten, and ``work``, of its shape, if given.
        """
        shift = first / (n or 1)
        cubic, quartic = _moved(shift, n, first, scatter, cubic, quartic)
        scatter -= np.outer(n * shift, shift, out=work)
        return cls(n, origin + shift, scatter, cubic, quartic)

    @staticmethod
    def _mean_of_chunk(x, w, buffer):
        # Measured from one of its rows, a chunk keeps its digits below a large common mean
        # while the mean is summed up, and a constant column stays constant.
        origin = x[0 if w is None else w.argmax()].astype(np.float64)
        c = np.subtract(x, origin, out=buffer)
        return origin + (c.mean(axis=0) if w is None else w @ c / (w.sum() or 1))

    def merge(self, other: Moments, *, out: np.ndarray | None = None) -> Moments:
        """Moments of both samples together; ``out`` takes the scatter."""
        n = self.n + other.n
        heavy, light = (self, other) if self.n >= other.n else (other, self)
        mean = heavy.mean + (light.mean - heavy.mean) * (light.n / (n or 1))
        delta = other.mean - self.mean
        scatter = np.outer(delta * (self.n * other.n / (n or 1)), delta, out=out)
        scatter += self.scatter
        scatter += other.scatter
        cubic_a, quartic_a = self._about(mean)
        cubic_b, quartic_b = other._about(mean)
        return Moments(n, mean, scatter, cubic_a + cubic_b, quartic_a + quartic_b)

    def _about(self, mean: np.ndarray) -> tuple[np.ndarray, float]:
        """``cubic`` and ``quartic`` about another mean."""
        shift = mean - self.mean
        return _moved(shift, self.n, 0 * shift, self.scatter, self.cubic, self.quartic)

    def covariance(self) -> np.ndarray:
        """Unbiased covariance, ``scatter / (n - 1)``."""
        return self.scatter / (self.n - 1)


def check_size(n_features: int, caller: str) -> None:
    """Raise a ValueError if square matrices of this size cannot fit into this machine.

    The system might promise the memory all the same, and end the process later.
    """
    try:
        memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, ValueError, OSError):  # not told here
        return
    n_bytes = 8 * n_features**2
    if 4 * n_bytes > memory:
        raise ValueError(
            f"X has {n_features} features; {caller} needs four matrices of {n_features} x "
            f"{n_features}, of {n_bytes / 1e9:,.0f} GB each, and this machine has "
            f"{memory / 1e9:,.0f} GB. Reduce the features first, for instance with "
            "sklearn.random_projection or TruncatedSVD."
        )


def _moved(shift, n, first, second, cubic, quartic):
    """``Σ q c`` and ``Σ q²`` of ``c - shift``, from the sums of ``c``: the binomials expanded.

    ``first`` is ``Σ c`` and ``second`` is ``Σ c cᵀ``.
    """
    s2, pulled, trace = shift @ shift, second @ shift, np.trace(second)
    along = first @ shift
    moved_cubic = cubic - 2 * pulled + s2 * first + (2 * along - trace - n * s2) * shift
    moved_quartic = (
        quartic
        - 4 * (shift @ cubic)
        + 4 * (shift @ pulled)
        + 2 * s2 * trace
        - 4 * s2 * along
        + n * s2**2
    )
    return moved_cubic, float(moved_quartic)


def ledoit_wolf_shrinkage(moments: Moments) -> float:
    """Ledoit-Wolf intensity of shrinkage toward the scaled identity, in [0, 1].

    Ledoit & Wolf (2004), "A well-conditioned estimator for large-dimensional covariance
    matrices", with ``S = scatter / n``: the variance of ``S`` about the covariance,
    ``β² = (Σ q² / n - |S|²) / n``, over its distance to the target,
    ``δ² = |S|² - tr(S)² / d``.
    """
    n, d = moments.n, len(moments.mean)
    norm2 = np.sum((moments.scatter / n) ** 2)
    distance = norm2 - (np.trace(moments.scatter) / n) ** 2 / d
    noise = (moments.quartic / n - norm2) / n
    if distance <= 0:  # already a multiple of the identity (always so when d = 1)
        return 0.0
    return float(np.clip(noise / distance, 0.0, 1.0))
