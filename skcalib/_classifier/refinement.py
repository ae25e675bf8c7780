"""Vectors of classes, from their names, a few labelled texts and many without labels."""

import numpy as np
from sklearn.model_selection import KFold

from skcalib._vectors import unit_rows

ROUNDS = 3
WEIGHT = 10.0  # texts that a name or a labelled text counts as
FOLDS = 10


def class_vectors(
    texts: np.ndarray, names: np.ndarray, rows: np.ndarray, codes: np.ndarray
) -> np.ndarray:
    """Return unit vectors of classes, (n_classes, d).

    A class begins as the mean of its name and its labelled texts. Then, three times, it becomes
    the mean of these, each counted as ten texts, and of the texts without label that are more
    similar to it than to any other class. Texts (n, d) and names (n_classes, d) are unit
    vectors, or zeros for classes without names; ``codes`` are the classes of texts ``rows``.
    """
    fixed = WEIGHT * names
    np.add.at(fixed, codes, WEIGHT * texts[rows])
    free = np.delete(texts, rows, axis=0)
    vectors = unit_rows(fixed)[0]
    for _ in range(ROUNDS):
        total = fixed.copy()
        np.add.at(total, (free @ vectors.T).argmax(axis=1), free)
        vectors = unit_rows(total)[0]
    return vectors


def best_of_others(
    texts: np.ndarray, names: np.ndarray, rows: np.ndarray, codes: np.ndarray
) -> np.ndarray:
    """Each text's `best_cosines` to classes that were made without it.

    A text pulls its class toward itself, so with itself it would seem more similar than a new
    one. There are two texts or more.
    """
    best = np.empty(len(texts))
    folds = KFold(min(FOLDS, len(texts)), shuffle=True, random_state=0)
    for kept, left_out in folds.split(texts):
        place = np.full(len(texts), -1)
        place[kept] = np.arange(len(kept))
        stays = place[rows] >= 0
        vectors = class_vectors(texts[kept], names, place[rows[stays]], codes[stays])
        best[left_out] = best_cosines(texts[left_out], vectors)
    return best


def best_cosines(texts: np.ndarray, classes: np.ndarray) -> np.ndarray:
    """Largest cosine of each text to a class, by the first half of the vectors."""
    width = texts.shape[1] // 2
    units, of_classes = (unit_rows(v[:, :width])[0] for v in (texts, classes))
    return (units @ of_classes.T).max(axis=1)
