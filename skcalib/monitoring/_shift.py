"""A test of whether new vectors differ from those of a fit, and a report of what is new."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from scipy.sparse import csr_array
from scipy.stats import rankdata
from sklearn.feature_extraction.text import CountVectorizer
from sklearn.utils import gen_batches
from sklearn.utils.validation import check_consistent_length

from skcalib.calibration.map import LinearMap
from skcalib.calibration.moments import Moments
from skcalib.calibration.whitening import Whitening, solve
from skcalib.cosines import above, nearest
from skcalib.inputs.vectors import checked_rows, distinct_vectors, unit_rows

SPLITS = 4999  # at random, so that one of three p-values is 0.0006 at least
ROWS = 128  # splits at once
# The r-th nearest of so many weighs 1 / r, so that small topics and large ones count alike.
NEAREST = 16
# Cosine about the mean of near-copies, such as a typing error or another number; others of one
# topic reach it rarely.
NEAR = 0.95
# Share of the new texts from which a family of near copies is worth a line.
LEAST_FAMILY = 0.1
# Sums of values about their mean, a Brownian bridge, exceed this in one case of a hundred.
BRIDGE = 1.63


@dataclass(frozen=True)
class Shift:
    """How far a sample of new vectors lies from those that a whitening was fitted on.

    Parameters
    ----------
    mean_distance : float
        Distance of the means in standard deviations: the root of the squared distance over the
        trace of the fitted covariance, minus what chance adds, ``1 / n_fitted + 1 / n_new``.
    mahalanobis_ratio : float
        Mean squared Mahalanobis distance of the new samples over that of the fitted ones. It is
        above 1 even for samples of the same kind, about ``n / (n - d)``.
    p_value : float
        Share of random splits of all samples, fitted and new, whose parts differ as much in
        mean, Mahalanobis distance or neighbors. If nothing has changed, it is below a rate in
        at most this share of cases, for any distribution of independent samples, also if each
        was copied any number of times. Halves of pairs or of chapters are not independent, and
        differ by more, and so do near-copies that are not recognized.
    novelty : ndarray of shape (n_samples,)
        Share of new vectors among the 16 nearest of all to each new vector, the r-th nearest
        with weight 1 / r. About ``n_new / (n_fitted + n_new)`` where nothing is new, and 1 for
        a text of a new topic.
    family : ndarray of int
        Rows of the new vectors that are near copies of one of them, which has the most; empty
        if they are less than a tenth of the new ones, or not twice as frequent as among the
        fitted. Near copies count as one in `p_value`.
    """

    mean_distance: float
    mahalanobis_ratio: float
    p_value: float
    novelty: np.ndarray = field(repr=False)
    family: np.ndarray = field(repr=False)

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

    def report(
        self,
        texts: Sequence[str],
        fitted_texts: Sequence[str],
        *,
        when: Sequence[Any] | None = None,
        n_texts: int = 5,
        n_words: int = 10,
    ) -> str:
        """Say whether the texts have changed, from when on, and what is new in them.

        Parameters
        ----------
        texts : sequence of str, of length n_samples
            Of the new vectors.
        fitted_texts : sequence of str
            Of the fitted vectors, or a sample of them.
        when : sequence of length n_samples or None, default=None
            Date of each new text, for the row from which they have changed.
        n_texts, n_words : int, default=5 and 10
            Texts with the largest `novelty` to show, and words that are more frequent in the
            tenth of the texts with the largest novelty than in the fitted ones, without
            numbers and English stop words.

        Returns
        -------
        report : str

        Examples
        --------
        >>> from skcalib import BertEncoder, Whitening
        >>> from skcalib.datasets import load_docstrings, load_questions
        >>> from skcalib.monitoring import shift
        >>> sentences, questions = load_docstrings().data, load_questions().data
        >>> old, new = sentences[::2], [*sentences[1::4], *questions[:50]]
        >>> encoder = BertEncoder("minilm")
        >>> vectors = encoder.fit_transform(old)
        >>> whitening = Whitening(power="auto").fit(vectors)
        >>> found = shift(whitening, encoder.transform(new), vectors)
        >>> print(found.report(new, old, n_texts=2, n_words=4))
        The texts have changed: p = 0.0004.
        From: row 380.
        Words: card, password, does, account.
        Most unlike the fitted texts:
        - Is there a fee for closing early?
        - How do I reset my password?
        """
        check_consistent_length(self.novelty, texts, when)
        copies = []
        if len(self.family):
            copies = [
                f"Near copies of one text are {len(self.family)} of {len(texts)}, such as:",
                f"- {texts[self.family[0]]}",
            ]
        if self.start is None:
            return "\n".join([f"No change is seen: p = {self.p_value:.4g}.", *copies])
        place = f"row {self.start}" + ("" if when is None else f", {when[self.start]}")
        order = np.argsort(-self.novelty, kind="stable")
        newest = [texts[i] for i in order[: max(n_texts, len(order) // 10)]]
        shown = dict.fromkeys(newest)
        return "\n".join(
            [
                f"The texts have changed: p = {self.p_value:.4g}.",
                f"From: {place}.",
                f"Words: {', '.join(_words_of(newest, fitted_texts, n_words))}.",
                "Most unlike the fitted texts:",
                *(f"- {text}" for text in [*shown][:n_texts]),
                *copies,
            ]
        )


def shift(whitening: Whitening, X: Any, fitted: Any) -> Shift:
    """Measure how far a sample of new vectors lies from those of a fit.

    Parameters
    ----------
    whitening : Whitening
        Fitted.
    X : array-like of shape (n_samples, n_features)
        New vectors, two different ones or more, as the encoder returns them. Vectors that the
        whitening has mapped differ from the fitted ones, and so they are shifted.
    fitted : array-like of shape (n_fitted, n_features)
        Vectors of the fit, or a few thousand of them drawn at random.

    Returns
    -------
    shift : Shift
        With the verdict ``is_shifted``; ``p_value``, of no change; ``mean_distance``, in
        standard deviations; ``mahalanobis_ratio``, of the new to the fitted samples;
        ``novelty``, of each vector; ``start``, the row from which they have changed; and a
        method ``report`` that shows what is new.

    Raises
    ------
    TypeError, ValueError
        If `whitening` is no `Whitening`, or fewer than two vectors of `X` differ.

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
    larger one of those of all vectors and of one of each such family. `X` and `fitted` are held
    in memory.

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
    >>> from skcalib import Whitening
    >>> from skcalib.monitoring import shift
    >>> X = np.random.default_rng(0).normal(size=(2000, 4))
    >>> old, new = X[:1000], X[1000:]
    >>> whitening = Whitening().fit(old)
    >>> shift(whitening, new, old).is_shifted, shift(whitening, new + 1, old).is_shifted
    (False, True)
    """
    check_whitening(whitening)
    X, fitted = (checked_rows(whitening, rows, reset=False) for rows in (X, fitted))
    old, new = whitening.moments_, Moments.of(X)
    different = distinct_vectors(X)
    if len(different) < 2:
        raise ValueError(
            f"shift got n_samples={len(X)}, {len(different)} of them different; expected two "
            "different ones or more, better a few hundred. If the texts differ, the encoder "
            "gives all of them one vector."
        )
    chance, delta = 1 / old.n + 1 / new.n, new.mean - old.mean
    p_value, novelty = _compared(fitted, X)
    mean = (len(fitted) * fitted.mean(axis=0, dtype=np.float64) + len(X) * new.mean) / (
        len(fitted) + len(X)
    )
    others, different = (_unlike(rows, mean) for rows in (distinct_vectors(fitted), different))
    if len(others) + len(different) < len(fitted) + len(X):
        p_value = max(p_value, _compared(others, different)[0])
    linear = _mahalanobis_map(whitening)
    square = delta @ delta / np.trace(old.covariance()) - chance
    about_old = replace(new, scatter=new.scatter + new.n * np.outer(delta, delta))
    ratio = _mean_length(about_old, linear) / _mean_length(old, linear)
    return Shift(
        float(np.sqrt(max(square, 0.0))),
        float(ratio),
        p_value,
        novelty,
        _family(X, fitted, old.mean),
    )


def _family(new: np.ndarray, fitted: np.ndarray, mean: np.ndarray) -> np.ndarray:
    """Return the rows of the largest family of near copies, if it is one of the new texts."""
    units, others = (unit_rows(X - mean)[0].astype(np.float32) for X in (new, fitted))
    n_copies = np.zeros(len(units), int)
    for i, j, _ in above(units, NEAR):
        n_copies += np.bincount(i, minlength=len(units)) + np.bincount(j, minlength=len(units))
    head = units[n_copies.argmax()]
    is_copy = units @ head >= NEAR
    is_new = is_copy.mean() >= max(LEAST_FAMILY, 2 * np.mean(others @ head >= NEAR))
    return np.flatnonzero(is_copy) if is_new and is_copy.sum() > 1 else np.empty(0, int)


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
    both = np.vstack([old, new], dtype=np.float64)
    moments = Moments.of(both)
    distances = _squared_lengths(both, solve(moments, shrinkage="auto").linear)
    columns = np.column_stack([both - moments.mean, distances - distances.mean()])
    near = _neighbors(both - moments.mean)
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


def check_whitening(whitening: Any) -> None:
    """Raise an error unless this is a fitted `Whitening`; warn if it was fitted on few rows."""
    if not isinstance(whitening, Whitening):
        kind = whitening if isinstance(whitening, type) else type(whitening)
        raise TypeError(
            f"Got a {kind.__name__}; expected a fitted Whitening, and vectors before it. Of a "
            "pipeline of an encoder and a Whitening pass pipeline[-1], and vectors of "
            "pipeline[:-1].transform(texts)."
        )
    whitening.linear_map()


def _squared_lengths(X: np.ndarray, linear: LinearMap) -> np.ndarray:
    """Squared lengths of mapped rows, in float64: float32 overflows for far vectors."""
    Z = linear.apply(X).astype(np.float64)
    return (Z * Z).sum(axis=1)


def _mahalanobis_map(whitening: Whitening) -> LinearMap:
    """Map whose output has the squared Mahalanobis distance as its squared length.

    The axes that a whitening drops share their mean eigenvalue, so that what lies outside the
    kept space counts as well. With their own eigenvalues, sampling error would hide it.
    """
    variance, basis = whitening.moments_.spectrum
    shrinkage, kept = whitening.shrinkage_, len(whitening.components_)
    eigenvalues = (1 - shrinkage) * variance + shrinkage * variance.mean()
    eigenvalues = eigenvalues[: whitening.rank_]
    if (dropped := eigenvalues[kept:]).size:
        dropped[:] = dropped.mean()
    W = basis[:, : whitening.rank_] / np.sqrt(eigenvalues)
    return LinearMap(whitening.mean_, W, np.zeros(whitening.rank_))


def _mean_length(moments: Moments, linear: LinearMap) -> float:
    """Mean squared length of mapped rows, by their moments about the map's mean."""
    W = linear.projection
    return float(np.sum((moments.scatter @ W) * W) / moments.n)


def _words_of(texts: Sequence[str], others: Sequence[str], n_words: int) -> list[str]:
    """Return words that are more frequent in `texts` than in `others`, the most telling first.

    A word weighs the share of the texts that have it, times the logarithm of this share over
    that of the others: a class-based TF-IDF in which words that both use alike weigh nothing.
    Numbers, single characters and scikit-learn's English stop words, such as "its", are left
    out: they show another style, but not what is new.
    """
    word = r"(?u)\b(?=\w*[^\W\d_])\w\w+\b"  # with a letter in it
    counter = CountVectorizer(binary=True, stop_words="english", token_pattern=word)
    try:
        counts = counter.fit_transform(texts)
    except ValueError:  # no text has a word
        return []
    shares = [
        (np.asarray(X.sum(axis=0)).ravel() + 0.5) / (X.shape[0] + 1)
        for X in (counts, counter.transform(others))
    ]
    weights = shares[0] * np.log(shares[0] / shares[1])
    best = np.argsort(-weights, kind="stable")[:n_words]
    return [*counter.get_feature_names_out()[best[weights[best] > 0]]]
