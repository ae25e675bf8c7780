"""A test of whether new vectors differ from those of a fit."""

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from scipy.sparse import csr_array
from scipy.stats import rankdata
from sklearn.covariance import LedoitWolf
from sklearn.metrics.pairwise import check_pairwise_arrays
from sklearn.utils import gen_batches

from skcalib.cosines import above, nearest
from skcalib.inputs.vectors import check_vectors, distinct_vectors, unit_rows

SPLITS = 4999  # at random, so that one of three p-values is 0.0006 at least
ROWS = 128  # splits at once
# The r-th nearest of so many weighs 1 / r, so that small topics and large ones count alike.
NEAREST = 16
# Cosine about the mean of near-copies, such as a typing error or another number; others of one
# topic reach it rarely.
NEAR = 0.95
# Sums of values about their mean, a Brownian bridge, exceed this in one case of a hundred.
BRIDGE = 1.63


@dataclass(frozen=True)
class Shift:
    """How far a sample of new vectors lies from fitted ones.

    Parameters
    ----------
    mean_distance : float
        Distance of the means in standard deviations: the root of the squared distance over the
        trace of the fitted covariance, minus what chance adds, ``1 / n_fitted + 1 / n_new``.
    p_value : float
        Share of random splits of all vectors, fitted and new, whose parts differ as much in
        mean, Mahalanobis distance or neighbors. If nothing has changed, it is below a rate in
        at most this share of cases, for any distribution of independent samples, also if each
        was copied any number of times. Halves of pairs or of chapters are not independent, and
        differ by more, and so do near-copies that are not recognized.
    novelty : ndarray of shape (n_samples,)
        Share of new vectors among the 16 nearest of all to each new vector, the r-th nearest
        with weight 1 / r. About ``n_new / (n_fitted + n_new)`` where nothing is new, and 1 for
        a text of a new topic.
    """

    mean_distance: float
    p_value: float
    novelty: np.ndarray = field(repr=False)

    @property
    def is_shifted(self) -> bool:
        """Whether `p_value` is below 0.01; `mean_distance` measures the size of the shift."""
        return self.p_value < 0.01

    @property
    def start(self) -> int | None:
        """Row of the new vectors from which they have changed, if these are in order.

        It is 0 if no row stands out, as where all of them have changed, and None if nothing
        has.
        """
        if not self.is_shifted:
            return None
        values = self.novelty - self.novelty.mean()
        sums = np.cumsum(values)
        deviation = np.sqrt(len(values) * np.mean(values**2))
        row = int(sums.argmin())
        return row + 1 if -sums[row] > BRIDGE * deviation else 0


def shift(fitted: Any, X: Any) -> Shift:
    """Measure how far a sample of new vectors lies from those of a fit.

    Parameters
    ----------
    fitted : array-like of shape (n_fitted, n_features)
        Vectors that a model or a threshold was fitted on, or a few thousand of them drawn at
        random.
    X : array-like of shape (n_samples, n_features)
        New vectors by the same encoder, two different ones or more.

    Returns
    -------
    shift : Shift
        With the verdict ``is_shifted``; ``p_value``, of no change; ``mean_distance``, in
        standard deviations; ``novelty``, of each vector; and ``start``, the row from which they
        have changed.

    Raises
    ------
    ValueError
        If vectors are not finite or of different widths, or fewer than two of `X` differ.

    See Also
    --------
    provenance : Whether vectors are of another model.

    Notes
    -----
    The p-value is that of a permutation test with 4,999 random splits. Its statistic is the
    smallest one of three p-values (Westfall and Young's min-P [1]_):

    - of the distance of the means;
    - of the difference in mean Mahalanobis distance, by the covariance of all vectors;
    - of how often walks of one and two steps between neighbors stay in one sample [2]_, by the
      cosine about the mean of all vectors. This is ``x' (L + L²) x``, with the indicator x of
      the new vectors, minus its mean, and the symmetric matrix L of the weights of `novelty`,
      divided by the roots of its row and column sums: a hub counts no more than others.

    Where vectors of a sample have a cosine of 0.95 about this mean, or more, the p-value is the
    larger one of those of all vectors and of one of each such family. All vectors are held in
    memory.

    The rate of false alarms is that of one call. For a rate of 0.01 over twelve calls, as by
    month, compare `p_value` with ``0.01 / 12``.

    References
    ----------
    .. [1] Westfall & Young (1993), "Resampling-Based Multiple Testing", Wiley.
    .. [2] Schilling (1986), "Multivariate Two-Sample Tests Based on Nearest Neighbors",
           Journal of the American Statistical Association 81(395).

    Examples
    --------
    >>> import numpy as np
    >>> from skcalib.monitoring import shift
    >>> X = np.random.default_rng(0).normal(size=(2000, 4))
    >>> old, new = X[:1000], X[1000:]
    >>> shift(old, new).is_shifted, shift(old, new + 1).is_shifted
    (False, True)
    """
    fitted, X = check_pairwise_arrays(check_vectors(fitted, name="fitted"), check_vectors(X))
    samples = [distinct_vectors(rows) for rows in (fitted, X)]
    if len(samples[1]) < 2:
        raise ValueError(
            f"X has n_samples={len(X)}, {len(samples[1])} of them different; expected two "
            "different ones or more, better a few hundred. If the texts differ, the encoder "
            "gives all of them one vector."
        )
    p_value, novelty = _compared(fitted, X)
    mean = np.vstack([fitted, X]).mean(axis=0)
    old, new = (_unlike(rows, mean) for rows in samples)
    if len(old) + len(new) < len(fitted) + len(X):
        p_value = max(p_value, _compared(old, new)[0])
    difference = X.mean(axis=0) - fitted.mean(axis=0)
    square = difference @ difference / fitted.var(axis=0, ddof=1).sum()
    distance = np.sqrt(max(square - 1 / len(fitted) - 1 / len(X), 0.0))
    return Shift(float(distance), p_value, novelty)


def _unlike(rows: np.ndarray, mean: np.ndarray) -> np.ndarray:
    """Return the rows that are no near-copies of one before."""
    units = unit_rows(rows - mean)[0].astype(np.float32)
    pairs = [(i, j) for i, j, _ in above(units, NEAR)]
    kept = np.ones(len(rows), bool)
    if pairs:
        first, copies = (np.concatenate(parts) for parts in zip(*pairs, strict=True))
        order = np.argsort(first, kind="stable")
        leaders, starts = np.unique(first[order], return_index=True)
        for row, followers in zip(leaders, np.split(copies[order], starts[1:]), strict=True):
            if kept[row]:
                kept[followers] = False
    return rows[kept]


def _compared(old: np.ndarray, new: np.ndarray) -> tuple[float, np.ndarray]:
    """Return the p-value of no change, and the share of new rows near each new one."""
    n_old, n = len(old), len(old) + len(new)
    both = np.vstack([old, new])
    gaussian = LedoitWolf().fit(both)
    centered = both - gaussian.location_
    distances = np.einsum("ij,ij->i", centered @ gaussian.get_precision(), centered)
    columns = np.column_stack([centered, distances - distances.mean()])
    near = _neighbors(centered)
    links = near + near.T
    scale = 1 / np.sqrt(np.ravel(links.sum(axis=0)))
    links = links.multiply(scale[:, None]).multiply(scale).tocsr()
    is_new = np.arange(n) >= n_old
    rng, statistics = np.random.default_rng(0), []
    for block in gen_batches(1 + SPLITS, ROWS):
        inside = np.zeros((n, block.stop - block.start))
        for column in inside.T:
            column[rng.choice(n, len(new), replace=False, shuffle=False)] = 1
        if block.start == 0:
            inside[:, 0] = is_new
        # The sums of one part suffice: its size is fixed, so the difference between the parts
        # grows with them.
        sums = columns.T @ inside
        inside -= len(new) / n
        linked = links @ inside
        walks = ((inside + linked) * linked).sum(axis=0)  # x' (L + L²) x
        statistics.append([(sums[:-1] ** 2).sum(axis=0), np.abs(sums[-1]), walks])
    least = rankdata(-np.hstack(statistics), method="max", axis=1).min(axis=0)
    return float(np.mean(least <= least[0])), (is_new @ near)[n_old:]


def _neighbors(rows: np.ndarray) -> csr_array:
    """Weights of the rows nearest to each, one column for each; a column adds up to 1."""
    n, k = len(rows), min(NEAREST, len(rows) - 1)
    # In random order, so that among equally near ones the old do not come first.
    order = np.random.default_rng(0).permutation(n)
    units = unit_rows(rows[order])[0].astype(np.float32)
    cosines, neighbors = nearest(units, units, k + 1)
    cosines[neighbors == np.arange(n)[:, None]] = np.inf
    nearest_first = np.argsort(-cosines, axis=1)[:, 1:]  # but itself
    neighbors = order[np.take_along_axis(neighbors, nearest_first, axis=1)]
    weights = 1 / np.arange(1, k + 1)
    values = np.tile(weights / weights.sum(), n)
    return csr_array((values, (neighbors.ravel(), np.repeat(order, k))), shape=(n, n))
