"""Agreement with human judgment, and isotropy: how evenly vectors spread in all directions.

All measures work in float64.
"""

from typing import Literal

import numpy as np
from numpy.typing import ArrayLike
from scipy import linalg
from scipy.special import logsumexp
from scipy.stats import entropy, rankdata
from sklearn.exceptions import UndefinedMetricWarning
from sklearn.utils.validation import check_array, check_consistent_length, column_or_1d

from skcalib.base import warn
from skcalib.inputs.labels import labels_of
from skcalib.inputs.texts import distinct
from skcalib.inputs.vectors import check_vectors, unit_rows

__all__ = [
    "aggregate",
    "effective_rank",
    "isoscore",
    "mean_cosine",
    "partition_isotropy",
    "spearman",
]


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

    Examples
    --------
    >>> from skcalib.metrics import spearman
    >>> spearman([0, 2, 3, 5], [0.1, 0.4, 0.3, 0.9])
    0.8
    """
    y_true, y_pred = _finite_pair(y_true, y_pred)
    if (y_true == y_true[0]).all() or (y_pred == y_pred[0]).all():
        warn(
            "spearman is not defined if one side is constant; NaN is returned.",
            UndefinedMetricWarning,
        )
        return float("nan")
    # scipy's spearmanr also computes a p-value.
    return float(np.corrcoef(rankdata(y_true), rankdata(y_pred))[0, 1])


def aggregate(
    y_true: ArrayLike,
    y_pred: ArrayLike,
    subsets: ArrayLike,
    how: Literal["all", "mean", "wmean"] = "all",
) -> float:
    """Spearman's correlation for a benchmark made of several subsets.

    Scores of STS12 to STS16 differ by several points between aggregations.

    Parameters
    ----------
    y_true, y_pred : array-like of shape (n_pairs,)
        Judged and predicted similarity.
    subsets : array-like of shape (n_pairs,)
        Name of the subset of each pair.
    how : {"all", "mean", "wmean"}, default="all"
        "all" scores all pairs together, as Sentence-BERT does; "mean" averages the scores of
        subsets; "wmean" weighs them by their pairs, as BERT-flow and BERT-whitening do.

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
        return spearman(y_true, y_pred)
    parts = [codes == code for code in range(len(names))]
    scores = [spearman(y_true[part], y_pred[part]) for part in parts]
    weights = np.bincount(codes) if how == "wmean" else None
    return float(np.average(scores, weights=weights))


def isoscore(X: ArrayLike) -> float:
    """IsoScore: the share of dimensions that the vectors use uniformly.

    Parameters
    ----------
    X : array-like of shape (n_samples, d)
        Vectors, d at least 2.

    Returns
    -------
    score : float
        In [0, 1]; 0 if all variance lies in one direction. The mean has no influence.

    References
    ----------
    Rudman et al. (2022), "IsoScore: Measuring the Uniformity of Embedding Space
    Utilization", Findings of ACL, algorithm 1.

    Examples
    --------
    >>> from skcalib.metrics import isoscore
    >>> round(isoscore([[1, 0], [-1, 0], [0, 1], [0, -1]]), 6)
    1.0
    """
    vectors = check_vectors(X, ensure_min_samples=2, ensure_min_features=2)
    d = vectors.shape[1]
    if (vectors == vectors[0]).all():
        raise ValueError("isoscore is not defined for vectors that are all equal.")
    vectors = vectors / np.abs(vectors).max()  # the score ignores scale; squares may overflow
    covariance = np.cov(vectors, rowvar=False)
    # The paper's steps come to this ratio: tr(C)² over tr(C²).
    participation = np.trace(covariance) ** 2 / np.sum(covariance**2)
    return float(np.clip((participation - 1) / (d - 1), 0.0, 1.0))


def mean_cosine(X: ArrayLike) -> float:
    """Mean cosine over all pairs of different vectors.

    Parameters
    ----------
    X : array-like of shape (n_samples, d)
        Vectors, none of them zero.

    Returns
    -------
    cosine : float
        Near 0 for directions spread evenly, near 1 for vectors in a narrow cone.

    References
    ----------
    Ethayarajh (2019), "How Contextual are Contextualized Word Representations?", EMNLP.

    Examples
    --------
    >>> from skcalib.metrics import mean_cosine
    >>> mean_cosine([[1.0, 0.0], [0.0, 2.0]])
    0.0
    """
    unit, lengths = unit_rows(check_vectors(X, ensure_min_samples=2))
    if not lengths.all():
        raise ValueError(
            f"Vector {np.flatnonzero(lengths == 0)[0]} is zero and has no cosine. Drop it."
        )
    n = len(unit)
    # The sum over all n² pairs is the squared norm of the sum of the unit vectors.
    total = np.sum(unit.sum(axis=0) ** 2)
    return float((total - n) / (n * (n - 1)))


def partition_isotropy(X: ArrayLike) -> float:
    """Isotropy by the partition function ``Z(c) = Σ exp(c·x)``.

    Parameters
    ----------
    X : array-like of shape (n_samples, d)
        Vectors.

    Returns
    -------
    isotropy : float
        ``min Z(c) / max Z(c)`` over the eigenvectors c of ``XᵀX``, both signs of each. 1 if
        no direction is preferred; it depends on the scale of the vectors.

    References
    ----------
    Mu & Viswanath (2018), "All-but-the-Top", ICLR, section 2.2.

    Examples
    --------
    >>> from skcalib.metrics import partition_isotropy
    >>> partition_isotropy([[1, 0], [-1, 0], [0, 1], [0, -1]])
    1.0
    """
    vectors = check_vectors(X, ensure_min_samples=2)
    scaled = vectors / (np.abs(vectors).max() or 1.0)  # squares neither overflow nor underflow
    projected = vectors @ linalg.eigh(scaled.T @ scaled)[1]
    log_z = logsumexp(np.hstack([projected, -projected]), axis=0)
    return float(np.exp(log_z.min() - log_z.max()))


def effective_rank(X: ArrayLike) -> float:
    """Effective rank: the exponential of the entropy of the singular values.

    Parameters
    ----------
    X : array-like of shape (n_samples, d)
        Vectors, not centered here.

    Returns
    -------
    rank : float
        In [1, min(n_samples, d)].

    References
    ----------
    Roy & Vetterli (2007), "The effective rank", EUSIPCO.

    Examples
    --------
    >>> import numpy as np
    >>> from skcalib.metrics import effective_rank
    >>> round(effective_rank(np.eye(3)), 6)
    3.0
    """
    vectors = check_vectors(X, ensure_min_samples=2)
    largest = np.abs(vectors).max()
    if largest == 0:
        raise ValueError("effective_rank is not defined for vectors that are all zero.")
    singular = linalg.svdvals(vectors / largest)  # the rank ignores scale; squares may overflow
    return float(np.exp(entropy(singular)))


def _finite_pair(y_true: ArrayLike, y_pred: ArrayLike) -> list[np.ndarray]:
    check_consistent_length(y_true, y_pred)
    limits = {"dtype": np.float64, "ensure_2d": False, "ensure_min_samples": 2}
    return [
        check_array(column_or_1d(y), input_name=name, **limits)
        for name, y in [("y_true", y_true), ("y_pred", y_pred)]
    ]
