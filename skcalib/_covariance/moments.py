"""Mean and scatter matrix of a sample, in float64, by parts that merge exactly.

Subtracting ``n mean meanᵀ`` from a raw second moment loses every digit that the mean has
above the spread. Here a group of chunks is centred about the mean of its first, and two
parts join by the pairwise update of Chan, Golub & LeVeque (1983), which only ever adds
positive semi-definite terms: nothing cancels, whatever the common mean, and any split of the
rows (threads, ``partial_fit`` batches, workers) gives the same result to rounding.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import reduce
from itertools import chain, islice
from typing import Any

import numpy as np
from sklearn.utils import gen_batches

from skcalib._machine.limits import rows_within

__all__ = ["Moments", "chunk_rows", "ledoit_wolf_shrinkage"]

# Size of the working copy of a chunk: large enough for BLAS to run at full speed, small
# enough for the last-level cache and not to matter in memory.
CHUNK_BYTES = 8 * 2**20

# Number of chunks that share an origin. Let δ lead from the mean of the first chunk to that
# of the group. In any direction v the first chunk alone adds n1 (v·δ)² or more to the group's
# scatter, and moving the origin subtracts n (v·δ)²: at most this many units in the last place
# are lost.
GROUP = 16


def chunk_rows(n_features: int) -> int:
    """Rows of a chunk."""
    return rows_within(CHUNK_BYTES, n_features)


@dataclass(frozen=True)
class Moments:
    """Sufficient statistics of a sample for whitening and Ledoit-Wolf shrinkage.

    In the sums ``c = x - mean`` and ``q = |c|²``, each term times its weight where there are
    weights.
    """

    n: int | float  # number of samples, or the sum of their weights
    mean: np.ndarray  # (d,)
    scatter: np.ndarray  # (d, d), ``Σ c cᵀ``
    cubic: np.ndarray  # (d,), ``Σ q c``; only needed to move ``quartic`` to another mean
    quartic: float  # ``Σ q²``

    @classmethod
    def from_array(
        cls,
        X: np.ndarray,
        weight: np.ndarray | None = None,
        chunks: Iterable[slice] | None = None,
    ) -> Moments:
        """Moments of the rows of ``X``, of any float dtype, in one pass over chunks of it.

        ``weight`` says how many times each row counts. ``chunks`` are the rows to take, at
        least one, in slices of at most `chunk_rows`; None takes all rows.
        """
        most = chunk_rows(X.shape[1])
        chunks = iter(gen_batches(len(X), most) if chunks is None else chunks)
        # The bound on GROUP needs equal weights: a first chunk of hardly any weight gives none.
        n_chunks = GROUP if weight is None else 1
        buffer = np.empty((min(most, len(X)), X.shape[1]))
        groups = (chain([chunk], islice(chunks, n_chunks - 1)) for chunk in chunks)
        return reduce(cls.merge, (cls._of_group(X, weight, group, buffer) for group in groups))

    @classmethod
    def _of_group(
        cls,
        X: np.ndarray,
        weight: np.ndarray | None,
        chunks: Iterable[slice],
        buffer: np.ndarray,
    ) -> Moments:
        """Moments of chunks that share an origin; ``buffer`` is overwritten."""
        origin: Any = None
        scatter: Any = None
        n, first, cubic, quartic = 0, 0.0, 0.0, 0.0  # type: Any, Any, Any, float
        for i, chunk in enumerate(chunks):
            x = X[chunk]
            c = buffer[: len(x)]
            w = np.ones(len(x)) if weight is None else weight[chunk]
            if i == 0:
                origin = cls._mean_of_chunk(x, w, c)
            np.subtract(x, origin, out=c)
            q = np.einsum("ij,ij->i", c, c)
            n += len(x) if weight is None else float(w.sum())
            first += w @ c
            cubic += (w * q) @ c
            quartic += float((w * q) @ q)
            if weight is not None:
                c *= np.sqrt(w)[:, None]
            # NumPy computes the product of a matrix with its transpose by a syrk.
            product = np.dot(c.T, c)
            scatter = product if i == 0 else np.add(scatter, product, out=scatter)
        if i == 0:  # a single chunk, centred about its own mean
            return cls(n, origin, scatter, cubic, quartic)
        return cls.from_sums(n, origin, first, scatter, cubic, quartic)

    @classmethod
    def from_sums(
        cls,
        n: int | float,
        origin: np.ndarray,
        first: np.ndarray,
        scatter: np.ndarray,
        cubic: np.ndarray,
        quartic: float,
    ) -> Moments:
        """Moments from sums of ``c = x - origin``, ``first`` being ``Σ c``.

        ``scatter`` is overwritten.
        """
        shift = first / (n or 1)
        cubic, quartic = _recentred(shift, n, first, scatter, cubic, quartic)
        scatter -= np.outer(n * shift, shift)
        return cls(n, origin + shift, scatter, cubic, quartic)

    @staticmethod
    def _mean_of_chunk(x: np.ndarray, w: np.ndarray, buffer: np.ndarray) -> np.ndarray:
        # Sums of differences from one of the rows keep the digits below a large common mean,
        # and keep a constant column constant.
        origin = x[w.argmax()].astype(np.float64)
        return origin + w @ np.subtract(x, origin, out=buffer) / (w.sum() or 1)

    def merge(self, other: Moments) -> Moments:
        """Moments of both samples together."""
        n = self.n + other.n
        heavy, light = (self, other) if self.n >= other.n else (other, self)
        mean = heavy.mean + (light.mean - heavy.mean) * (light.n / (n or 1))
        delta = other.mean - self.mean
        cubic_a, quartic_a = self._about(mean)
        cubic_b, quartic_b = other._about(mean)
        scatter = np.outer(delta * (self.n * other.n / (n or 1)), delta)
        scatter += self.scatter
        scatter += other.scatter
        return Moments(n, mean, scatter, cubic_a + cubic_b, quartic_a + quartic_b)

    def _about(self, mean: np.ndarray) -> tuple[np.ndarray, float]:
        """``cubic`` and ``quartic`` about another mean."""
        shift = mean - self.mean
        return _recentred(shift, self.n, 0 * shift, self.scatter, self.cubic, self.quartic)

    def covariance(self) -> np.ndarray:
        """Unbiased covariance, ``scatter / (n - 1)``."""
        return self.scatter / (self.n - 1)


def _recentred(
    shift: np.ndarray,
    n: int | float,
    first: np.ndarray,
    second: np.ndarray,
    cubic: np.ndarray,
    quartic: float,
) -> tuple[np.ndarray, float]:
    """``Σ q c`` and ``Σ q²`` of ``c - shift``, expanded in the sums of ``c``.

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
