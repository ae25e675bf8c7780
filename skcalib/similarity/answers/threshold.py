"""The score that unanswerable questions rarely exceed."""

import numpy as np

from skcalib.statistics.conformal import ENOUGH, ROUNDING, n_above, n_needed

# Equal scores differ by less in float32, depending on the other rows of the product.
MARGIN = 1e-6


def promised(
    best: np.ndarray, place: np.ndarray, rate: float, confidence: float | None
) -> tuple[float, float | None]:
    """Return a threshold that the best score of a new question exceeds at most at this rate.

    ``best`` of shape (n,) are the best scores of distinct questions without an answer, and
    ``place`` has the place among these of each question that came. A question counts once, or
    as often as it came if this is stricter. Also returned is the confidence with which the rate
    holds for these scores, None if it holds on average.
    """
    n = len(best)
    if confidence and n < max(ENOUGH, n_needed(rate, confidence=confidence)):
        confidence = None
    most = n_above(n, rate, "distinct questions without an answer", confidence=confidence)
    often = best[place]
    threshold = max(
        np.sort(best)[n - 1 - most], np.sort(often)[len(often) - 1 - most * len(often) // n]
    )
    return float(threshold) + MARGIN, confidence


def promised_by_answers(best: np.ndarray, codes: np.ndarray, rate: float) -> float:
    """Return the score that a question of a new answer exceeds with about this probability.

    ``best`` of shape (n,) are the largest scores of questions with entries of other answers
    than theirs, and ``codes`` are their answers. A new answer is one more answer, however many
    questions the stored ones have. So each answer counts as much as the others, with the share
    of its questions that exceed the score. If these shares sum to m among a answers, and are c
    on average where any does, a new answer adds c. An answer and its nearest are mostly each
    other's nearest, so c of that answer exceed it as well: ``m + 2 c`` of ``a + c``. With too
    few answers for the rate, it is the largest of all scores.
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
