"""Mean and scatter matrix of a sample, in float64, by parts that merge exactly.

Subtracting ``n mean meanᵀ`` from a raw second moment loses every digit that the mean has
above the spread. Here a group of chunks is centred about the mean of its first, and two
parts join by the pairwise update of Chan, Golub & LeVeque (1983), which only ever adds
positive semi-definite terms: nothing cancels, whatever the common mean, and any split of the
rows (threads, ``partial_fit`` batches, workers) gives the same result to rounding.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import reduce
from itertools import chain, islice
from operator import iadd
from typing import Any

import numpy as np

from skcalib._machine.limits import rows_within
from skcalib._machine.threads import map_row_ranges

__all__ = ["Moments", "chunk_rows", "ledoit_wolf_shrinkage"]

# Size of the working copy of a chunk: large enough for BLAS to run at full speed, small
# enough for the last-level cache and not to matter in memory.
CHUNK_BYTES = 4 * 2**20

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
    single: bool = False  # whether some samples came as float32

    @classmethod
    def from_array(cls, X: np.ndarray, weight: np.ndarray | None = None) -> Moments:
        """Moments of the rows of ``X``, of any float dtype, in chunks and several threads.

        ``weight`` says how many times each row counts.
        """

        def moments_of(chunks: Iterator[slice]) -> Moments:
            pairs = ((X[rows], None if weight is None else weight[rows]) for rows in chunks)
            return cls.from_chunks(pairs)

        n, d = X.shape
        step = min(chunk_rows(d), n)
        parts = map_row_ranges(moments_of, n, step, working_bytes=8 * d * (2 * step + 3 * d))
        return reduce(cls.merge, parts)

    @classmethod
    def from_chunks(cls, chunks: Iterator[tuple[Any, Any]], xp: Any = np) -> Moments:
        """Moments of chunks, pairs of rows and of their float64 weights or None.

        Their arrays are NumPy's or those of the array API namespace ``xp``.
        """
        # The bound on GROUP needs equal weights: a first chunk of hardly any weight gives none.
        groups = (
            chain([(x, w)], islice(chunks, GROUP - 1 if w is None else 0)) for x, w in chunks
        )
        return reduce(cls.merge, (cls._from_group(group, xp) for group in groups))

    @classmethod
    def _from_group(cls, chunks: Iterator[tuple[Any, Any]], xp: Any) -> Moments:
        """Moments of chunks that share an origin, the mean of the first."""
        x, w = next(chunks)
        origin = _mean(x, w, xp)
        sums = _power_sums(x - origin, w, xp)
        for other, w in chunks:
            sums = tuple(map(iadd, sums, _power_sums(other - origin, w, xp)))
        n, first, second, *_ = sums = tuple(map(_on_cpu, sums))
        shift = first / (n or 1)
        scatter = second - np.outer(n * shift, shift)
        single = x.dtype != xp.float64
        return cls(n, _on_cpu(origin) + shift, scatter, *_recentred(shift, sums), single)

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
        cubic, quartic = cubic_a + cubic_b, quartic_a + quartic_b
        return Moments(n, mean, scatter, cubic, quartic, self.single or other.single)

    def _about(self, mean: np.ndarray) -> tuple[np.ndarray, float]:
        """``cubic`` and ``quartic`` about another mean."""
        first = np.zeros_like(mean)
        sums = self.n, first, self.scatter, self.cubic, self.quartic
        return _recentred(mean - self.mean, sums)

    def rounding(self, axes: np.ndarray) -> np.ndarray:
        """Variance along each column of ``axes``, unit vectors, that rounding may have made.

        An entry x of a float32 sample has an error of at most u |x|, where u is half of eps.
        """
        if not self.single:
            return np.zeros(axes.shape[1])
        u = np.finfo(np.float32).eps / 2
        return (self.mean**2 + np.diag(self.scatter) / self.n) @ (u * axes) ** 2

    def covariance(self) -> np.ndarray:
        """Unbiased covariance, ``scatter / (n - 1)``."""
        return self.scatter / (self.n - 1)


def _mean(x: Any, w: Any, xp: Any) -> Any:
    """Float64 mean of the rows.

    Sums of differences from one of the rows keep the digits below a large common mean, and
    keep a constant column constant.
    """
    row = xp.asarray(x[0 if w is None else int(xp.argmax(w)), :], dtype=xp.float64)
    if w is None:
        return row + xp.mean(x - row, axis=0)
    return row + w @ (x - row) / (float(xp.sum(w)) or 1.0)


def _power_sums(c: Any, w: Any, xp: Any) -> tuple[Any, ...]:
    """``Σ 1``, ``Σ c``, ``Σ c cᵀ``, ``Σ q c`` and ``Σ q²`` of rows, each times its weight.

    Weights overwrite ``c``.
    """
    q = xp.sum(c * c, axis=1)
    if w is None:
        return c.shape[0], xp.sum(c, axis=0), c.T @ c, q @ c, float(q @ q)
    wq = w * q
    first, cubic = w @ c, wq @ c
    c *= xp.sqrt(w)[:, None]
    # The product of one array with itself is a syrk in NumPy.
    return float(xp.sum(w)), first, c.T @ c, cubic, float(wq @ q)


def _on_cpu(value: Any) -> Any:
    """Return numbers as they are, and arrays as NumPy's, from whatever device they are on."""
    if isinstance(value, int | float):
        return value
    return np.asarray(value.cpu() if hasattr(value, "cpu") else value)


def _recentred(shift: np.ndarray, sums: tuple[Any, ...]) -> tuple[np.ndarray, float]:
    """``Σ q c`` and ``Σ q²`` of ``c - shift``, expanded in the `_power_sums` of ``c``."""
    n, first, second, cubic, quartic = sums
    s2, pulled, trace = shift @ shift, second @ shift, np.trace(second)
    along = first @ shift
    moved_cubic = cubic - 2 * pulled + s2 * first + (2 * along - trace - n * s2) * shift
    moved_quartic = quartic - 4 * (shift @ (cubic - pulled))
    return moved_cubic, float(moved_quartic + s2 * (2 * trace - 4 * along + n * s2))


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
