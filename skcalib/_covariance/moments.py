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
        slices = gen_batches(len(X), chunk_rows(X.shape[1])) if chunks is None else chunks
        parts = ((X[rows], None if weight is None else weight[rows]) for rows in slices)
        # The bound on GROUP needs equal weights: a first chunk of hardly any weight gives none.
        n_chunks = GROUP if weight is None else 1
        groups = (chain([part], islice(parts, n_chunks - 1)) for part in parts)
        return reduce(cls.merge, map(cls.from_group, groups))

    @classmethod
    def from_group(cls, chunks: Iterable[tuple[Any, Any]], xp: Any = np) -> Moments:
        """Moments of chunks that share an origin, the mean of the first.

        Each is a pair of rows and of their float64 weights, or None, in arrays of NumPy or of
        the array API namespace ``xp``.
        """
        origin: Any = None
        n: Any = 0
        single = False
        first, scatter, cubic, quartic = 0.0, 0.0, 0.0, 0.0  # type: Any, Any, Any, float
        for x, w in chunks:
            if origin is None:
                origin = _mean(x, w, xp)
            c = x - origin
            q = xp.sum(c * c, axis=1)
            single |= x.dtype != xp.float64
            n += x.shape[0] if w is None else float(xp.sum(w))
            first += xp.sum(c, axis=0) if w is None else w @ c
            wq = q if w is None else w * q
            cubic += wq @ c
            quartic += float(wq @ q)
            if w is not None:
                c *= xp.sqrt(w)[:, None]
            scatter += c.T @ c  # a syrk in NumPy, which sees one array in both
        origin, first, scatter, cubic = map(_as_numpy, (origin, first, scatter, cubic))
        shift = first / (n or 1)
        cubic, quartic = _recentred(shift, n, first, scatter, cubic, quartic)
        scatter -= np.outer(n * shift, shift)
        return cls(n, origin + shift, scatter, cubic, quartic, single)

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
        shift = mean - self.mean
        return _recentred(shift, self.n, 0 * shift, self.scatter, self.cubic, self.quartic)

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


def _as_numpy(array: Any) -> np.ndarray:
    """Copy an array to NumPy, from whatever device it is on."""
    return np.asarray(array.cpu() if hasattr(array, "cpu") else array).copy()


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
