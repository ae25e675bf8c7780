"""The nearest of the stored questions that may answer one that is asked."""

from collections.abc import Collection
from dataclasses import dataclass
from itertools import repeat
from typing import Any, Self

import numpy as np

from skcalib.similarity.search.index import DenseSparse, SearchIndex

CANDIDATES = 10  # stored questions that are compared first
NONE = -2.0  # below all scores


@dataclass(frozen=True, eq=False)
class Keys:
    """What decides whether a stored question may answer: other answers, equal details.

    ``answers`` are codes, -1 for none, and ``details`` are what the guard returns, if any.
    """

    answers: np.ndarray
    details: np.ndarray
    guard: Any = None

    @classmethod
    def of(cls, answers: np.ndarray, texts: Collection[str], guard: Any) -> Self:
        """Return the keys of questions, with the codes of their answers."""
        details = map(guard.details, texts) if guard is not None else repeat(0, len(texts))
        return cls(answers, np.fromiter(details, object, len(texts)), guard)

    def asked(self, texts: list[str]) -> Self:
        """Return the keys of questions without an answer of their own."""
        return self.of(np.full(len(texts), -1), texts, self.guard)

    def __getitem__(self, rows: np.ndarray) -> Self:
        return type(self)(self.answers[rows], self.details[rows])


def best_allowed(
    index: SearchIndex,
    asked: Any,
    stored: Keys,
    keys: Keys,
    least: float = -np.inf,
    most: float = np.inf,
) -> tuple[np.ndarray, np.ndarray]:
    """Return each question's best score with an allowed document, and its row.

    The search widens until one is found, or the others score ``least`` at most. After ``most``
    documents, the score is that of the last one, which the others do not exceed.
    """
    is_pair = isinstance(asked, DenseSparse)
    dense = asked.dense if is_pair else asked
    best, found = np.full(len(dense), NONE), np.zeros(len(dense), np.intp)
    left, k = np.flatnonzero(dense.any(axis=1)), CANDIDATES
    while len(left):
        scores, rows = index.nearest(asked.rows(left) if is_pair else asked[left], k)
        own = keys[left[:, None]]
        allowed = (stored.answers[rows] != own.answers) & (stored.details[rows] == own.details)
        allowed &= rows >= 0
        has, place = allowed.any(axis=1), allowed.argmax(axis=1)[:, None]
        best[left[has]] = np.take_along_axis(scores, place, axis=1)[has, 0]
        found[left[has]] = np.take_along_axis(rows, place, axis=1)[has, 0]
        if k >= len(index.vectors):
            break
        last = np.where(rows[:, -1] < 0, np.inf, scores[:, -1])
        if k >= most:
            best[left[~has]] = last[~has]
            break
        left, k = left[~has & (last > least)], 4 * k
    return best, found
