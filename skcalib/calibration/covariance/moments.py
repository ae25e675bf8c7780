"""Mean and scatter matrix of a sample, in float64, by parts that merge exactly.

Each chunk is centered about its own mean, and two parts join by the pairwise update of Chan,
Golub & LeVeque (1983), which only adds positive semi-definite terms: nothing cancels, whatever
the common mean, and any split of the rows gives the same result to rounding.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property, reduce
from typing import Any

import numpy as np

from skcalib.calibration.covariance.spectrum import decompose
from skcalib.utils.limits import rows_within
from skcalib.utils.threads import map_row_ranges

# Size of the working copy of a chunk: large enough for BLAS to run at full speed and for
# merges not to count, small enough for the last-level cache and not to matter in memory.
CHUNK_BYTES = 6 * 2**20


def chunk_rows(n_features: int) -> int:
    """Rows of a chunk."""
    return rows_within(CHUNK_BYTES, n_features)


@dataclass(frozen=True)
class Moments:
    """Sums over a sample of ``c = x - mean`` and ``q = |c|²``, each term times its weight."""

    n: int | float  # number of samples, or the sum of their weights
    mean: np.ndarray  # (d,)
    scatter: np.ndarray  # (d, d), ``Σ c cᵀ``
    cubic: np.ndarray  # (d,), ``Σ q c``; only needed to move ``quartic`` to another mean
    quartic: float  # ``Σ q²``
    single: bool = False  # whether some samples came as float32

    @classmethod
    def from_array(cls, X: np.ndarray, weight: np.ndarray | None = None) -> Moments:
        """Moments of the rows of ``X``, of any float dtype, in chunks and several threads.

        ``weight`` is how many times each row counts.
        """

        def moments_of(chunks: Iterator[slice]) -> Moments:
            pairs = ((X[rows], None if weight is None else weight[rows]) for rows in chunks)
            return cls.from_chunks(pairs)

        n, d = X.shape
        step = min(chunk_rows(d), n)
        parts = map_row_ranges(moments_of, n, step, working_bytes=8 * d * (2 * step + 3 * d))
        return reduce(cls.merge, parts)

    @classmethod
    def from_chunks(cls, chunks: Iterable[tuple[Any, Any]], xp: Any = np) -> Moments:
        """Moments of chunks, pairs of rows and of their float64 weights or None.

        Their arrays are NumPy's or those of the array API namespace ``xp``, on one device.
        """
        return reduce(cls.merge, (cls._of_chunk(x, w, xp) for x, w in chunks))

    @classmethod
    def _of_chunk(cls, x: Any, w: Any, xp: Any) -> Moments:
        # Differences from one of the rows keep the digits below a large common mean, and keep
        # a constant column constant.
        row = xp.asarray(x[0 if w is None else int(xp.argmax(w)), :], dtype=xp.float64)
        c, n = x - row, x.shape[0] if w is None else float(xp.sum(w))
        offset = (xp.sum(c, axis=0) if w is None else w @ c) / (n or 1)
        c -= offset
        q = xp.sum(c * c, axis=1)
        wq = q if w is None else w * q
        cubic, quartic = wq @ c, float(wq @ q)
        if w is not None:
            c *= xp.sqrt(w)[:, None]
        # The product of one array with itself is a syrk in NumPy.
        return cls(n, row + offset, c.T @ c, cubic, quartic, x.dtype != xp.float64)

    def merge(self, other: Moments) -> Moments:
        """Moments of both samples together."""
        n = self.n + other.n
        heavy, light = (self, other) if self.n >= other.n else (other, self)
        mean = heavy.mean + (light.mean - heavy.mean) * (light.n / (n or 1))
        delta = other.mean - self.mean
        cubic_a, quartic_a = self._about(mean)
        cubic_b, quartic_b = other._about(mean)
        scatter = (delta * (self.n * other.n / (n or 1)))[:, None] * delta
        scatter += self.scatter
        scatter += other.scatter
        cubic, quartic = cubic_a + cubic_b, quartic_a + quartic_b
        return Moments(n, mean, scatter, cubic, quartic, self.single or other.single)

    def _about(self, mean: Any) -> tuple[Any, float]:
        """``cubic`` and ``quartic`` about another mean."""
        shift = mean - self.mean
        s2, trace = float(shift @ shift), float(self.scatter.diagonal().sum())
        pulled = self.scatter @ shift
        cubic = self.cubic - 2 * pulled - (trace + self.n * s2) * shift
        along = float(shift @ (self.cubic - pulled))
        return cubic, self.quartic - 4 * along + s2 * (2 * trace + self.n * s2)

    def on_cpu(self) -> Moments:
        """Return the same with NumPy's arrays."""
        arrays: Any = self.mean, self.scatter, self.cubic
        mean, scatter, cubic = (np.asarray(a.cpu() if hasattr(a, "cpu") else a) for a in arrays)
        return replace(self, mean=mean, scatter=scatter, cubic=cubic)

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

    @cached_property
    def spectrum(self) -> tuple[np.ndarray, np.ndarray]:
        """Eigenvalues and eigenvectors of the covariance, as `decompose` returns them."""
        return decompose(self.covariance())


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
