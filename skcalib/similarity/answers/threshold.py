"""The nearest stored questions, and the cosine that unanswerable questions rarely exceed."""

from typing import Any

import numpy as np
from sklearn.utils import gen_batches

from skcalib.calibration.neighbors.search import rows_near
from skcalib.utils.threads import rows_within
from skcalib.utils.vectors import unit_rows

# Equal cosines differ by less in float32, depending on the other rows of the product.
MARGIN = 1e-6
WORKING_BYTES = 64 * 2**20  # entries beside the questions that found them, at a time


def entries(vectors: np.ndarray, codes: np.ndarray) -> np.ndarray:
    """Return the vectors to search: ``unit(x + mean of the questions with the same answer)``.

    ``vectors`` of shape (n, d) have unit length, and ``codes`` of shape (n,) are the answers,
    from 0. The only question with its answer does not move.
    """
    total = np.zeros((codes.max() + 1, vectors.shape[1]))
    np.add.at(total, codes, vectors)
    mean = total / np.bincount(codes)[:, None]
    return unit_rows(vectors + mean[codes])[0].astype(np.float32)


def nearest_entries(
    asked: np.ndarray, found: np.ndarray, k: int, index: Any = None
) -> tuple[np.ndarray, np.ndarray]:
    """Cosines, from the largest, and rows of the ``k`` entries nearest each question.

    Entries that an index does not find have row -1 and cosine -1.
    """
    cosines = np.empty((len(asked), k))
    rows = np.empty((len(asked), k), np.intp)
    for chunk in gen_batches(len(asked), rows_within(WORKING_BYTES, (k + 10) * found.shape[1])):
        near = rows_near(asked[chunk].astype(np.float32), found, k, index)
        if (lacking := k - near.shape[1]) > 0:  # an index may find fewer
            near = np.pad(near, [(0, 0), (0, lacking)], constant_values=-1)
        # Unlike the cosines of a search, these do not depend on the other rows.
        exact = np.einsum("ij,ikj->ik", asked[chunk], found[near], dtype=np.float64)
        exact[near < 0] = -1
        order = np.lexsort((near, -exact))[:, :k]
        cosines[chunk] = np.take_along_axis(exact, order, axis=1)
        rows[chunk] = np.take_along_axis(near, order, axis=1)
    return cosines, rows


def promised(best: np.ndarray, rate: float) -> float:
    """Return the cosine that a new one exceeds with at most this probability.

    The rank of a new cosine among them is uniform (split conformal prediction).
    """
    rank = int(np.ceil((len(best) + 1) * (1 - rate) - 1e-9))
    if rank > len(best):
        raise _too_few(len(best), "questions without an answer", rate, 1)
    return float(np.sort(best)[rank - 1]) + MARGIN


def promised_by_answers(best: np.ndarray, codes: np.ndarray, rate: float) -> float:
    """Return the cosine that a question of a new answer exceeds with about this probability.

    ``best`` of shape (n,) are the largest cosines of questions with entries of other answers
    than theirs, and ``codes`` are their answers. If m of the n exceed a cosine, on average c of
    each answer that has any, a new answer adds c questions that exceed it. An answer and its
    nearest are mostly each other's nearest, so c questions of that answer exceed it as well:
    ``m + 2 c`` of ``n + c``.
    """
    order = np.argsort(-best, kind="stable")
    exceed = np.arange(len(best))  # the number before each place
    answers = np.zeros(len(best), int)
    answers[np.unique(codes[order], return_index=True)[1]] = 1
    answers = np.cumsum(answers) - answers
    of_each = np.where(exceed > 0, exceed / np.maximum(answers, 1), 1)
    expected = (exceed + 2 * of_each) / (len(best) + of_each)
    kept = np.flatnonzero(expected <= rate + 1e-9)
    if not len(kept):
        raise _too_few(len(best), "stored questions and no unanswerable ones", rate, 2)
    return float(best[order[kept[-1]]]) + MARGIN


def _too_few(n: int, kind: str, rate: float, least: int) -> ValueError:
    return ValueError(
        f"NearestAnswer got {n:,} {kind}; false_positive_rate={rate:g} needs "
        f"{np.ceil(least / rate - 1 - 1e-9):,.0f}. Give more of them, or set a larger rate."
    )
