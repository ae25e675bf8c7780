"""Agreement with human judgment, also over the subsets of a benchmark."""

from collections.abc import Callable
from numbers import Integral
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike
from sklearn.exceptions import UndefinedMetricWarning
from sklearn.utils.validation import check_array, check_consistent_length, column_or_1d

from skcalib.base import warn
from skcalib.inputs.containers import unmasked
from skcalib.inputs.labels import labels_of, plain
from skcalib.inputs.texts import distinct

__all__ = ["aggregate", "spearman"]


def spearman(y_true: ArrayLike, y_pred: ArrayLike) -> float:
    """Spearman's rank correlation, the measure of semantic textual similarity.

    Parameters
    ----------
    y_true, y_pred : array-like of shape (n_pairs,)
        Judged and predicted similarity. Ties share their mean rank.

    Returns
    -------
    rho : float
        In [-1, 1]. NaN, with an ``UndefinedMetricWarning``, if one side is constant.

    Raises
    ------
    ValueError
        If an entry is not a finite number, lengths differ, or there is only one pair.

    Examples
    --------
    >>> from skcalib.metrics import spearman
    >>> spearman([0, 2, 3, 5], [0.1, 0.4, 0.3, 0.9])
    0.8
    """
    a, b = (_ranks(y) for y in _finite_pair(y_true, y_pred))
    if (a == a[0]).all() or (b == b[0]).all():
        warn(
            "spearman is not defined if one side is constant; NaN is returned.",
            UndefinedMetricWarning,
        )
        return float("nan")
    return float(np.corrcoef(a, b)[0, 1])


def aggregate(
    y_true: ArrayLike,
    y_pred: ArrayLike,
    subsets: ArrayLike,
    how: Literal["all", "mean", "wmean"] = "all",
    *,
    metric: Callable[[np.ndarray, np.ndarray], float] = spearman,
) -> float:
    """Score of a benchmark made of several subsets.

    Published numbers for STS12 to STS16 differ by several points (scores are times 100)
    between aggregations, so state which one you use.

    Parameters
    ----------
    y_true, y_pred : array-like of shape (n_pairs,)
        Judged and predicted similarity.
    subsets : array-like of shape (n_pairs,)
        Name of the subset of each pair.
    how : {"all", "mean", "wmean"}, default="all"
        "all" scores all pairs together, as Sentence-BERT and SimCSE do; "mean" averages the
        scores of the subsets; "wmean" weighs them by their numbers of pairs, as the papers of
        BERT-flow and BERT-whitening do.
    metric : callable, default=spearman
        Called as ``metric(y_true, y_pred)``.

    Returns
    -------
    score : float

    Examples
    --------
    >>> from skcalib.metrics import aggregate
    >>> grades, cosines = [0, 1, 2, 0, 1, 2], [0.1, 0.2, 0.3, 0.7, 0.8, 0.9]
    >>> aggregate(grades, cosines, list("aaabbb"), how="mean")
    1.0
    >>> round(aggregate(grades, cosines, list("aaabbb"), how="all"), 3)
    0.478
    """
    if how not in ("all", "mean", "wmean"):
        raise ValueError(f"how={how!r} is unknown. Use 'all', 'mean' or 'wmean'.")
    y_true, y_pred = _finite_pair(y_true, y_pred)
    names, codes = distinct(labels_of(subsets, "subsets"))
    check_consistent_length(y_true, codes)
    if how == "all":
        return float(metric(y_true, y_pred))
    parts = [codes == code for code in range(len(names))]
    scores = [metric(y_true[part], y_pred[part]) for part in parts]
    weights = np.bincount(codes) if how == "wmean" else None
    return float(np.average(scores, weights=weights))


def _finite_pair(y_true: ArrayLike, y_pred: ArrayLike) -> list[np.ndarray]:
    check_consistent_length(y_true, y_pred)
    pair = []
    for name, y in [("y_true", y_true), ("y_pred", y_pred)]:
        column, entries = y, plain(y)
        dtype: Any = np.float64
        if isinstance(entries, list | tuple) and all(isinstance(x, Integral) for x in entries):
            # Large integers, which float64 would merge, stay different.
            dtype = np.int64 if max(map(abs, entries), default=0) < 2**63 else object
            column = np.array(entries, dtype)
        column = column_or_1d(unmasked(column))
        if column.dtype.kind not in "fiubO":  # neither dates nor str count as numbers
            raise ValueError(f"{name} has dtype {column.dtype}; expected numbers.")
        limits = {"ensure_2d": False, "ensure_min_samples": 2}
        pair.append(check_array(column, dtype=dtype, input_name=name, **limits))
    return pair


def _ranks(y: np.ndarray) -> np.ndarray:
    """Ranks from 1; ties share their mean rank. Takes Python's large integers, too."""
    _, place, counts = np.unique(y, return_inverse=True, return_counts=True)
    return (np.cumsum(counts) - (counts - 1) / 2)[place]
