"""The entries to search, and the cosine that unanswerable questions rarely exceed."""

import numpy as np

from skcalib.inputs.vectors import unit_rows
from skcalib.statistics.conformal import ROUNDING, n_above, threshold_of

# Equal cosines differ by less in float32, depending on the other rows of the product.
MARGIN = 1e-6


def entries(vectors: np.ndarray, codes: np.ndarray) -> np.ndarray:
    """Return the vectors to search: ``unit(x + mean of the questions with the same answer)``.

    ``vectors`` of shape (n, d) have unit length, and ``codes`` of shape (n,) are the answers,
    from 0. The only question with its answer does not move.
    """
    total = np.zeros((codes.max() + 1, vectors.shape[1]))
    np.add.at(total, codes, vectors)
    mean = total / np.bincount(codes)[:, None]
    return unit_rows(vectors + mean[codes])[0].astype(np.float32)


def promised(best: np.ndarray, place: np.ndarray, rate: float) -> float:
    """Return a threshold that the best cosine of a new question exceeds at most at this rate.

    ``best`` of shape (n,) are the best cosines of distinct questions without an answer, and
    ``place`` has the place among these of each question that came. A question counts once, or
    as often as it came if this is stricter.
    """
    kind = "distinct questions without an answer"
    return max(threshold_of(cosines, rate, kind) for cosines in (best, best[place])) + MARGIN


def promised_by_answers(best: np.ndarray, codes: np.ndarray, rate: float) -> float:
    """Return the cosine that a question of a new answer exceeds with about this probability.

    ``best`` of shape (n,) are the largest cosines of questions with entries of other answers
    than theirs, and ``codes`` are their answers. A new answer is one more answer, however many
    questions the stored ones have. So each answer counts as much as the others, with the share
    of its questions that exceed the cosine. If these shares sum to m among a answers, and are c
    on average where any does, a new answer adds c. An answer and its nearest are mostly each
    other's nearest, so c of that answer exceed it as well: ``m + 2 c`` of ``a + c``. With too
    few answers for the rate, it is the largest of all cosines.
    """
    n_above(len(best), rate, "stored questions", new=2, hint=" Or give `unanswerable` ones.")
    order = np.argsort(-best, kind="stable")
    weight = 1 / np.bincount(codes)[codes][order]
    exceed = np.cumsum(weight) - weight  # the sum before each place
    answers = np.zeros(len(best))
    answers[np.unique(codes[order], return_index=True)[1]] = 1
    answers, n = np.cumsum(answers) - answers, answers.sum()
    of_each = np.where(answers > 0, exceed / np.maximum(answers, 1), weight)
    expected = (exceed + 2 * of_each) / (n + of_each)
    kept = np.flatnonzero(expected <= rate + ROUNDING)
    return float(best[order[kept[-1] if len(kept) else 0]]) + MARGIN
