"""Score encoders on texts with labels: search, clustering, classification."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from sklearn.cluster import KMeans
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import normalized_mutual_info_score
from sklearn.model_selection import StratifiedKFold, cross_val_score
from sklearn.utils.validation import check_consistent_length

from skcalib.cosines import blocks
from skcalib.encoders.pipelines import encoded, fitted_on
from skcalib.evaluation._score_table import ScoreTable, named_encoders
from skcalib.inputs.labels import labels_of
from skcalib.inputs.texts import as_texts, distinct
from skcalib.inputs.vectors import comparable, unit_rows

FOLDS = 5
NEXT = 20  # neighbors of which one takes the place of a nearer one


def evaluate_labeled(
    encoder: Any,
    texts: Any,
    labels: ArrayLike,
    *,
    scores: Sequence[str] | None = None,
    fit_on: Any = None,
    random_state: int = 0,
) -> ScoreTable:
    """Score encoders on uses of sentence vectors: neighbors, clustering, classification.

    Vectors are scaled to unit length first, so that every score depends on cosines.

    Parameters
    ----------
    encoder : estimator, any encoder of texts, or mapping of str to them
        As in `evaluate_sts`.
    texts : texts of shape (n_texts,)
        List, array or frame of one column.
    labels : array-like of shape (n_texts,)
        Class of each text, two classes or more with five texts or more each.
    scores : sequence of str or None, default=None
        Names of the columns to compute, in their order; None computes all of them.
    fit_on : texts or None, default=None
        Texts to fit on; None uses `texts` themselves, so the scores hold for these only.
    random_state : int, default=0
        Seed of k-means and of the folds. The NMI differs by about 1 point between seeds.

    Returns
    -------
    table : ScoreTable
        A row per encoder, times 100:

        - "R-precision": for a text with R others of its class, the share of its R nearest texts
          that are of that class, averaged over texts;
        - "k-means NMI": normalized mutual information of the classes with as many clusters;
        - "logistic regression": accuracy in five-fold cross-validation, ``C=10``.

    Examples
    --------
    >>> from skcalib import BertEncoder
    >>> from skcalib.datasets import minilm_path
    >>> from skcalib.evaluation import evaluate_labeled
    >>> texts = [f"{who} {what}" for what in ("plays the piano.", "cooks some soup.")
    ...          for who in ("A man", "A woman", "My aunt", "The boy", "Somebody")]
    >>> labels, wanted = [0] * 5 + [1] * 5, ["R-precision"]
    >>> print(evaluate_labeled(BertEncoder(minilm_path()), texts, labels, scores=wanted))
    |             | R-precision |
    |-------------|------------:|
    | BertEncoder |        95.0 |
    """
    encoders = named_encoders(encoder)
    columns = tuple(SCORES if scores is None else dict.fromkeys(scores))
    if unknown := [score for score in columns if score not in SCORES]:
        raise ValueError(f"scores has {unknown[0]!r}; expected a list of some of {[*SCORES]}.")
    texts = as_texts(texts, "texts")
    listed = labels_of(labels, "labels")
    check_consistent_length(texts, listed)
    names, codes = distinct(listed)
    counts = np.bincount(codes)
    if len(names) < 2 or counts.min() < FOLDS:
        smallest = names[counts.argmin()]
        raise ValueError(
            f"labels has {len(names)} classes, the smallest, {smallest!r}, with "
            f"{counts.min()} texts; expected two classes or more, with {FOLDS} texts or more "
            "each. Leave out small classes."
        )
    fit_on = texts if fit_on is None else as_texts(fit_on, "fit_on")
    values = []
    for one in encoders.values():
        vectors = unit_rows(encoded(fitted_on(one, fit_on), texts))[0]
        values.append([SCORES[score](vectors, codes, random_state) for score in columns])
    return ScoreTable(tuple(encoders), columns, 100 * np.array(values))


def r_precisions(vectors: np.ndarray, codes: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """R-precision of each row: of the R nearest, R others having its class, how many do.

    Every class has two rows or more. Also return what each row, as a neighbor, adds to the
    precisions of others: without it one of the next neighbors would take its place.
    """
    n_others = np.bincount(codes)[codes] - 1  # of its class
    precisions, given = [], np.zeros(len(codes))
    for rows, _, cosines in blocks(vectors, vectors):
        similarity, n = comparable(cosines), n_others[rows, None]
        np.fill_diagonal(similarity[:, rows], -np.inf)
        order = np.argsort(-similarity, axis=1, kind="stable")[:, : n_others.max() + NEXT]
        right, place = codes[order] == codes[rows, None], np.arange(order.shape[1])
        first, later = place < n, (n <= place) & (place < n + NEXT)
        precisions.append((right & first).sum(axis=1) / n_others[rows])
        instead = (right & later).sum(axis=1) / np.maximum(later.sum(axis=1), 1)
        np.add.at(given, order, first * (right - instead[:, None]) / n)
    return np.concatenate(precisions), given


def _r_precision(vectors: np.ndarray, codes: np.ndarray, _: int) -> float:
    return float(r_precisions(vectors, codes)[0].mean())


def _clusters(vectors: np.ndarray, codes: np.ndarray, random_state: int) -> float:
    k_means = KMeans(codes.max() + 1, n_init=3, random_state=random_state)
    return float(normalized_mutual_info_score(codes, k_means.fit_predict(vectors)))


def _folds(vectors: np.ndarray, codes: np.ndarray, random_state: int) -> float:
    folds = StratifiedKFold(FOLDS, shuffle=True, random_state=random_state)
    # In a narrow cone the gradient is tiny: with tol=1e-3 raw vectors of multilingual-e5 stay
    # at chance. With many classes, unit vectors need a larger C than the default of 1.
    classifier = LogisticRegression(C=10, tol=1e-6, max_iter=1000)
    return float(cross_val_score(classifier, vectors, codes, cv=folds).mean())


SCORES: dict[str, Callable[[np.ndarray, np.ndarray, int], float]] = {
    "R-precision": _r_precision,
    "k-means NMI": _clusters,
    "logistic regression": _folds,
}
