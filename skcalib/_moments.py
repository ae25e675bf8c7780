"""Mean and scatter matrix of a sample, in float64, by chunks that merge exactly.

Subtracting ``n mean meanᵀ`` from a raw second moment loses every digit that the mean has
above the spread. Here each chunk is centred on its own mean first, and two parts join by
the pairwise update of Chan, Golub & LeVeque (1983), which only ever adds positive
semi-definite terms: nothing cancels, whatever the common mean, and any split of the rows
(chunks, ``partial_fit`` batches, workers) gives the same result to rounding.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

__all__ = ["Moments", "ledoit_wolf_shrinkage"]

# A float64 working copy of one chunk: long enough for BLAS to run at full speed, short
# enough to stay within the last-level cache and never to matter in memory.
CHUNK_BYTES = 8 * 2**20


def chunk_rows(n_features: int) -> int:
    """Rows of a float64 working buffer of about ``CHUNK_BYTES``."""
    return max(64, CHUNK_BYTES // (8 * n_features))


def row_chunks(n_rows: int, n_features: int):
    """Slices that cover ``n_rows`` in chunks of ``chunk_rows(n_features)``."""
    step = chunk_rows(n_features)
    return (slice(start, min(start + step, n_rows)) for start in range(0, n_rows, step))


@dataclass(frozen=True)
class Moments:
    """Sufficient statistics of a sample for whitening and Ledoit-Wolf shrinkage.

    With ``c = x - mean`` and ``q = |c|²``, sums running over the sample:

    Attributes
    ----------
    n : int
        Number of samples.
    mean : ndarray of shape (d,)
    scatter : ndarray of shape (d, d)
        ``Σ c cᵀ``.
    cubic : ndarray of shape (d,)
        ``Σ q c``; only needed to move ``quartic`` to another mean.
    quartic : float
        ``Σ q²``.
    """

    n: int
    mean: np.ndarray
    scatter: np.ndarray
    cubic: np.ndarray
    quartic: float

    @classmethod
    def from_array(cls, X: np.ndarray) -> Moments:
        """Moments of the rows of ``X``, in one pass over chunks of it."""
        n_rows, n_features = X.shape
        buffer = np.empty((min(chunk_rows(n_features), n_rows), n_features))
        total = None
        for rows in row_chunks(n_rows, n_features):
            part = cls._from_chunk(X[rows], buffer[: rows.stop - rows.start])
            total = part if total is None else total.merge(part)
        assert total is not None  # callers validate that X has rows
        return total

    @classmethod
    def _from_chunk(cls, x: np.ndarray, centred: np.ndarray) -> Moments:
        # Measured from its first row, a chunk keeps its digits below a large common mean
        # even while the mean is summed up, and a constant column is constant exactly.
        origin = x[0].astype(np.float64)
        np.subtract(x, origin, out=centred)
        shift = centred.mean(axis=0)
        centred -= shift
        q = np.einsum("ij,ij->i", centred, centred)
        scatter = centred.T @ centred
        return cls(len(x), origin + shift, scatter, q @ centred, float(q @ q))

    def merge(self, other: Moments) -> Moments:
        """Moments of both samples together."""
        n = self.n + other.n
        delta = other.mean - self.mean
        mean = self.mean + delta * (other.n / n)
        scatter = np.outer(delta * (self.n * other.n / n), delta)
        scatter += self.scatter
        scatter += other.scatter
        cubic_a, quartic_a = self._about(mean)
        cubic_b, quartic_b = other._about(mean)
        return Moments(n, mean, scatter, cubic_a + cubic_b, quartic_a + quartic_b)

    def _about(self, mean: np.ndarray) -> tuple[np.ndarray, float]:
        """``cubic`` and ``quartic`` about another mean: expand ``c - shift``, ``Σ c = 0``."""
        shift = mean - self.mean
        s2 = shift @ shift
        pulled = self.scatter @ shift
        trace = np.trace(self.scatter)
        cubic = self.cubic - 2 * pulled - (trace + self.n * s2) * shift
        quartic = (
            self.quartic
            - 4 * (shift @ self.cubic)
            + 4 * (shift @ pulled)
            + 2 * s2 * trace
            + self.n * s2**2
        )
        return cubic, float(quartic)

    def covariance(self) -> np.ndarray:
        """Unbiased covariance, ``scatter / (n - 1)``."""
        return self.scatter / (self.n - 1)


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
