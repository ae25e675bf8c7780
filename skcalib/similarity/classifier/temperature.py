"""The temperature of a classifier's probabilities, from labeled texts that are left out."""

from collections.abc import Callable

import numpy as np
from scipy.optimize import minimize_scalar
from scipy.special import log_softmax

from skcalib.cosines import nearness
from skcalib.similarity.classifier.refinement import class_means

USUAL = 0.05  # without labels; the best ones, of several sets and encoders, are about this
FACTOR = 2.0  # within this: a standard deviation of the logarithm, for the prior
FOLDS = 5


def temperature(
    n: int,
    without: Callable[[np.ndarray], tuple[np.ndarray, np.ndarray | None]],
    rows: np.ndarray,
    codes: np.ndarray,
    share: float = 1.0,
) -> float:
    """Return the temperature of a softmax of scores that fits the labels of n texts.

    Each labeled text is scored by classes that were made without it, if its class has another
    one; at most a fifth of a class, or one text, is left out at a time. The labels' likelihood
    (Guo et al., 2017, arXiv:1706.04599) is multiplied by a log-normal prior, since a few texts
    that are all correct would have a temperature of zero. ``without`` is that of
    `cosines_of_others`; ``codes`` are the classes of texts ``rows``.
    """
    of_class, of_text = np.bincount(codes)[codes], np.bincount(rows)[rows]
    judged = np.flatnonzero((of_class > 1) & (of_text == 1))
    scores, labels = [], []
    for left_out in _folds(judged, codes):
        kept = np.delete(np.arange(n), rows[left_out])
        texts, names = without(kept)
        others = np.delete(np.arange(len(rows)), left_out)
        place = np.searchsorted(kept, rows[others])
        means = class_means(texts[kept], names, place, codes[others], share)
        scores.append(nearness(texts[rows[left_out]], means) / 2)
        labels.append(codes[left_out])
    if not scores:
        return USUAL
    return _most_probable(np.concatenate(scores), np.concatenate(labels))


def _folds(judged: np.ndarray, codes: np.ndarray) -> list[np.ndarray]:
    """Split labeled texts so that each class has about as many of them in each part."""
    by_class = judged[np.argsort(codes[judged], kind="stable")]
    _, first, counts = np.unique(codes[by_class], return_index=True, return_counts=True)
    if not len(counts):
        return []
    number = np.arange(len(by_class)) - np.repeat(first, counts)  # of a text in its class
    n_folds = min(FOLDS, counts.max())
    if n_folds == 1:
        return [by_class]
    return [by_class[number % n_folds == i] for i in range(n_folds)]


def _most_probable(scores: np.ndarray, labels: np.ndarray) -> float:
    """Return the temperature of maximal likelihood times prior."""

    def loss(deviation: float) -> float:
        """Minus the logarithm of both, at so many standard deviations from the usual one."""
        logs = log_softmax(scores / (USUAL * FACTOR**deviation), axis=1)
        return deviation**2 / 2 - logs[np.arange(len(labels)), labels].sum()

    return float(USUAL * FACTOR ** minimize_scalar(loss, bounds=(-9, 9), method="bounded").x)
