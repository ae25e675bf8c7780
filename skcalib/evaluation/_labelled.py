"""Score encoders on texts with labels: search, clustering, classification."""

from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from sklearn.cluster import KMeans
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import normalized_mutual_info_score
from sklearn.model_selection import StratifiedKFold, cross_val_score
from sklearn.utils import gen_batches
from sklearn.utils.validation import check_consistent_length

from skcalib._base import progress
from skcalib._encoder.any_encoder import encoded, fitted_on
from skcalib._labels import labels_of
from skcalib._texts import as_texts, distinct
from skcalib._vectors import comparable, unit_rows
from skcalib.evaluation._score_table import ScoreTable, checked_encoders

FOLDS = 5
FEW, DRAWS = 3, 5  # labels of each class, and how many times they are drawn
# With many classes, unit vectors need more than the default of 1. With few labels, the best C
# depends on the vectors.
C_OF_FOLDS, C_OF_FEW = 10.0, (1.0, 10.0, 100.0)
COLUMNS = (
    *("1-NN", "R-precision", "duplicates", "k-means NMI", "logistic regression"),
    *(f"{FEW} labels, C={C:g}" for C in C_OF_FEW),
)
QUERIES_AT_A_TIME = 1024  # rows of the matrix of similarities in memory
BINS = 2**18  # in one unit of cosine, in which pairs are counted


def evaluate_labelled(
    encoder: Any,
    texts: Any,
    labels: ArrayLike,
    *,
    fit_on: Any = None,
    random_state: int = 0,
    verbose: bool = False,
) -> ScoreTable:
    """Score encoders on uses of sentence vectors: search, clustering, classification.

    Vectors are scaled to unit length first, so that every score depends on cosines.

    Parameters
    ----------
    encoder : estimator, any encoder of texts, or mapping of str to them
        As in `evaluate_sts`.
    texts : texts of shape (n_texts,)
        List, array or frame of one column.
    labels : array-like of shape (n_texts,)
        Class of each text. Classes of fewer than five texts cannot be cross-validated.
    fit_on : texts or None, default=None
        Texts to fit on; None uses `texts` themselves, so the scores hold for these only.
    random_state : int, default=0
        Seed of k-means and of the folds. 100 times the NMI differs by about 1 between seeds.
    verbose : bool, default=False
        Show a progress bar over the encoders.

    Returns
    -------
    table : ScoreTable
        A row per encoder, times 100:

        - "1-NN": share of texts whose nearest other text is of their class;
        - "R-precision": for a text with R others of its class, the share of its R nearest texts
          that are of that class, averaged over texts;
        - "duplicates": average precision of all pairs, ranked by cosine, where pairs of one
          class are right;
        - "k-means NMI": normalized mutual information of the classes with as many clusters;
        - "logistic regression": accuracy in five-fold cross-validation, ``C=10``;
        - "3 labels, C=1" and so on: its accuracy on the other texts when three labels of each
          class are known, the mean of five draws.

    Raises
    ------
    ValueError
        If lengths differ, there is one class only, or a class has fewer than five texts.

    Examples
    --------
    >>> from skcalib import BertEncoder
    >>> from skcalib.datasets import minilm_path
    >>> from skcalib.evaluation import evaluate_labelled
    >>> texts = [f"{who} {what}" for what in ("plays the piano.", "cooks some soup.")
    ...          for who in ("A man", "A woman", "My aunt", "The boy", "Somebody")]
    >>> table = evaluate_labelled(BertEncoder(minilm_path()), texts, [0] * 5 + [1] * 5)
    >>> table.columns[:4]
    ('1-NN', 'R-precision', 'duplicates', 'k-means NMI')
    >>> float(table.scores[0, 0])
    100.0
    """
    encoders = checked_encoders(encoder, "evaluate_labelled")
    texts = as_texts(texts, caller="evaluate_labelled")
    listed = labels_of(labels, "labels of evaluate_labelled")
    check_consistent_length(texts, listed)
    names, codes = distinct(listed)
    counts = np.bincount(codes)
    if len(names) < 2 or counts.min() < FOLDS:
        smallest = names[counts.argmin()]
        raise ValueError(
            f"evaluate_labelled got {len(names)} classes, the smallest, {smallest!r}, of "
            f"{counts.min()} texts; it needs two classes or more, of {FOLDS} texts or more "
            "each. Leave out the small ones."
        )
    fit_on = texts if fit_on is None else as_texts(fit_on, caller="fit_on of evaluate_labelled")
    scores = np.empty((len(encoders), len(COLUMNS)))
    with progress(len(encoders), unit="encoder", desc="evaluate", verbose=verbose) as advance:
        for row, (name, transformer) in enumerate(encoders.items()):
            vectors = encoded(fitted_on(transformer, fit_on), texts)
            scores[row] = _scores(unit_rows(vectors)[0], codes, random_state)
            advance(1, name)
    return ScoreTable(tuple(encoders), COLUMNS, 100 * scores)


def _scores(vectors: np.ndarray, codes: np.ndarray, random_state: int) -> tuple[float, ...]:
    k_means = KMeans(codes.max() + 1, n_init=3, random_state=random_state)
    clusters = k_means.fit_predict(vectors)
    folds = StratifiedKFold(FOLDS, shuffle=True, random_state=random_state)
    return (
        *_retrieval(vectors, codes),
        normalized_mutual_info_score(codes, clusters),
        cross_val_score(classifier(C_OF_FOLDS), vectors, codes, cv=folds).mean(),
        *few_labels(vectors, codes, random_state),
    )


def classifier(C: float) -> LogisticRegression:
    """Return a logistic regression that converges."""
    # In a narrow cone the gradient is tiny: with tol=1e-3 raw vectors of multilingual-e5 stay
    # at chance.
    return LogisticRegression(C=C, tol=1e-6, max_iter=1000)


def few_labels(vectors: np.ndarray, codes: np.ndarray, random_state: int) -> np.ndarray:
    """Accuracy from three labels of each class, for each of `C_OF_FEW`."""
    rng = np.random.default_rng(random_state)
    scores = []
    for _ in range(DRAWS):
        order = rng.permutation(len(codes))
        order = order[np.argsort(codes[order], kind="stable")]
        place = np.arange(len(codes)) - np.searchsorted(codes[order], codes[order])
        seen, others = order[place < FEW], order[place >= FEW]
        fitted = (classifier(C).fit(vectors[seen], codes[seen]) for C in C_OF_FEW)
        scores.append([c.score(vectors[others], codes[others]) for c in fitted])
    return np.mean(scores, axis=0)


def _retrieval(vectors: np.ndarray, codes: np.ndarray) -> tuple[float, float, float]:
    """1-NN accuracy, R-precision, and average precision of duplicates, among all others."""
    others = np.bincount(codes)[codes] - 1  # of its own class
    hits, precisions = [], []
    pairs: Any = 0  # numbers of pairs by kind, and by falling cosine
    for rows in gen_batches(len(vectors), QUERIES_AT_A_TIME):
        similarity = comparable(vectors[rows] @ vectors.T)
        itself = np.arange(len(similarity)), np.arange(rows.start, rows.stop)
        kind = (codes == codes[rows, None]).astype(np.intp)
        kind[itself] = 2
        kind += 3 * np.clip((1 - similarity) * BINS, 0, 2 * BINS).astype(np.intp)
        pairs += np.bincount(kind.ravel(), minlength=3 * (2 * BINS + 1)).reshape(-1, 3)
        similarity[itself] = -np.inf
        order = np.argsort(-similarity, axis=1, kind="stable")[:, : others.max()]
        same = codes[order] == codes[rows, None]
        hits.append(same[:, 0])
        among = np.arange(others.max()) < others[rows, None]
        precisions.append((same & among).sum(axis=1) / others[rows])
    unlike, alike = pairs[:, :2].cumsum(axis=0).T
    duplicates = pairs[:, 1] @ (alike / np.maximum(alike + unlike, 1)) / alike[-1]
    return np.concatenate(hits).mean(), np.concatenate(precisions).mean(), duplicates
